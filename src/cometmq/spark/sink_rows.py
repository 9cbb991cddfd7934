"""Rows that are to be sent: which columns mean what, and the message of each row. Runs in Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.errors import ConfigError, MessageInvalid
from cometmq.properties_file import nearest
from cometmq.protocol.limits import PROPERTIES_SIZE_MAX
from cometmq.protocol.properties import (
    KEYS_SEPARATOR,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from cometmq.spark.columns import BY_NAME
from cometmq.spark.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TYPES = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "shardingKey": ("string",),
    "queueId": ("int", "bigint"),
    "delayLevel": ("int", "bigint"),
    "flag": ("int", "bigint"),
    "msgId": ("string",),
}
COORDINATES = ("topic", "brokerName", "queueId", "queueOffset")
FLAG_LIMIT = 1 << 31
SHARDING_PROPERTY = "SHARDING_KEY"
# Properties that belong to the first life of a message: the broker or the sink sets them anew.
FORMER = frozenset(
    (
        "UNIQ_KEY",
        "DELAY",
        "WAIT",
        "REAL_TOPIC",
        "REAL_QID",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
        "TRAN_MSG",
        "PGROUP",
    )
)


@dataclass(slots=True)
class OutgoingMessage:
    topic: str
    body: bytes
    properties: bytes
    flag: int
    message_id: str
    queue_id: int | None
    sharding_key: str | None
    is_delayed: bool


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Raise ConfigError for a column that is missing, unknown or of the wrong type."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    known = {**TYPES, **dict.fromkeys(BY_NAME, ()), options.id_column or "body": ()}
    for name, kind in kinds.items():
        if name not in known:
            raise ConfigError(
                f"The sink knows no column {name!r}{nearest(name, TYPES)}; its columns are {', '.join(TYPES)}. "
                "Put other values into properties, or drop them."
            )
        if name in TYPES and kind not in TYPES[name]:
            raise ConfigError(
                f"The column {name} is of type {kind}; the sink takes {' or '.join(TYPES[name])}."
            )
    if "body" not in kinds:
        raise ConfigError("The sink needs a column body (binary or string).")
    if "topic" not in kinds and options.topic is None:
        raise ConfigError("The sink needs a column topic or the option topic.")
    if options.id_column is not None and options.id_column not in kinds:
        raise ConfigError(f"The option idColumn names {options.id_column!r}, which is no column of the data.")
    if options.delivery == "exactlyOnce" and not has_repeatable_ids(set(kinds), options):
        raise ConfigError(
            "delivery=exactlyOnce needs ids that are the same in every attempt: set idColumn, or keep the columns "
            f"{', '.join(COORDINATES)} of the source."
        )


def has_repeatable_ids(names: set[str], options: WriteOptions) -> bool:
    return options.id_column is not None or names.issuperset(COORDINATES)


class RowReader:
    """Messages of batches of rows. ``prefix`` makes the ids of rows that have none of their own."""

    def __init__(self, options: WriteOptions, prefix: str) -> None:
        self._options = options
        self._prefix = prefix
        self._row = 0

    def messages(self, batch: pa.RecordBatch) -> Iterator[OutgoingMessage]:
        names = batch.schema.names
        values = [column.to_pylist() for column in batch.columns]
        for row in zip(*values, strict=True):
            yield self._message(dict(zip(names, row, strict=True)))
            self._row += 1

    def _message(self, row: dict[str, Any]) -> OutgoingMessage:
        topic = self._options.topic or row.get("topic")
        body = row["body"]
        if not topic:
            raise MessageInvalid("A row has no topic: fill the column topic, or set the option topic.")
        if body is None:
            raise MessageInvalid(f"A row for {topic} has no body.")
        message_id = self._id_of(row)
        delay = row.get("delayLevel") or 0
        properties = {k: v for k, v in row.get("properties") or () if v and k not in FORMER}
        properties |= _own_properties(row, message_id, delay)
        encoded = encode_properties(properties).encode()
        if len(encoded) > PROPERTIES_SIZE_MAX:
            raise MessageInvalid(
                f"A row for {topic} has {len(encoded)} bytes of properties, tags and keys together; brokers take "
                f"{PROPERTIES_SIZE_MAX}."
            )
        flag = row.get("flag") or 0
        if not -FLAG_LIMIT <= flag < FLAG_LIMIT:
            raise MessageInvalid(f"A row for {topic} has the flag {flag}; a flag has 32 bits.")
        return OutgoingMessage(
            topic=topic,
            body=body.encode() if isinstance(body, str) else bytes(body),
            properties=encoded,
            flag=flag,
            message_id=message_id,
            queue_id=row.get("queueId"),
            sharding_key=row.get("shardingKey"),
            is_delayed=delay > 0,
        )

    def _id_of(self, row: dict[str, Any]) -> str:
        if self._options.id_column is not None:
            found = row[self._options.id_column]
            if found is None:
                raise MessageInvalid(f"A row has no id in the column {self._options.id_column}.")
            return str(found)
        if all(row.get(name) is not None for name in COORDINATES):
            return ":".join(str(row[name]) for name in COORDINATES)
        return str(row.get("msgId") or f"{self._prefix}-{self._row}")


def _own_properties(row: dict[str, Any], message_id: str, delay: int) -> dict[str, str]:
    keys = row.get("keys")
    own = {
        PROPERTY_TAGS: row.get("tags"),
        PROPERTY_KEYS: keys if isinstance(keys, str) or keys is None else _joined(keys),
        PROPERTY_UNIQ_KEY: message_id,
        PROPERTY_DELAY: str(delay) if delay else None,
        SHARDING_PROPERTY: row.get("shardingKey"),
    }
    return {name: value for name, value in own.items() if value}


def _joined(keys: list[str | None]) -> str:
    return KEYS_SEPARATOR.join(key for key in keys if key)
