"""What ``cometmq pipe`` does: calls the pipelines, prints their progress and results, once or again and again."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.clock import now_ms
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cometmq.spark.pipes.archive_files import Manifest

EXIT_UNSOUND = 1
HOUR_MS = 3_600_000


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


def _session(args: argparse.Namespace) -> SparkSession:
    from cometmq.spark.sessions import session

    spark = session(f"cometmq pipe {args.what}", master=args.master)
    spark.sparkContext.setLogLevel("FATAL")  # we tell failures in a sentence, Spark in pages
    return spark


def _interval(args: argparse.Namespace) -> float | None:
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

    _stop_on_sigterm()
    return again_and_again(_interval(args), one)


def _stop_on_sigterm() -> None:
    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


# --- archive ---


def run_archive(args: argparse.Namespace) -> int:
    if not (args.topics or args.compact or args.verify):
        raise ConfigError("Say which topics to archive, or --compact or --verify for what is there.")
    if args.topics:
        _archive_topics(args)
    if args.compact and args.every is None:
        _compact(args.to)
    return _verify(args.to) if args.verify else 0


def _archive_topics(args: argparse.Namespace) -> None:
    every_s = _interval(args)
    spark = _session(args)
    from cometmq.spark.pipes import archive

    _stop_on_sigterm()
    lines = BatchLines(args.to if args.compact and every_s is not None else None)
    result = archive(
        spark,
        args.nameserver,
        args.topics,
        args.to,
        once=every_s is None,
        every=every_s or 0,
        decode=args.decode,
        schema=args.schema,
        format=args.format,
        options=source_options(args.option),
        on_batch=lines.batch,
        on_lag=lines.lag,
    )
    skipped = f", {result.skipped_batches} batches were there already" if result.skipped_batches else ""
    print(
        f"archived {result.rows} messages in {result.files} files, {result.size} bytes, to {args.to}{skipped}"
    )


class BatchLines:
    """A line for every batch; with ``compacted`` that archive is compacted whenever an hour is over."""

    def __init__(self, compacted: str | None) -> None:
        self._compacted = compacted
        self._hour = now_ms() // HOUR_MS

    def batch(self, manifest: Manifest) -> None:
        print(
            f"batch {manifest.batch_id}: {manifest.rows} messages, {manifest.size} bytes, "
            f"{len(manifest.files)} files",
            flush=True,
        )
        hour = now_ms() // HOUR_MS
        if self._compacted is not None and hour != self._hour:
            self._hour = hour
            _compact(self._compacted)

    def lag(self, messages: int) -> None:
        if messages:
            print(f"  {messages} messages not archived yet", flush=True)


def _compact(root: str) -> None:
    from cometmq.spark.pipes.archive_compact import compact_archive

    done = compact_archive(root)
    print(f"compacted {done.replaced} files to {done.merged}, {done.rows} messages", flush=True)


def _verify(root: str) -> int:
    from cometmq.spark.pipes.archive_proof import verify_archive

    problems = verify_archive(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{root} is whole: the offsets of every queue join")
    return EXIT_UNSOUND if problems else 0


# --- the others ---


def run_replay(args: argparse.Namespace) -> int:
    spark = _session(args)
    from cometmq.cli.pipe_progress import task_progress
    from cometmq.spark.pipes import replay
    from cometmq.spark.pipes.failures import plain_failures

    def show(plan: dict[str, Any]) -> None:
        for queue in plan["queues"]:
            print(f"{queue['topic']}/{queue['brokerName']}/{queue['queueId']}: {queue['count']} messages")
        sys.stdout.flush()

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
            options=source_options(args.option),
            on_plan=show,
        )
    print(f"{summary['messages']} messages {'would be ' if args.dry_run else ''}sent to {args.target}")
    return 0


def run_dlq(args: argparse.Namespace) -> int:
    if args.action == "export" and not args.to:
        raise ConfigError("An export needs --to DIR.")
    if args.every is not None and args.action != "analyse":
        raise ConfigError(f"Only analyse can be repeated; {args.action} once, or from cron.")
    spark = _session(args)
    work = {"analyse": _analyse, "export": _export, "redrive": _redrive}[args.action]
    return _repeat(args, spark, lambda: work(spark, args))


def _analyse(spark: SparkSession, args: argparse.Namespace) -> int:
    from cometmq.spark.pipes import analyse_dlq

    rows = analyse_dlq(spark, args.nameserver, args.group, source_options(args.option))
    for row in rows:
        print(
            f"{row['messages']:>8}  topic={row['originTopic']} tag={row['tags']} retries={row['reconsumeTimes']} "
            f"last={row['last']:%Y-%m-%d %H:%M:%S} key={row['exampleKeys']}"
        )
    print(f"{sum(row['messages'] for row in rows)} dead letters of group {args.group}", flush=True)
    return 0


def _export(spark: SparkSession, args: argparse.Namespace) -> int:
    from cometmq.spark.pipes import export_dlq

    options = source_options(args.option)
    count = export_dlq(spark, args.nameserver, args.group, args.to, where=args.where, options=options)
    print(f"{count} dead letters exported to {args.to}")
    return 0


def _redrive(spark: SparkSession, args: argparse.Namespace) -> int:
    from cometmq.spark.pipes import redrive_dlq

    options = source_options(args.option)
    result = redrive_dlq(
        spark, args.nameserver, args.group, where=args.where, rate=args.rate, options=options
    )
    for message_id, topic in result.delivered:
        print(f"{message_id} -> {topic}")
    print(f"{len(result.delivered)} dead letters sent back, all found in their topics")
    return 0


def run_audit(args: argparse.Namespace) -> int:
    spark = _session(args)
    return _repeat(args, spark, lambda: _audit(spark, args))


def _audit(spark: SparkSession, args: argparse.Namespace) -> int:
    from cometmq.spark.pipes import audit, report_html

    found = audit(spark, args.nameserver, args.topic, options=source_options(args.option))
    print(f"sent {found.sent}, stored {found.stored}, lost {found.lost}, stored twice {found.duplicates}")
    for group in found.groups:
        print(
            f"group {group.group}: consumed {group.consumed}, not consumed {group.unconsumed}, "
            f"failed deliveries {group.failed_deliveries}, latency ms 50/95/99%: {group.latency_ms}"
        )
    if args.report:
        _replace_text(Path(args.report), report_html(found))
        print(f"report in {args.report}")
    sys.stdout.flush()
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
    spark = _session(args)
    events = spark.read.format("rocketmq").options(**settings)
    print("  ".join(["start".ljust(19), *(f"{step:>10}" for step in args.steps)]))
    shown: dict[Any, tuple[int, ...]] = {}

    def count() -> int:
        from cometmq.spark.pipes import funnel

        rows = funnel(events.load(), args.steps, window=args.window).orderBy("start").collect()
        for row in rows:
            counts = tuple(row[step] for step in args.steps)
            if shown.get(row.start) != counts:
                shown[row.start] = counts
                print(
                    "  ".join([f"{row.start:%Y-%m-%d %H:%M:%S}", *(f"{n:>10}" for n in counts)]), flush=True
                )
        return 0

    return _repeat(args, spark, count)


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
