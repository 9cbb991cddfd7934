"""Data pipelines on Spark: archive topics, replay messages, dead letters, audit, funnels, a check of the set-up.

Needs the extra cometmq[spark], except doctor, which tells what is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cometmq.spark.pipes.archive_files import Manifest

EXIT_UNSOUND = 1
NAME_SERVER_DEFAULT = "127.0.0.1:9876"


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(
        dest="what", required=True, metavar="archive|replay|dlq|audit|funnel|doctor"
    )
    _configure_archive(_command(commands, "archive", "topics to Parquet files, exactly once"))
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
    return command


def _configure_archive(command: argparse.ArgumentParser) -> None:
    command.add_argument("topics", nargs="+")
    command.add_argument("--to", required=True, metavar="DIR")
    often = command.add_mutually_exclusive_group()
    often.add_argument(
        "--once", action="store_true", help="what is there now, then stop (for cron; the default)"
    )
    often.add_argument("--every", metavar="TIME", help="go on for ever, a batch every '1 minute'")
    command.add_argument("--decode", choices=("raw", "json"), default="raw")
    command.add_argument("--schema", help="of JSON bodies, for example 'id bigint, name string'")
    command.add_argument(
        "--verify", action="store_true", help="afterwards prove that nothing is missing or double"
    )


def _configure_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("target", help="topic to send to")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR")
    source.add_argument("--topic")
    command.add_argument("--source-topic", help="only this topic of the archive")
    command.add_argument("--since", metavar="TIME")
    command.add_argument("--until", metavar="TIME")
    command.add_argument("--key")
    command.add_argument("--where", metavar="SQL")
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


def _configure_audit(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic")
    command.add_argument("--report", metavar="FILE", help="write the audit as one HTML file")


def _configure_funnel(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic")
    command.add_argument("steps", nargs="+")
    command.add_argument("--window", default="1 second")


def run(args: argparse.Namespace) -> int:
    runs = {
        "archive": run_archive,
        "replay": run_replay,
        "dlq": run_dlq,
        "audit": run_audit,
        "funnel": run_funnel,
        "doctor": run_doctor,
    }
    return runs[args.what](args)


def source_options(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"The option {text!r} has no value: write NAME=VALUE.")
        found[name] = value
    return found


def _session(args: argparse.Namespace) -> SparkSession:
    from cometmq.spark.sessions import session

    spark = session(f"cometmq pipe {args.what}", master=args.master)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_archive(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.archive import archive, verify_archive

    def show(manifest: Manifest) -> None:
        print(
            f"batch {manifest.batch_id}: {manifest.rows} messages, {manifest.size} bytes, {len(manifest.files)} files"
        )

    result = archive(
        _session(args),
        args.nameserver,
        args.topics,
        args.to,
        once=args.every is None,
        every=args.every or "1 minute",
        decode=args.decode,
        schema=args.schema,
        options=source_options(args.option),
        on_batch=show,
    )
    print(f"archived {result.rows} messages in {result.files} files, {result.size} bytes, to {args.to}")
    problems = verify_archive(args.to) if args.verify else []
    for problem in problems:
        print(problem, file=sys.stderr)
    return EXIT_UNSOUND if problems else 0


def run_replay(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.replay import replay

    summary = replay(
        _session(args),
        args.nameserver,
        args.target,
        from_archive=args.archive,
        from_topic=args.topic,
        source_topic=args.source_topic,
        since=args.since,
        until=args.until,
        key=args.key,
        where=args.where,
        rate=args.rate,
        dry_run=args.dry_run,
        options=source_options(args.option),
    )
    for queue in summary["queues"]:
        print(f"{queue['topic']}/{queue['brokerName']}/{queue['queueId']}: {queue['count']} messages")
    print(f"{summary['messages']} messages {'would be ' if args.dry_run else ''}sent to {args.target}")
    return 0


def run_dlq(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.dlq import analyse_dlq, export_dlq, redrive_dlq

    options = source_options(args.option)
    if args.action == "export" and not args.to:
        raise ConfigError("An export needs --to DIR.")
    spark = _session(args)
    if args.action == "analyse":
        for row in analyse_dlq(spark, args.nameserver, args.group, options):
            print(
                f"{row['messages']:>8}  topic={row['originTopic']} tag={row['tags']} retries={row['reconsumeTimes']} "
                f"last={row['last']:%Y-%m-%d %H:%M:%S} key={row['exampleKeys']}"
            )
    elif args.action == "export":
        count = export_dlq(spark, args.nameserver, args.group, args.to, where=args.where, options=options)
        print(f"{count} dead letters exported to {args.to}")
    else:
        result = redrive_dlq(
            spark, args.nameserver, args.group, where=args.where, rate=args.rate, options=options
        )
        for message_id, topic in result.delivered:
            print(f"{message_id} -> {topic}")
        print(f"{len(result.delivered)} dead letters sent back, all found in their topics")
    return 0


def run_audit(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.audit import audit
    from cometmq.spark.pipes.audit_report import report_html

    found = audit(_session(args), args.nameserver, args.topic, options=source_options(args.option))
    print(f"sent {found.sent}, stored {found.stored}, lost {found.lost}, stored twice {found.duplicates}")
    for group in found.groups:
        print(
            f"group {group.group}: consumed {group.consumed}, not consumed {group.unconsumed}, "
            f"failed deliveries {group.failed_deliveries}, latency ms 50/95/99%: {group.latency_ms}"
        )
    if args.report:
        Path(args.report).write_text(report_html(found), "utf-8")
        print(f"report in {args.report}")
    return EXIT_UNSOUND if found.lost else 0


def run_funnel(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.funnel import funnel

    settings = {"nameServer": args.nameserver, "subscribe": args.topic, **source_options(args.option)}
    events = _session(args).read.format("rocketmq").options(**settings).load()
    print("  ".join(["start".ljust(19), *(f"{step:>10}" for step in args.steps)]))
    for row in funnel(events, args.steps, window=args.window).orderBy("start").collect():
        print("  ".join([f"{row.start:%Y-%m-%d %H:%M:%S}", *(f"{row[step]:>10}" for step in args.steps)]))
    return 0


def run_doctor(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.doctor import doctor

    findings = doctor(args.nameserver, source_options(args.option))
    for finding in findings:
        print(f"{'ok  ' if finding.good else 'BAD '} {finding.what:<12} {finding.text}")
    return 0 if all(finding.good for finding in findings) else EXIT_UNSOUND
