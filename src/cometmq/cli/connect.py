"""What every command that talks to a cluster shares: its options, a client, running a verb once or again and again.

A verb is ``async def verb(client, args) -> Output``; ``add_verb`` gives it a parser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cometmq.cli.parser import VERB
from cometmq.cli.render import Output, clear, show
from cometmq.errors import ClientError

if TYPE_CHECKING:
    from cometmq.client.client import Client

Verb = Callable[["Client", argparse.Namespace], Awaitable[Output | None]]

SERVERS_DEFAULT = "127.0.0.1:9876"
WATCH_DEFAULT_S = 2.0
_AGO = re.compile(r"-?(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_CONFIRMED = ("y", "yes")


def verbs_of(parser: argparse.ArgumentParser) -> Any:
    """The place verbs are added to."""
    return parser.add_subparsers(dest="verb", metavar=VERB, required=True)


def add_verb(verbs: Any, name: str, function: Verb, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    parser.set_defaults(function=function)
    add_connection_options(parser)
    return parser


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection and output")
    group.add_argument(
        "-n",
        "--servers",
        metavar="LIST",
        help=f"NameServers, e.g. 'a:9876;b:9876' (default: NAMESRV_ADDR, else {SERVERS_DEFAULT})",
    )
    group.add_argument("--namespace", default="", help="namespace of topics and groups")
    group.add_argument("--access-key", default="", help="with --secret-key: account for clusters with ACL")
    group.add_argument("--secret-key", default="", help="the secret of that account")
    group.add_argument("--tls", action="store_true", help="connect with TLS")
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=WATCH_DEFAULT_S,
        metavar="SECONDS",
        help=f"show again every {WATCH_DEFAULT_S:g} seconds until Ctrl-C",
    )


def client_of(args: argparse.Namespace) -> Client:
    from cometmq.client.client import Client

    servers = args.servers or os.environ.get("NAMESRV_ADDR") or SERVERS_DEFAULT
    given = {
        name: getattr(args, name) for name in ("namespace", "access_key", "secret_key") if getattr(args, name)
    }
    return Client(servers, tls=args.tls, **given)


def run_verb(args: argparse.Namespace) -> int:
    asyncio.run(_run(args))
    return 0


async def _run(args: argparse.Namespace) -> None:
    async with client_of(args) as client:
        while True:
            output = await args.function(client, args)
            if output is not None:
                if args.watch:
                    clear(sys.stdout)
                show(output, as_json=args.json)
                sys.stdout.flush()
            if not args.watch:
                return
            await asyncio.sleep(args.watch)


def confirm(question: str, args: argparse.Namespace) -> None:
    """Ask before something is destroyed, unless --yes was given. Without a terminal --yes is required."""
    if getattr(args, "yes", False):
        return
    if not sys.stdin.isatty():
        raise ClientError(f"{question} Add --yes to do it without being asked.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in _CONFIRMED:
        raise ClientError("Nothing was changed.")


def parse_moment(text: str, now_s: float | None = None) -> float:
    """``-2h``, ``30m`` (ago), ``2026-11-16 10:00``, or milliseconds since the epoch; seconds since the epoch.

    >>> parse_moment("-1h", now_s=7200)
    3600.0
    """
    now_s = time.time() if now_s is None else now_s
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now_s - float(ago.group(1)) * _UNITS_S[ago.group(2)]
    if text.isdigit():
        return int(text) / 1000
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ClientError(
            f"{text!r} is no time; write -2h, 2026-11-16T10:00 or milliseconds since the epoch"
        ) from None


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    """``["a=1", "b=2"]`` to a dictionary."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ClientError(f"{pair!r} is not of the form name=value")
        found[name] = value
    return found
