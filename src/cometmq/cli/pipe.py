"""Data pipelines on Spark: archive topics, replay messages, dead letters, audit, funnels, a check of the set-up.

Needs the extra cometmq[spark], except doctor, which tells what is missing.
"""

from __future__ import annotations

import argparse

NAME_SERVER_DEFAULT = "127.0.0.1:9876"


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(
        dest="what", required=True, metavar="archive|replay|dlq|audit|funnel|doctor"
    )
    _configure_archive(
        _command(commands, "archive", "topics to Parquet files or a Delta table, exactly once")
    )
    _configure_replay(_command(commands, "replay", "send messages of an archive or a topic again"))
    _configure_dlq(_command(commands, "dlq", "analyse, export or send back the dead letters of a group"))
    _configure_audit(
        _command(commands, "audit", "sent against stored against consumed, from the trace topic")
    )
    _configure_funnel(
        _command(commands, "funnel", "users per step and second (tags are steps, keys are users)")
    )
    _command(commands, "doctor", "check Java, Python, packages, the NameServer and options")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("-n", "--nameserver", default=NAME_SERVER_DEFAULT, help="host:port;host:port")
    command.add_argument(
        "-o", "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source"
    )
    command.add_argument("--master", help="Spark master (local[*])")
    command.add_argument(
        "--json", action="store_true", help="the result as JSON on stdout, all else on stderr"
    )
    return command


def _add_often(command: argparse.ArgumentParser, what: str) -> None:
    often = command.add_mutually_exclusive_group()
    often.add_argument(
        "--once", action="store_true", help="what is there now, then stop (for cron; the default)"
    )
    often.add_argument("--every", metavar="SECONDS", help=f"{what}, until Ctrl-C (30, 30s, 5m, 1h)")


def _configure_archive(command: argparse.ArgumentParser) -> None:
    command.add_argument("topics", nargs="*", help="none: only --compact or --verify what is there")
    command.add_argument(
        "--to", required=True, metavar="DIR", help="the archive; a run continues the last one"
    )
    _add_often(command, "a batch so often")
    command.add_argument(
        "--format", choices=("parquet", "delta"), default="parquet", help="delta needs cometmq[delta]"
    )
    command.add_argument(
        "--decode",
        choices=("raw", "json", "variant"),
        default="raw",
        help="add a column value, read from JSON bodies: by a schema, or of any shape",
    )
    command.add_argument(
        "--schema", help="of json: 'id bigint, name string', @FILE, or 'sample' (of the first messages)"
    )
    command.add_argument(
        "--compact", action="store_true", help="then merge the small files of hours that are over"
    )
    command.add_argument(
        "--verify", action="store_true", help="afterwards prove that nothing is missing or double"
    )


def _configure_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("target", help="topic to send to")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR", help="what cometmq pipe archive wrote there")
    source.add_argument("--topic", help="what this topic still has")
    command.add_argument("--source-topic", help="only this topic of the archive")
    command.add_argument(
        "--since", metavar="TIME", help="only what was stored since (ISO 8601 in UTC, or ms)"
    )
    command.add_argument("--until", metavar="TIME", help="only what was stored before")
    command.add_argument("--key", help="only messages with this key")
    command.add_argument(
        "--where", metavar="SQL", help="only rows that fulfil it, for example \"tags = 'a'\""
    )
    command.add_argument("--rate", type=float, help="messages a second")
    command.add_argument("--dry-run", action="store_true", help="only count")


def _configure_dlq(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("analyse", "export", "redrive"))
    command.add_argument("group")
    command.add_argument(
        "--where", metavar="SQL", help="choose, for example \"originTopic = 'orders' and tags = 'a'\""
    )
    command.add_argument("--to", metavar="DIR", help="where to export to")
    command.add_argument("--rate", type=float, help="messages a second")
    _add_often(command, "analyse again so often")


def _configure_audit(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic")
    command.add_argument("--report", metavar="FILE", help="write the audit as one HTML file")
    _add_often(command, "audit again so often and replace the report")


def _configure_funnel(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic")
    command.add_argument("steps", nargs="+", help="tags, in their order")
    command.add_argument("--window", default="1 second", help="for example '1 minute' (1 second)")
    command.add_argument(
        "--since", metavar="TIME", help="only what was stored since (ISO 8601 in UTC, or ms)"
    )
    _add_often(command, "count again so often and print what changed")


def run(args: argparse.Namespace) -> int:
    from cometmq.cli.pipe_runs import RUNS

    return RUNS[args.what](args)
