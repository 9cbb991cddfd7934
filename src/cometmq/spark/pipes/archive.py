"""Archive: topics to Parquet files or a Delta table, exactly once, by topic and day.

Theory of operation. A micro-batch is a fixed set of offset ranges. Its tasks write files into a staging directory under
names of their own; the driver then moves them to names made of broker, queue and offsets, and at last notes the batch:
in a manifest, or in the Delta table's log. A noted batch is skipped when Spark brings it again; one without is written
anew, and what an earlier attempt had moved is removed first. So every message is in exactly one file that counts.

A queue's messages of different days go to different files; offsets in names are those of the first message and after
the last one inside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.errors import ClientError, ConfigError
from cometmq.spark.loading import load
from cometmq.spark.pipes.archive_decode import check_decode, decoded
from cometmq.spark.pipes.archive_files import CHECKPOINT, Manifest, check_format, read_manifest
from cometmq.spark.pipes.archive_writer import ArchiveWriter
from cometmq.spark.pipes.failures import plain_failures
from cometmq.spark.pipes.intervals import seconds_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

ROWS_PER_BATCH_MAX = 1_000_000
LOOK_INTERVAL_S = 1
# Spark gives a Python process ten seconds to start, which a busy machine may miss; no option changes that.
STARTED_SLOWLY = "Python worker failed to connect back"
START_ATTEMPTS = 3
REMEDY = "What was archived stays; the next run continues there."


@dataclass(slots=True)
class ArchiveResult:
    """What one run wrote."""

    batches: int = 0
    rows: int = 0
    size: int = 0
    files: int = 0
    skipped_batches: int = 0

    def add(self, manifest: Manifest) -> None:
        self.batches += 1
        self.rows += manifest.rows
        self.size += manifest.size
        self.files += len(manifest.files)


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """What to archive, how and where to. ``every`` is None for what is there now."""

    name_server: str
    topics: Sequence[str]
    root: Path
    every_s: float | None
    decode: str
    schema: str | None
    format: str
    options: Mapping[str, str]

    def check(self) -> None:
        if self.format == "delta":
            from cometmq.spark.pipes.archive_delta import check_installed

            check_installed()
        check_format(self.root, self.format)
        check_decode(self.decode, self.schema, self.format, self.root)

    def source(self) -> dict[str, str]:
        return {
            "nameServer": self.name_server,
            "subscribe": ",".join(self.topics),
            "startingOffsets": "earliest",
            **self.options,
        }


def archive(
    spark: SparkSession,
    name_server: str,
    topics: Sequence[str],
    target: str | Path,
    *,
    once: bool = True,
    every: str | float = "1 minute",
    decode: str = "raw",
    schema: str | None = None,
    format: str = "parquet",
    options: Mapping[str, str] | None = None,
    on_batch: Callable[[Manifest], None] | None = None,
    on_lag: Callable[[int], None] | None = None,
) -> ArchiveResult:
    """Archive what is there (``once``) or go on for ever, a batch ``every`` so often. Runs continue one another.

    ``decode="json"`` adds a column ``value``, read from the body by ``schema``: a DDL text, ``@file``, or ``"sample"``.
    ``decode="variant"`` adds it without a schema. ``on_lag`` is told how many messages are not archived yet.
    """
    job = ArchiveJob(
        name_server=name_server,
        topics=topics,
        root=Path(target).absolute(),
        every_s=None if once else seconds_of(every),
        decode=decode,
        schema=schema,
        format=format,
        options=options or {},
    )
    job.check()
    result = ArchiveResult()
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            _run(spark, job, result, on_batch, on_lag)
            break
        except ClientError as error:
            if attempt == START_ATTEMPTS or STARTED_SLOWLY not in f"{error} {error.__cause__}":
                raise
            log.warning("attempt %d: %s", attempt, error)
    return result


def _run(
    spark: SparkSession,
    job: ArchiveJob,
    result: ArchiveResult,
    on_batch: Callable[[Manifest], None] | None,
    on_lag: Callable[[int], None] | None,
) -> None:
    with plain_failures(REMEDY):
        query = start_archive(spark, job, result, on_batch)
        try:
            _follow(query, on_lag)
        finally:
            query.stop()


def start_archive(
    spark: SparkSession, job: ArchiveJob, result: ArchiveResult, on_batch: Callable[[Manifest], None] | None
) -> StreamingQuery:
    spark.dataSource.register(ArchiveWriter)
    job.root.mkdir(parents=True, exist_ok=True)
    limited = {"maxOffsetsPerTrigger": str(ROWS_PER_BATCH_MAX), **job.source()}
    frame = spark.readStream.format("rocketmq").options(**limited).load()
    frame = decoded(
        spark,
        frame,
        job.decode,
        job.schema,
        job.root,
        lambda: load(spark, "rocketmq", **job.source()),
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        manifest = write_batch(batch, batch_id, job.root, _query_id(job.root), result, job.format)
        if manifest is not None and on_batch is not None:
            on_batch(manifest)

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(job.root / CHECKPOINT))
    trigger: dict[str, Any] = (
        {"availableNow": True} if job.every_s is None else {"processingTime": f"{job.every_s} seconds"}
    )
    return writer.trigger(**trigger).start()


def _follow(query: StreamingQuery, on_lag: Callable[[int], None] | None) -> None:
    """Wait for the end, and tell the lag of every batch that is done."""
    told = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(LOOK_INTERVAL_S))
        for progress in query.recentProgress if on_lag is not None else ():
            if progress.batchId > told and progress.numInputRows:
                told = progress.batchId
                assert on_lag is not None
                on_lag(lag_of(progress.sources[0].endOffset, progress.sources[0].latestOffset))


def lag_of(end: str | None, latest: str | None) -> int:
    """Messages between two offsets of our source as Spark shows them.

    >>> lag_of('{"t": {"b": {"0": 3}}}', '{"t": {"b": {"0": 5, "1": 7}}}')
    9
    """
    done, there = json.loads(end or "{}"), json.loads(latest or "{}")
    return sum(
        max(0, offset - done.get(topic, {}).get(broker, {}).get(queue_id, 0))
        for topic, brokers in there.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    )


def _query_id(root: Path) -> str:
    """The id of the checkpoint: another one means that batch numbers began anew."""
    return str(json.loads((root / CHECKPOINT / "metadata").read_text("utf-8"))["id"])


def write_batch(
    batch: DataFrame,
    batch_id: int,
    root: Path,
    query_id: str,
    result: ArchiveResult,
    format: str = "parquet",
) -> Manifest | None:
    """One micro-batch; None if it was there already."""
    if _is_done(root, batch_id, query_id, format):
        result.skipped_batches += 1
        return None
    options = {"path": str(root), "batchId": str(batch_id), "queryId": query_id, "format": format}
    batch.write.format(ArchiveWriter.name()).options(**options).mode("append").save()
    manifest = read_manifest(root, batch_id)
    assert manifest is not None
    result.add(manifest)
    return manifest


def _is_done(root: Path, batch_id: int, query_id: str, format: str) -> bool:
    if format == "delta":
        from cometmq.spark.pipes.archive_delta import is_committed

        return is_committed(root, batch_id, query_id)
    known = read_manifest(root, batch_id)
    if known is None:
        return False
    if known.query_id != query_id:
        raise ConfigError(
            f"The archive {root} has batch {batch_id} of another query: its checkpoint was removed. Archive to "
            "another directory, or bring the checkpoint back."
        )
    return True
