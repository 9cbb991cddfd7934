"""The columns of both sources: names, types, and the subset a reader was asked for.

Names are camelCase, a superset of the old rocketmq-spark connector's. Numbers are those of arrow_columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.errors import ConfigError
from cometmq.properties_file import nearest
from cometmq.spark import arrow_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    name: str
    number: int
    sql_type: str
    nullable: bool


BASIC = (
    Column("topic", arrow_columns.TOPIC, "string", False),
    Column("brokerName", arrow_columns.BROKER_NAME, "string", False),
    Column("queueId", arrow_columns.QUEUE_ID, "int", False),
    Column("queueOffset", arrow_columns.QUEUE_OFFSET, "bigint", False),
    Column("tags", arrow_columns.TAGS, "string", True),
    Column("keys", arrow_columns.KEYS, "string", True),
    Column("body", arrow_columns.BODY, "binary", False),
    Column("properties", arrow_columns.PROPERTIES, "map<string,string>", False),
    Column("bornTimestamp", arrow_columns.BORN_TIMESTAMP, "timestamp", False),
    Column("storeTimestamp", arrow_columns.STORE_TIMESTAMP, "timestamp", False),
    Column("msgId", arrow_columns.MSG_ID, "string", True),
    Column("reconsumeTimes", arrow_columns.RECONSUME_TIMES, "int", False),
    Column("sysFlag", arrow_columns.SYS_FLAG, "int", False),
    Column("commitLogOffset", arrow_columns.COMMIT_LOG_OFFSET, "bigint", False),
)
EXTRA = (
    Column("flag", arrow_columns.FLAG, "int", False),
    Column("bornHost", arrow_columns.BORN_HOST, "string", False),
    Column("storeHost", arrow_columns.STORE_HOST, "string", False),
    Column("offsetMsgId", arrow_columns.OFFSET_MSG_ID, "string", False),
    Column("bodyCRC", arrow_columns.BODY_CRC, "int", False),
    Column("storeSize", arrow_columns.STORE_SIZE, "int", False),
    Column("preparedTransactionOffset", arrow_columns.PREPARED_TRANSACTION_OFFSET, "bigint", False),
)
ALL = BASIC + EXTRA
BY_NAME = {column.name: column for column in ALL}


def struct_type(columns: tuple[Column, ...]) -> StructType:
    """The Spark schema of some columns. Values of the map are never null."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "binary": types.BinaryType(),
        "boolean": types.BooleanType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType(), True),
    }
    return types.StructType(
        [types.StructField(column.name, kinds[column.sql_type], True) for column in columns]
    )


def chosen(schema: StructType, known: dict[str, Column] | None = None) -> list[Column]:
    """The columns of the schema a reader got: all of ours, or what the user named in ``.schema(...)``."""
    known = BY_NAME if known is None else known
    columns = []
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise ConfigError(
                f"The source has no column {field.name!r}{nearest(field.name, known)}; "
                f"its columns are {', '.join(known)}."
            )
        if field.dataType.simpleString() != column.sql_type:
            raise ConfigError(
                f"The column {column.name} is of type {column.sql_type}, not {field.dataType.simpleString()}; "
                "select it as it is and cast it afterwards."
            )
        columns.append(column)
    return columns


def arrow_schema(schema: StructType) -> pa.Schema:
    """The one Arrow schema that every batch must have: Spark checks only the first."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
