"""Arrow batches of the buffers that arrow_cy gives. Runs in Spark's workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cometmq.spark.arrow_cy import decode_columns
from cometmq.spark.columns import Column
from cometmq.spark.options import ReadOptions, tag_set
from cometmq.spark.pulls import DataLoss, Piece

log = logging.getLogger(__name__)

BATCH_SIZE = 1 << 20  # bytes of stored messages: where Arrow to the JVM costs least a row
BATCH_ROWS = 8192

STRING = pa.string()

Parts = tuple[Any, ...]


class BatchMaker:
    """Makes batches of exactly one schema, of buffers that are used as they are, not copied.

    What Arrow knows of the types is asked once: to ask costs as much as to make the arrays.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._kinds = [field.type for field in schema]
        self._entry_kinds = [_entry_kind(kind) if pa.types.is_map(kind) else None for kind in self._kinds]

    def batch(self, rows: int, columns: list[Parts]) -> pa.RecordBatch:
        arrays = [
            _array(rows, parts, kind) if entry_kind is None else _map_array(rows, parts, kind, entry_kind)
            for parts, kind, entry_kind in zip(columns, self._kinds, self._entry_kinds, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _entry_kind(kind: pa.MapType) -> pa.StructType:
    return pa.struct([pa.field("key", kind.key_type, nullable=False), kind.item_field])


def _array(rows: int, parts: Parts, kind: pa.DataType) -> pa.Array:
    if len(parts) == 1:
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(parts[0])], 0)
    nulls, validity, offsets, data = parts
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(offsets),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _map_array(rows: int, parts: Parts, kind: pa.MapType, entry_kind: pa.StructType) -> pa.Array:
    """Of maps from strings to strings, the only ones there are."""
    entries, offsets, key_offsets, keys, value_offsets, values = parts
    pair = [
        _array(entries, (0, None, key_offsets, keys), STRING),
        _array(entries, (0, None, value_offsets, values), STRING),
    ]
    pairs = pa.Array.from_buffers(entry_kind, entries, [None], 0, children=pair)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets)], 0, children=[pairs])


def batches_of(
    pieces: Iterable[Piece], columns: list[Column], schema: pa.Schema, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Batches of about BATCH_SIZE bytes or BATCH_ROWS rows. A range without a filter must have no holes."""
    tags = None if options.sql92 is not None else tag_set(options.tags)
    numbers = [column.number for column in columns]
    maker = BatchMaker(schema)
    for group in _grouped(pieces):
        rows, parts = decode_columns(
            [(piece.body, piece.start, piece.end) for piece in group],
            numbers,
            broker_name=group[0].queue.broker_name,
            inflate=options.decompress,
            tags=tags,
        )
        wanted = sum(piece.end - piece.start for piece in group)
        if rows != wanted and not options.is_filtered:
            _check_holes(group, wanted - rows, options)
        if rows:
            yield maker.batch(rows, parts)


def _grouped(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Neighbours of the same broker until the batch is large enough."""
    group: list[Piece] = []
    size = rows = 0
    for piece in pieces:
        if group and piece.queue.broker_name != group[0].queue.broker_name:
            yield group
            group, size, rows = [], 0, 0
        group.append(piece)
        size += len(piece.body)
        rows += piece.end - piece.start
        if size >= BATCH_SIZE or rows >= BATCH_ROWS:
            yield group
            group, size, rows = [], 0, 0
    if group:
        yield group


def _check_holes(group: list[Piece], missing: int, options: ReadOptions) -> None:
    ranges = ", ".join(sorted({f"{piece.queue} [{piece.start}, {piece.end})" for piece in group})[:4])
    sentence = f"{missing} messages are missing within {ranges}: the queue has holes."
    if options.fail_on_data_loss:
        raise DataLoss(f"{sentence} Set failOnDataLoss=false to go on without them.")
    log.warning("%s", sentence)
