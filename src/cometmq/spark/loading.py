"""``load``: the rows of our formats without the second copy that Spark makes of what a data source reads.

Spark copies each row of a Python data source twice, from Arrow to its own form and from that to the same form again;
what comes out of ``mapInArrow`` it copies once (docs/spark has the figures).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import CaseInsensitiveDict

from cometmq.errors import ConfigError
from cometmq.properties_file import nearest
from cometmq.spark.link import close_links
from cometmq.spark.source import RocketMQSource
from cometmq.spark.store_source import StoreSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    ReadBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SOURCES = {source.name(): source for source in (RocketMQSource, StoreSource)}


def load(
    spark: SparkSession,
    format: str,
    path: str | None = None,
    *,
    schema: StructType | str | None = None,
    **options: object,
) -> DataFrame:
    """The frame that ``spark.read.format(format).schema(schema).options(**options).load(path)`` gives, read faster.

    What to read is found out now, not with each query: a frame that is used twice gives the same rows twice. With
    ``pushdown=true`` it is that very frame, because the conditions of a query can narrow only that one.
    """
    if format not in SOURCES:
        raise ConfigError(
            f"There is no format {format!r}{nearest(format, SOURCES)}; load() reads {', '.join(SOURCES)}."
        )
    given = {name: _text(value) for name, value in options.items() if value is not None}
    if path is not None:
        given["path"] = path
    source = SOURCES[format](CaseInsensitiveDict(given))
    if isinstance(source, RocketMQSource) and source.is_pushing_down:
        reading = spark.read.format(format).options(**given)
        return (reading if schema is None else reading.schema(schema)).load()
    rows = source.schema() if schema is None else _struct(schema)
    reader = source.reader(rows)
    try:
        partitions = reader.partitions()
    finally:
        close_links()
    tasks = spark.range(0, len(partitions), 1, len(partitions))
    return map_in_arrow(tasks, _reading(reader, partitions), rows)


def _reading(reader: DataSourceReader, partitions: list[InputPartition]) -> ReadBatches:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.read(partitions[number])

    return read


def map_in_arrow(frame: DataFrame, read: ReadBatches, schema: StructType) -> DataFrame:
    """``mapInArrow``, which asks for pandas before it does the same. It has no use for it here."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    jframe: Any = getattr(frame, "_jdf", None)
    if jframe is None:  # Spark Connect, which needs pandas anyway
        return frame.mapInArrow(read, schema)
    function = UserDefinedFunction(read, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*(frame[name] for name in frame.columns))
    return DataFrame(jframe.mapInArrow(column._jc, False, None), frame.sparkSession)


def _struct(schema: StructType | str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(found, StructType)
    return found


def _text(value: object) -> str:
    """As Spark writes the values of options."""
    return str(value).lower() if isinstance(value, bool) else str(value)
