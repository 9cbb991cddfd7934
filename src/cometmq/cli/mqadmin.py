"""The commands of RocketMQ 4.9's mqadmin in their own spelling, for people with scripts.

    cometmq mqadmin topicList -n 127.0.0.1:9876
    cometmq mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t orders -r 8 -w 8

``cometmq mqadmin`` lists the commands, ``cometmq mqadmin COMMAND -h`` its options. New scripts read better with
``cometmq topic``, ``cometmq group`` and so on, which also print JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from cometmq.cli import mqadmin_access, mqadmin_commands, mqadmin_messages, mqadmin_reports
from cometmq.cli.mqadmin_base import COMMANDS, REFUSED, Command
from cometmq.cli.parser import EXIT_USAGE, Parser

MODULES = (mqadmin_commands, mqadmin_reports, mqadmin_messages, mqadmin_access)  # each adds to COMMANDS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="?", metavar="COMMAND")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="OPTIONS")


def run(args: argparse.Namespace) -> int:
    if args.command in (None, "help"):
        sys.stdout.write(overview() + "\n")
        return 0
    if args.command in REFUSED:
        sys.stderr.write(f"mqadmin {args.command} is not here: {REFUSED[args.command]}\n")
        return EXIT_USAGE
    command = COMMANDS.get(args.command)
    if command is None:
        from cometmq.properties_file import nearest

        sys.stderr.write(
            f"mqadmin has no command {args.command!r}{nearest(args.command, COMMANDS)}; "
            "cometmq mqadmin lists those that exist\n"
        )
        return EXIT_USAGE
    options = parser_of(command).parse_args(args.rest)
    asyncio.run(_run(command, options))
    return 0


def overview() -> str:
    widest = max(map(len, COMMANDS))
    lines = [f"   {name:<{widest}}  {command.help}" for name, command in sorted(COMMANDS.items())]
    return "The most commonly used mqadmin commands are:\n" + "\n".join(lines)


def parser_of(command: Command) -> argparse.ArgumentParser:
    parser = Parser(prog=f"cometmq mqadmin {command.name}", description=command.help)
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="Name server address list")
    for option in command.options:
        names = (f"-{option.short}", f"--{option.long}")
        if option.flag:
            parser.add_argument(*names, action="store_true", help=option.help)
        else:
            parser.add_argument(*names, required=option.required, help=option.help)
    return parser


async def _run(command: Command, options: argparse.Namespace) -> None:
    from cometmq.cli.connect import SERVERS_DEFAULT
    from cometmq.client.client import Client
    from cometmq.client.settings import Settings

    settings = Settings.load(options.namesrvAddr)
    if not settings.name_servers:
        settings = settings.changed(name_servers=(SERVERS_DEFAULT,))
    async with Client(settings=settings) as client:
        for line in await command.function(client, options):
            sys.stdout.write(line + "\n")
