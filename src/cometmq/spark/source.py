"""The format ``rocketmq`` for Spark: reading and writing, batch and streaming. Found through pyspark_rocketmq."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from cometmq.errors import ConfigError
from cometmq.spark.columns import ALL, BASIC, struct_type
from cometmq.spark.options import ReadOptions, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cometmq.spark.batch_reader import BatchReader
    from cometmq.spark.stream_reader import StreamReader
    from cometmq.spark.writer import BatchWriter, StreamWriter


class RocketMQSource(DataSource):
    """One load or save. Options are checked when they are used, so that an error names the right side."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return struct_type(BASIC if self._read_options.metadata == "basic" else ALL)

    @property
    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options))

    @property
    def is_pushing_down(self) -> bool:
        return self._read_options.pushdown

    def reader(self, schema: StructType) -> BatchReader:
        from cometmq.spark.batch_reader import BatchReader, FilteringBatchReader

        options = self._read_options
        return FilteringBatchReader(schema, options) if options.pushdown else BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> StreamReader:
        from cometmq.spark.stream_reader import StreamReader

        return StreamReader(schema, self._read_options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from cometmq.spark.writer import BatchWriter

        if overwrite:
            raise ConfigError("A topic cannot be overwritten: use mode('append').")
        return BatchWriter(schema, WriteOptions.parse(dict(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from cometmq.spark.writer import StreamWriter

        if overwrite:
            raise ConfigError("A topic cannot be overwritten: use outputMode('append').")
        return StreamWriter(schema, WriteOptions.parse(dict(self.options)))
