"""What Spark itself can do: a source without messages, files or network that repeats one batch of a store scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

BATCH_ROWS = 1_700  # of 1 KiB: about as many as a batch of the connector has
PARTITIONS = 6  # as the scan of such a store


class Repeating(DataSource):
    """Options: ``path`` of an Arrow file with one batch, ``count`` of rows."""

    @classmethod
    def name(cls) -> str:
        return "one-batch-repeated"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(_batch(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return RepeatingReader(self.options["path"], int(self.options["count"]))


class RepeatingReader(DataSourceReader):
    def __init__(self, path: str, count: int) -> None:
        self.path = path
        self.count = count

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = _batch(self.path)
        left = self.count * (partition.value + 1) // PARTITIONS - self.count * partition.value // PARTITIONS
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def save_batch(frame: Any, path: Path) -> None:
    """The first rows of a scan, as one batch."""
    table = frame.limit(BATCH_ROWS).toArrow().combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _batch(path: str) -> pa.RecordBatch:
    with pa.OSFile(path, "rb") as file:
        batch: pa.RecordBatch = pa.ipc.open_file(file).read_all().to_batches()[0]
    return batch
