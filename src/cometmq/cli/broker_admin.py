"""A running broker: show its figures, show and change its settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cometmq.cli.connect import add_verb, parse_pairs, run_verb, verbs_of
from cometmq.cli.render import Done, Facts, Output
from cometmq.errors import ClientError
from cometmq.properties_file import SYSTEM_PROPERTY_PREFIXES, nearest

if TYPE_CHECKING:
    from cometmq.client.client import Client

run = run_verb


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    show = add_verb(verbs, "show", show_broker, "figures of a running broker")
    show.add_argument("broker", nargs="?", help="name or host:port (default: the only one)")
    config = add_verb(verbs, "config", broker_config, "settings of a running broker")
    config.add_argument("broker", nargs="?", help="name or host:port (default: the only one)")
    config.add_argument("--get", metavar="KEY", help="only settings whose name contains this")
    config.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting now"
    )


async def _address(client: Client, broker: str | None) -> str:
    if broker is not None and ":" in broker:
        return broker
    masters = await client.admin.masters(broker=broker)
    if len(masters) > 1:
        raise ClientError(f"there are several brokers: name one of {', '.join(masters)}")
    return next(iter(masters.values()))


async def show_broker(client: Client, args: argparse.Namespace) -> Output:
    address = await _address(client, args.broker)
    return Facts(dict(sorted((await client.admin.runtime_info(address)).items())))


async def broker_config(client: Client, args: argparse.Namespace) -> Output:
    address = await _address(client, args.broker)
    changes = parse_pairs(args.set)
    if changes:
        await client.admin.update_broker_config(address, changes)
        _check_taken(changes, await client.admin.broker_config(address))
        return Done(f"broker {address} changed {', '.join(changes)}", changes)
    settings = await client.admin.broker_config(address)
    wanted = (args.get or "").lower()
    found = {key: value for key, value in sorted(settings.items()) if wanted in key.lower()}
    if not found:
        raise ClientError(f"no setting has {args.get!r} in its name{nearest(args.get, settings)}")
    return Facts(found)


def _check_taken(changes: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Brokers answer success to every change, also to those that they ignore."""
    for key, value in changes.items():
        if key.startswith(SYSTEM_PROPERTY_PREFIXES):
            continue  # these are not shown
        if key not in settings and value:
            raise ClientError(f"the broker has no setting {key!r}{nearest(key, settings)}")
        if not _same(settings.get(key, ""), value):
            raise ClientError(f"the broker did not take {value!r} for {key}; it is {settings.get(key)!r}")


def _same(one: str, other: str) -> bool:
    """Texts of one value: 'TRUE' is true, '007' is 7."""
    one, other = one.strip().lower(), other.strip().lower()
    return one == other or (one.isdecimal() and other.isdecimal() and int(one) == int(other))
