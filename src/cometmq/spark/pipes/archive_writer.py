"""Writes the files of one batch of an archive: a Spark sink of its own, because this needs no pandas.

Tasks write a file for each queue and day into the staging directory; ``commit`` moves them and makes them count.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from cometmq.spark.pipes.archive_files import STAGING, ArchiveFile, Manifest, publish

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COMPRESSION = "zstd"
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
Key = tuple[str, str, int, str]  # topic, broker, queue, day


class ArchiveWriter(DataSource):
    """The sink; options are path, batchId, queryId and format."""

    @classmethod
    def name(cls) -> str:
        return "cometmq-archive-files"

    def writer(self, schema: StructType, overwrite: bool) -> BatchFiles:
        options = self.options
        return BatchFiles(
            Path(options["path"]),
            int(options["batchId"]),
            options["queryId"],
            options["format"],
            schema.json(),
        )


@dataclass
class WrittenFiles(WriterCommitMessage):
    files: list[ArchiveFile]


class BatchFiles(DataSourceArrowWriter):
    def __init__(self, root: Path, batch_id: int, query_id: str, kind: str, schema_json: str) -> None:
        self._root = root
        self._batch_id = batch_id
        self._query_id = query_id
        self._format = kind
        self._metadata = {SPARK_SCHEMA: row_schema(schema_json)}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        staging = self._root / STAGING / str(self._batch_id)
        staging.mkdir(parents=True, exist_ok=True)
        open_files: dict[Key, OpenFile] = {}
        for batch in iterator:
            for key, rows in by_queue_and_day(batch):
                if key not in open_files:
                    open_files[key] = OpenFile(staging, key, rows.schema.with_metadata(self._metadata))
                open_files[key].write(rows)
        return WrittenFiles([file.close() for file in open_files.values()])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, WrittenFiles)]
        files = [file for message in written for file in message.files]
        manifest = Manifest(self._batch_id, self._query_id, files)
        if self._format == "delta":
            from cometmq.spark.pipes.archive_delta import commit_batch

            commit_batch(self._root, manifest)
        else:
            publish(self._root, manifest)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What is staged stays: the next attempt of the batch removes it."""


def row_schema(schema_json: str) -> str:
    """The schema of the files for Spark, which then knows a variant when it sees one: that of the rows without topic.

    >>> row_schema('{"type":"struct","fields":[{"name":"topic"},{"name":"value","type":"variant"}]}')
    '{"type": "struct", "fields": [{"name": "value", "type": "variant"}]}'
    """
    schema = json.loads(schema_json)
    return json.dumps({**schema, "fields": [field for field in schema["fields"] if field["name"] != "topic"]})


def by_queue_and_day(batch: pa.RecordBatch) -> Iterator[tuple[Key, pa.Table]]:
    """The rows of each queue and day (UTC), in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    day = pc.strftime(batch.column(batch.schema.get_field_index("storeTimestamp")), format="%Y-%m-%d")
    table = pa.Table.from_batches([batch]).append_column("date", day.cast(pa.string()))
    names = ["topic", "brokerName", "queueId", "date"]
    for entry in table.group_by(names).aggregate([]).to_pylist():
        mask = None
        for name in names:
            same = pc.equal(table.column(name), pa.scalar(entry[name], table.schema.field(name).type))
            mask = same if mask is None else pc.and_(mask, same)
        key = (entry["topic"], entry["brokerName"], entry["queueId"], entry["date"])
        yield key, table.filter(mask).drop_columns(["topic", "date"])


class OpenFile:
    """A file that is being written, under a name of its own."""

    def __init__(self, staging: Path, key: Key, schema: pa.Schema) -> None:
        import pyarrow.parquet as parquet

        self._key = key
        self._path = staging / f"{uuid.uuid4().hex}.parquet"
        self._writer = parquet.ParquetWriter(str(self._path), schema, compression=COMPRESSION)
        self._start: int | None = None
        self._end = 0
        self._rows = 0
        self._times_ms: list[int] = []

    def write(self, rows: pa.Table) -> None:
        offsets = rows.column("queueOffset")
        self._start = offsets[0].as_py() if self._start is None else self._start
        self._end = offsets[-1].as_py() + 1
        self._rows += rows.num_rows
        self._times_ms += span_ms(rows.column("storeTimestamp"))
        self._writer.write_table(with_filled_variants(rows))

    def close(self) -> ArchiveFile:
        self._writer.close()
        with self._path.open("rb") as written:
            os.fsync(written.fileno())
        topic, broker, queue_id, date = self._key
        return ArchiveFile(
            topic=topic,
            date=date,
            broker=broker,
            queue_id=queue_id,
            start=self._start or 0,
            end=self._end,
            rows=self._rows,
            size=self._path.stat().st_size,
            staged=str(self._path),
            first_ms=min(self._times_ms),
            last_ms=max(self._times_ms),
        )


def with_filled_variants(rows: pa.Table) -> pa.Table:
    """A variant is a struct of two parts that may not be null; where there is none, Spark sends nulls all the same."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for number, field in enumerate(rows.schema):
        if not pa.types.is_struct(field.type) or any(part.nullable for part in field.type):
            continue
        column = rows.column(number).combine_chunks()
        parts = [pc.fill_null(column.field(part.name), b"") for part in field.type]
        filled = pa.StructArray.from_arrays(parts, fields=list(field.type), mask=pc.is_null(column))
        rows = rows.set_column(number, field, filled)
    return rows


def span_ms(times: pa.ChunkedArray) -> tuple[int, int]:
    """The first and the last of some timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.min_max(times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()))
    return found["min"].as_py(), found["max"].as_py()
