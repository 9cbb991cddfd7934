"""What Spark itself can do: rows without messages, files or network, one batch of a store scan again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

BATCH_ROWS = 1_700  # of 1 KiB: about as many as a batch of the connector has
TASKS = 4  # as the scan of such a store


def repeating(spark: Any, path: Path, count: int) -> Any:
    """A frame of ``count`` rows, read as ``cometmq.spark.load`` reads."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from cometmq.spark.loading import map_in_arrow

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = _batch(path)
        for number in (number for numbers_batch in numbers for number in numbers_batch.column(0).to_pylist()):
            left = count * (number + 1) // TASKS - count * number // TASKS
            while left > 0:
                yield batch.slice(0, min(left, batch.num_rows))
                left -= batch.num_rows

    return map_in_arrow(spark.range(0, TASKS, 1, TASKS), read, from_arrow_schema(_batch(path).schema))


def save_batch(frame: Any, path: Path) -> None:
    """The first rows of a scan, as one batch."""
    table = frame.limit(BATCH_ROWS).toArrow().combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _batch(path: Path) -> pa.RecordBatch:
    with pa.OSFile(str(path), "rb") as file:
        batch: pa.RecordBatch = pa.ipc.open_file(file).read_all().to_batches()[0]
    return batch
