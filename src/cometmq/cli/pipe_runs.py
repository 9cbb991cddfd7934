"""What ``cometmq pipe`` does: calls the pipelines, prints their progress and results, once or again and again."""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.cli.pipe_archive import EXIT_UNSOUND, run_archive
from cometmq.cli.pipe_output import PipeOutput
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def source_options(texts: Sequence[str]) -> dict[str, str]:
    """
    >>> source_options(["tags=a || b"])
    {'tags': 'a || b'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"The option {text!r} has no value: write NAME=VALUE.")
        found[name] = value
    return found


def spark_session(args: argparse.Namespace) -> SparkSession:
    from cometmq.spark.options import ReadOptions
    from cometmq.spark.sessions import session

    # Spark would tell, too, but seconds later.
    ReadOptions.parse({"nameServer": args.nameserver, "subscribe": "any", **source_options(args.option)})
    spark = session(f"cometmq pipe {args.what}", master=args.master)
    spark.sparkContext.setLogLevel("FATAL")  # we tell failures in a sentence, Spark in pages
    return spark


def interval(args: argparse.Namespace) -> float | None:
    from cometmq.spark.pipes.intervals import seconds_of

    return None if args.every is None else seconds_of(args.every)


def _repeat(args: argparse.Namespace, spark: SparkSession, work: Callable[[], int]) -> int:
    """Once, or every so often until Ctrl-C or SIGTERM; Spark's errors as sentences."""
    from cometmq.cli.pipe_progress import task_progress
    from cometmq.spark.pipes.failures import plain_failures
    from cometmq.spark.pipes.intervals import again_and_again

    def one() -> int:
        with plain_failures(), task_progress(spark, args.what):
            return work()

    stop_on_sigterm()
    return again_and_again(interval(args), one)


def stop_on_sigterm() -> None:
    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def run_replay(args: argparse.Namespace) -> int:
    options = source_options(args.option)
    from cometmq.spark.pipes.replay import archived_files, check_times

    check_times(args.since, args.until)
    if args.archive:
        archived_files(Path(args.archive))
    spark = spark_session(args)
    from cometmq.cli.pipe_progress import task_progress
    from cometmq.spark.pipes import replay
    from cometmq.spark.pipes.failures import plain_failures

    out = PipeOutput(args.json)

    def show(plan: dict[str, Any]) -> None:
        for queue in plan["queues"]:
            out.line(f"{queue['topic']}/{queue['brokerName']}/{queue['queueId']}: {queue['count']} messages")

    with plain_failures(), task_progress(spark, args.what):
        summary = replay(
            spark,
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
            options=options,
            on_plan=show,
        )
    out.line(f"{summary['messages']} messages {'would be ' if args.dry_run else ''}sent to {args.target}")
    out.result({"to": args.target, **summary})
    return 0


def run_dlq(args: argparse.Namespace) -> int:
    if args.action == "export" and not args.to:
        raise ConfigError("An export needs --to DIR.")
    if args.every is not None and args.action != "analyse":
        raise ConfigError(f"Only analyse can be repeated; {args.action} once, or from cron.")
    work = {"analyse": _analyse, "export": _export, "redrive": _redrive}[args.action]
    options, out = source_options(args.option), PipeOutput(args.json)
    spark = spark_session(args)
    return _repeat(args, spark, lambda: work(spark, args, options, out))


def _analyse(spark: SparkSession, args: argparse.Namespace, options: dict[str, str], out: PipeOutput) -> int:
    from cometmq.spark.pipes import analyse_dlq

    rows = analyse_dlq(spark, args.nameserver, args.group, options)
    for row in rows:
        out.line(
            f"{row['messages']:>8}  topic={row['originTopic']} tag={row['tags']} retries={row['reconsumeTimes']} "
            f"last={row['last']:%Y-%m-%d %H:%M:%S} key={row['exampleKeys']}"
        )
    total = sum(row["messages"] for row in rows)
    out.line(f"{total} dead letters of group {args.group}")
    out.result({"group": args.group, "messages": total, "kinds": rows})
    return 0


def _export(spark: SparkSession, args: argparse.Namespace, options: dict[str, str], out: PipeOutput) -> int:
    from cometmq.spark.pipes import export_dlq

    count = export_dlq(spark, args.nameserver, args.group, args.to, where=args.where, options=options)
    out.line(f"{count} dead letters exported to {args.to}")
    out.result({"group": args.group, "messages": count, "to": args.to})
    return 0


