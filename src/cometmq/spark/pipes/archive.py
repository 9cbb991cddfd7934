"""Archive: topics to Parquet files, exactly once, by topic and day.

Theory of operation. A micro-batch is a fixed set of offset ranges. Its tasks write files into a staging directory under
names of their own; the driver then moves them to names made of broker, queue and offsets, and at last writes the
manifest of the batch. A batch with a manifest is skipped when Spark brings it again; one without is written anew, and
what an earlier attempt had moved is removed first. So every message is in exactly one file that a manifest names.

A queue's messages of different days go to different files; offsets in names are those of the first message and after
the last one inside.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.errors import ConfigError
from cometmq.spark.pipes.archive_files import (
    CHECKPOINT,
    STAGING,
    ArchiveFile,
    Manifest,
    publish,
    read_manifest,
    verify_archive,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["ArchiveResult", "archive", "verify_archive"]

ROWS_PER_BATCH_MAX = 1_000_000
COMPRESSION = "zstd"
FILE_SCHEMA = (
    "topic string, date string, broker string, queue_id int, start bigint, end bigint, rows bigint, size bigint, "
    "staged string"
)


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
    frame = spark.readStream.format("rocketmq").options(**settings).load()
    if schema is not None:
        text = functions.col("body").cast("string")
        frame = frame.withColumn("value", functions.from_json(text, schema))
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        manifest = write_batch(batch, batch_id, root, _query_id(spark), result)
        if manifest is not None and on_batch is not None:
            on_batch(manifest)

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(root / CHECKPOINT))
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()


def _query_id(spark: SparkSession) -> str:
    return str(spark.sparkContext.getLocalProperty("sql.streaming.queryId") or "")


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
    staging = root / STAGING / str(batch_id)
    staging.mkdir(parents=True, exist_ok=True)
    rows = batch.mapInArrow(_FileWriter(str(staging)), FILE_SCHEMA).collect()
    manifest = Manifest(batch_id, query_id, [ArchiveFile(**row.asDict()) for row in rows])
    publish(root, manifest)
    result.batches += 1
    result.rows += manifest.rows
    result.size += manifest.size
    result.files += len(manifest.files)
    return manifest


class _FileWriter:
    """Writes the rows of one task: a file for each queue and day. Runs in Spark's workers."""

    def __init__(self, staging: str) -> None:
        self._staging = staging

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        open_files: dict[tuple[str, str, int, str], _OpenFile] = {}
        for batch in batches:
            for key, rows in _by_queue_and_day(batch):
                if key not in open_files:
                    open_files[key] = _OpenFile(self._staging, key, rows.schema)
                open_files[key].write(rows)
        closed = [file.close() for file in open_files.values()]
        if closed:
            columns = {name: [row[name] for row in closed] for name in closed[0]}
            types = {"queue_id": pa.int32(), **dict.fromkeys(("start", "end", "rows", "size"), pa.int64())}
            arrays = [pa.array(values, types.get(name, pa.string())) for name, values in columns.items()]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _by_queue_and_day(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str, int, str], pa.Table]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    day = pc.strftime(batch.column("storeTimestamp"), format="%Y-%m-%d").cast(pa.string())
    table = pa.Table.from_batches([batch]).append_column("date", day)
    names = ["topic", "brokerName", "queueId", "date"]
    for entry in table.group_by(names).aggregate([]).to_pylist():
        mask = None
        for name in names:
            same = pc.equal(table.column(name), entry[name])
            mask = same if mask is None else pc.and_(mask, same)
        key = (entry["topic"], entry["brokerName"], entry["queueId"], entry["date"])
        yield key, table.filter(mask).drop_columns(["topic", "date"])


class _OpenFile:
    def __init__(self, staging: str, key: tuple[str, str, int, str], schema: pa.Schema) -> None:
        import pyarrow.parquet as parquet

        self._key = key
        self._path = f"{staging}/{uuid.uuid4().hex}.parquet"
        self._writer = parquet.ParquetWriter(self._path, schema, compression=COMPRESSION)
        self._start: int | None = None
        self._end = 0
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        offsets = rows.column("queueOffset")
        self._start = offsets[0].as_py() if self._start is None else self._start
        self._end = offsets[-1].as_py() + 1
        self._rows += rows.num_rows
        self._writer.write_table(rows)

    def close(self) -> dict[str, Any]:
        self._writer.close()
        topic, broker, queue_id, date = self._key
        return {
            "topic": topic,
            "date": date,
            "broker": broker,
            "queue_id": queue_id,
            "start": self._start,
            "end": self._end,
            "rows": self._rows,
            "size": Path(self._path).stat().st_size,
            "staged": self._path,
        }
