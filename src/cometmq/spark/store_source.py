"""The format ``rocketmq-store``: a parallel scan of store directories, stopped, copied or live.

Every record is a row with ``valid`` true. Places that are no good record (magic, lengths, position, CRC) are rows with
``valid`` false, their beginning in ``commitLogOffset`` and what is wrong in ``problem``; all else is null there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cometmq.spark.arrow_cy import decode_columns
from cometmq.spark.columns import ALL, BASIC, Column, arrow_schema, chosen, struct_type
from cometmq.spark.options import StoreOptions
from cometmq.spark.worker_garbage import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cometmq.spark.batches import BatchMaker
    from cometmq.spark.store_slices import LogPart, LogSlice
    from cometmq.store.read_only import Segment

# Bytes of records, checked and decoded at once. Found by trying: half of it costs more for each batch, 2 MiB cost up to
# a tenth more CPU (docs/spark).
BATCH_SIZE = 896 << 10
EVERY_OFFSET = (-(1 << 62), 1 << 62)
GONE_REASON = "the file was deleted after the scan was planned"
VALID, PROBLEM = -1, -2  # column numbers that are no part of a record
VERDICTS = (
    Column("valid", VALID, "boolean", False),
    Column("problem", PROBLEM, "string", True),
)
KNOWN = {column.name: column for column in (*ALL, *VERDICTS)}


class StoreSource(DataSource):
    """One load of a store directory."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    @property
    def _store_options(self) -> StoreOptions:
        return StoreOptions.parse(dict(self.options))

    def schema(self) -> StructType:
        return struct_type((*(BASIC if self._store_options.metadata == "basic" else ALL), *VERDICTS))

    def reader(self, schema: StructType) -> StoreReader:
        return StoreReader(schema, self._store_options)


class SlicePartition(InputPartition):
    def __init__(self, parts: LogSlice) -> None:
        super().__init__(parts)
        self.parts = parts


class StoreReader(DataSourceReader):
    def __init__(self, schema: StructType, options: StoreOptions) -> None:
        self._schema = schema
        self._options = options
        chosen(schema, KNOWN)

    def partitions(self) -> list[InputPartition]:
        from cometmq.spark.store_slices import (
            slices_of,
        )  # the store's code: every process of Spark imports this file

        options = self._options
        log_dir = None if options.commit_log_path is None else Path(options.commit_log_path)
        found = slices_of(Path(options.path), log_dir, options.subscribe, options.slice_bytes)
        # A task without a slice: Spark insists on one partition.
        return [SlicePartition(parts) for parts in found] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        if not isinstance(partition, SlicePartition):
            return iter(())
        return scan_slice(
            partition.parts, chosen(self._schema, KNOWN), arrow_schema(self._schema), self._options
        )


def scan_slice(
    parts: LogSlice, columns: list[Column], schema: pa.Schema, options: StoreOptions
) -> Iterator[pa.RecordBatch]:
    from cometmq.spark.batches import BatchMaker

    maker = BatchMaker(schema)
    for part in parts:
        yield from _scan_part(part, columns, maker, options)


def _scan_part(
    part: LogPart, columns: list[Column], maker: BatchMaker, options: StoreOptions
) -> Iterator[pa.RecordBatch]:
    from cometmq.store.log_walk import walk_segment

    walk = walk_segment(
        part.segment, part.start, part.end, check_crc=options.check_crc, chunk_size=BATCH_SIZE
    )
    topics = frozenset(topic.encode() for topic in options.subscribe) or None
    found = None
    for found in walk:
        if found.start >= part.end:
            return
        end = min(found.end, part.end)
        if found.reason:
            yield _bad_batch(part.segment, found.start, end, found.reason, columns, maker.schema)
            continue
        batch = _good_batch(found.view[found.start : end], columns, maker, options, topics)
        if batch.num_rows:
            yield batch
    if found is None and not part.segment.path.exists():  # retention of a running broker
        yield _bad_batch(part.segment, part.start, part.end, GONE_REASON, columns, maker.schema)


def _good_batch(
    records: memoryview,
    columns: list[Column],
    maker: BatchMaker,
    options: StoreOptions,
    topics: frozenset[bytes] | None,
) -> pa.RecordBatch:
    rows, parts = decode_columns(
        [(records, *EVERY_OFFSET)],
        [column.number for column in columns if column.number >= 0],
        broker_name=options.broker_name,
        inflate=options.decompress,
        topics=topics,
    )
    return maker.batch(rows, _with_verdicts(parts, columns, rows))


def _with_verdicts(parts: list[tuple[Any, ...]], columns: list[Column], rows: int) -> list[tuple[Any, ...]]:
    """Put in what is not stored: valid is true everywhere, problem is null everywhere."""
    stored = iter(parts)
    bitmap = (rows + 7) // 8
    verdicts: dict[int, tuple[Any, ...]] = {
        VALID: (b"\xff" * bitmap,),
        PROBLEM: (rows, bytes(bitmap), bytes(4 * (rows + 1)), b""),
    }
    return [verdicts[column.number] if column.number < 0 else next(stored) for column in columns]


def _bad_batch(
    segment: Segment, start: int, end: int, reason: str, columns: list[Column], schema: pa.Schema
) -> pa.RecordBatch:
    import pyarrow as pa

    values = {
        "valid": False,
        "problem": f"{reason} ({end - start} bytes of {segment.path.name})",
        "commitLogOffset": segment.start + start,
    }
    arrays = [
        pa.array([values.get(column.name)], field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
