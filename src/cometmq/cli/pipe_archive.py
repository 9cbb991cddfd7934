"""What ``cometmq pipe archive`` does: archives topics, compacts and verifies what is there."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cometmq.cli.pipe_output import PipeOutput
from cometmq.clock import now_ms
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from cometmq.spark.pipes.archive_files import Manifest

EXIT_UNSOUND = 1
HOUR_MS = 3_600_000


def run_archive(args: argparse.Namespace) -> int:
    if not (args.topics or args.compact or args.verify):
        raise ConfigError("Say which topics to archive, or --compact or --verify for what is there.")
    out = PipeOutput(args.json)
    found: dict[str, Any] = {"to": args.to}
    if args.topics:
        found |= _archive_topics(args, out)
    if args.compact and args.every is None:
        found["compacted"] = _compact(args.to, out)
    if args.verify:
        found["problems"] = _verify(args.to, out)
    out.result(found)
    return EXIT_UNSOUND if found.get("problems") else 0


def _archive_topics(args: argparse.Namespace, out: PipeOutput) -> dict[str, Any]:
    from cometmq.cli.pipe_runs import interval, source_options, spark_session, stop_on_sigterm

    every_s = interval(args)
    options = source_options(args.option)
    spark = spark_session(args)
    from cometmq.spark.pipes import archive

    stop_on_sigterm()
    lines = BatchLines(args.to, out, goes_on=every_s is not None, compacts=args.compact)
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
        options=options,
        on_batch=lines.batch,
        on_lag=lines.lag,
    )
    skipped = f", {result.skipped_batches} batches were there already" if result.skipped_batches else ""
    out.line(
        f"archived {result.rows} messages in {result.files} files, {result.size} bytes, to {args.to}{skipped}"
    )
    return {
        "messages": result.rows,
        "files": result.files,
        "bytes": result.size,
        "batches": result.batches,
        "skipped_batches": result.skipped_batches,
    }


class BatchLines:
    """A line for every batch. An archive that goes on tells every batch as a result, and is compacted each hour."""

    def __init__(self, root: str, out: PipeOutput, *, goes_on: bool, compacts: bool) -> None:
        self._root = root
        self._out = out
        self._goes_on = goes_on
        self._compacts = compacts
        self._hour = now_ms() // HOUR_MS

    def batch(self, manifest: Manifest) -> None:
        told = {"messages": manifest.rows, "bytes": manifest.size, "files": len(manifest.files)}
        counts = ", ".join(f"{count} {name}" for name, count in told.items())
        self._out.line(f"batch {manifest.batch_id}: {counts}")
        if self._goes_on:
            self._out.result({"batch": manifest.batch_id, **told})
            self._compact_hourly()

    def _compact_hourly(self) -> None:
        hour = now_ms() // HOUR_MS
        if self._compacts and hour != self._hour:
            self._hour = hour
            _compact(self._root, self._out)

    def lag(self, messages: int) -> None:
        if messages:
            self._out.line(f"  {messages} messages not archived yet")


def _compact(root: str, out: PipeOutput) -> dict[str, Any]:
    from cometmq.spark.pipes.archive_compact import compact_archive

    done = compact_archive(root)
    out.line(f"compacted {done.replaced} files to {done.merged}, {done.rows} messages")
    return asdict(done)


def _verify(root: str, out: PipeOutput) -> list[str]:
    from cometmq.spark.pipes.archive_proof import verify_archive

    problems = verify_archive(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        out.line(f"{root} is whole: the offsets of every queue join")
    return problems
