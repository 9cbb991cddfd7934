"""Archive: topics to Parquet files, exactly once, by topic and day.

Theory of operation. A micro-batch is a fixed set of offset ranges. Its tasks write files into a staging directory under
names of their own; the driver then moves them to names made of broker, queue and offsets, and at last writes the
manifest of the batch. A batch with a manifest is skipped when Spark brings it again; one without is written anew, and
what an earlier attempt had moved is removed first. So every message is in exactly one file that a manifest names.

A queue's messages of different days go to different files; offsets in names are those of the first message and after
the last one inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.errors import ConfigError
from cometmq.spark.pipes.archive_files import (
    CHECKPOINT,
    Manifest,
    read_manifest,
    verify_archive,
)
from cometmq.spark.pipes.archive_writer import ArchiveWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ArchiveResult", "archive", "verify_archive"]

ROWS_PER_BATCH_MAX = 1_000_000


@dataclass(slots=True)
class ArchiveResult:
    """What one run wrote."""

    batches: int = 0
    rows: int = 0
    size: int = 0
    files: int = 0
    skipped_batches: int = 0


def archive(
    spark: SparkSession,
    name_server: str,
    topics: Sequence[str],
    target: str | Path,
    *,
    once: bool = True,
    every: str = "1 minute",
    decode: str = "raw",
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    on_batch: Callable[[Manifest], None] | None = None,
) -> ArchiveResult:
    """Archive what is there (``once``) or go on for ever, a batch ``every`` so often. Runs continue one another.

    ``decode="json"`` adds a column ``value``, read from the body by ``schema`` (a DDL text).
    """
    if decode not in ("raw", "json"):
        raise ConfigError(f"decode is {decode!r}; it may be raw or json.")
    if decode == "json" and schema is None:
        raise ConfigError("decode=json needs a schema, for example 'id bigint, name string'.")
    result = ArchiveResult()
    query = start_archive(
        spark,
        name_server,
        topics,
        Path(target),
        result,
        once=once,
        every=every,
        schema=schema if decode == "json" else None,
        options=options or {},
        on_batch=on_batch,
    )
    query.awaitTermination()
    return result


def start_archive(
    spark: SparkSession,
    name_server: str,
    topics: Sequence[str],
    root: Path,
    result: ArchiveResult,
    *,
    once: bool,
    every: str,
    schema: str | None,
    options: Mapping[str, str],
    on_batch: Callable[[Manifest], None] | None,
) -> StreamingQuery:
    from pyspark.sql import functions

    settings = {
        "nameServer": name_server,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS_PER_BATCH_MAX),
        **options,
    }
    spark.dataSource.register(ArchiveWriter)
    frame = spark.readStream.format("rocketmq").options(**settings).load()
    if schema is not None:
        text = functions.col("body").cast("string")
        frame = frame.withColumn("value", functions.from_json(text, schema))
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        manifest = write_batch(batch, batch_id, root, _query_id(root), result)
        if manifest is not None and on_batch is not None:
            on_batch(manifest)

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(root / CHECKPOINT))
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()


def _query_id(root: Path) -> str:
    """The id of the checkpoint: another one means that batch numbers began anew."""
    return str(json.loads((root / CHECKPOINT / "metadata").read_text("utf-8"))["id"])


def write_batch(
    batch: DataFrame, batch_id: int, root: Path, query_id: str, result: ArchiveResult
) -> Manifest | None:
    """One micro-batch; None if it was there already."""
    known = read_manifest(root, batch_id)
    if known is not None:
        if known.query_id != query_id:
            raise ConfigError(
                f"The archive {root} has batch {batch_id} of another query: its checkpoint was removed. Archive to "
                "another directory, or bring the checkpoint back."
            )
        result.skipped_batches += 1
        return None
    options = {"path": str(root), "batchId": str(batch_id), "queryId": query_id}
    batch.write.format(ArchiveWriter.name()).options(**options).mode("append").save()
    manifest = read_manifest(root, batch_id)
    assert manifest is not None
    result.batches += 1
    result.rows += manifest.rows
    result.size += manifest.size
    result.files += len(manifest.files)
    return manifest