def _redrive(spark: SparkSession, args: argparse.Namespace, options: dict[str, str], out: PipeOutput) -> int:
    from cometmq.spark.pipes import redrive_dlq

    result = redrive_dlq(
        spark, args.nameserver, args.group, where=args.where, rate=args.rate, options=options
    )
    for message_id, topic in result.delivered:
        out.line(f"{message_id} -> {topic}")
    out.line(f"{len(result.delivered)} dead letters sent back, all found in their topics")
    delivered = [{"id": message_id, "topic": topic} for message_id, topic in result.delivered]
    out.result({"group": args.group, "messages": len(delivered), "delivered": delivered})
    return 0


def run_audit(args: argparse.Namespace) -> int:
    options, out = source_options(args.option), PipeOutput(args.json)
    spark = spark_session(args)
    return _repeat(args, spark, lambda: _audit(spark, args, options, out))


def _audit(spark: SparkSession, args: argparse.Namespace, options: dict[str, str], out: PipeOutput) -> int:
    from cometmq.spark.pipes import audit, report_html

    found = audit(spark, args.nameserver, args.topic, options=options)
    out.line(f"sent {found.sent}, stored {found.stored}, lost {found.lost}, stored twice {found.duplicates}")
    for group in found.groups:
        out.line(
            f"group {group.group}: consumed {group.consumed}, not consumed {group.unconsumed}, "
            f"failed deliveries {group.failed_deliveries}, latency ms 50/95/99%: {group.latency_ms}"
        )
    if args.report:
        _replace_text(Path(args.report), report_html(found))
        out.line(f"report in {args.report}")
    out.result(asdict(found) | {"report": args.report})
    return EXIT_UNSOUND if found.lost else 0


def _replace_text(path: Path, text: str) -> None:
    """At once: whoever looks at the file sees the old or the new one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def run_funnel(args: argparse.Namespace) -> int:
    options = source_options(args.option)
    if args.since:
        options["startingTimestamp"] = args.since
    settings = {"nameServer": args.nameserver, "subscribe": args.topic, **options}
    spark = spark_session(args)
    windows = FunnelWindows(args, PipeOutput(args.json))

    def count() -> int:
        from cometmq.spark import load
        from cometmq.spark.pipes import funnel

        windows.show(
            funnel(load(spark, "rocketmq", **settings), args.steps, window=args.window)
            .orderBy("start")
            .collect()
        )
        return 0

    return _repeat(args, spark, count)


class FunnelWindows:
    """Tells the windows that are new or changed since they were told last."""

    def __init__(self, args: argparse.Namespace, out: PipeOutput) -> None:
        self._args = args
        self._out = out
        self._told: dict[Any, tuple[int, ...]] = {}

    def show(self, rows: list[Any]) -> None:
        if not self._told:
            self._out.line("  ".join(["start".ljust(19), *(f"{step:>10}" for step in self._args.steps)]))
        counted = {row.start: tuple(row[step] for step in self._args.steps) for row in rows}
        fresh = {start: counts for start, counts in counted.items() if self._told.get(start) != counts}
        self._told |= fresh
        for start, counts in fresh.items():
            self._out.line("  ".join([f"{start:%Y-%m-%d %H:%M:%S}", *(f"{count:>10}" for count in counts)]))
        windows = [
            {"start": start, "counts": dict(zip(self._args.steps, counts, strict=True))}
            for start, counts in fresh.items()
        ]
        self._out.result({"topic": self._args.topic, "window": self._args.window, "windows": windows})


def run_doctor(args: argparse.Namespace) -> int:
    from cometmq.spark.pipes.doctor import doctor

    findings = doctor(args.nameserver, source_options(args.option))
    if args.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.good else 'BAD '} {finding.what:<12} {finding.text}")
    return 0 if all(finding.good for finding in findings) else EXIT_UNSOUND


RUNS: dict[str, Callable[[argparse.Namespace], int]] = {
    "archive": run_archive,
    "replay": run_replay,
    "dlq": run_dlq,
    "audit": run_audit,
    "funnel": run_funnel,
    "doctor": run_doctor,
}
