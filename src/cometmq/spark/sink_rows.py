"""Rows that are to be sent: which columns mean what, and the message of each row. Runs in Spark's workers."""

from __future__ import annotations

import itertools
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
        """Column by column, as far as that goes: rows are many. Columns that no message needs are not looked at."""
        columns = self._columns(batch)
        ids = self._ids(columns, batch.num_rows)
        self._row += batch.num_rows
        nothing = itertools.repeat(None)  # without end: the column body says how many rows there are
        topic = self._options.topic
        topics = columns.get("topic", nothing) if topic is None else itertools.repeat(topic)
        parts = (columns.get(name, nothing) for name in PARTS)
        for row in zip(columns["body"], topics, ids, *parts, strict=False):
            yield _message(*row)

    def _columns(self, batch: pa.RecordBatch) -> dict[str, list[Any]]:
        id_column = self._options.id_column
        of_id = ("msgId", *COORDINATES) if id_column is None else (id_column,)
        needed = {"body", "topic", *PARTS, *of_id}
        names = batch.schema.names
        return {name: batch.column(names.index(name)).to_pylist() for name in needed.intersection(names)}

    def _ids(self, columns: dict[str, list[Any]], count: int) -> Iterator[str]:
        id_column = self._options.id_column
        if id_column is not None:
            return (_given_id(found, id_column) for found in columns[id_column])
        made = (f"{self._prefix}-{number}" for number in itertools.count(self._row))
        own = columns.get("msgId", [None] * count)
        if not all(name in columns for name in COORDINATES):
            return (found or other for found, other in zip(own, made, strict=False))
        places = zip(*(columns[name] for name in COORDINATES), strict=True)
        return (
            other or next_made if None in place else ":".join(map(str, place))
            for place, other, next_made in zip(places, own, made, strict=False)
        )


# Columns that are parts of a message, in the order in which _message takes them.
PARTS = ("tags", "keys", "properties", "shardingKey", "queueId", "delayLevel", "flag")


def _given_id(found: Any, column: str) -> str:
    if found is None:
        raise MessageInvalid(f"A row has no id in the column {column}.")
    return str(found)


def _message(
    body: bytes | str | None,
    topic: str | None,
    message_id: str,
    tags: str | None,
    keys: str | list[str | None] | None,
    properties: list[tuple[str, str | None]] | None,
    sharding_key: str | None,
    queue_id: int | None,
    delay: int | None,
    flag: int | None,
) -> OutgoingMessage:
    if not topic:
        raise MessageInvalid("A row has no topic: fill the column topic, or set the option topic.")
    if body is None:
        raise MessageInvalid(f"A row for {topic} has no body.")
    if flag is not None and not -FLAG_LIMIT <= flag < FLAG_LIMIT:
        raise MessageInvalid(f"A row for {topic} has the flag {flag}; a flag has 32 bits.")
    encoded = _encoded(message_id, tags, keys, properties, sharding_key, delay)
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise MessageInvalid(
            f"A row for {topic} has {len(encoded)} bytes of properties, tags and keys together; brokers take "
            f"{PROPERTIES_SIZE_MAX}."
        )
    return OutgoingMessage(
        topic,
        body.encode() if isinstance(body, str) else body,
        encoded,
        flag or 0,
        message_id,
        queue_id,
        sharding_key,
        bool(delay and delay > 0),
    )


def _encoded(
    message_id: str,
    tags: str | None,
    keys: str | list[str | None] | None,
    properties: list[tuple[str, str | None]] | None,
    sharding_key: str | None,
    delay: int | None,
) -> bytes:
    """The stored properties. What has a column of its own wins over the same name in the map."""
    kept = {name: value for name, value in properties if value and name not in FORMER} if properties else {}
    if tags:
        kept[PROPERTY_TAGS] = tags
    words = keys if isinstance(keys, str) else KEYS_SEPARATOR.join(key for key in keys or () if key)
    if words:
        kept[PROPERTY_KEYS] = words
    kept[PROPERTY_UNIQ_KEY] = message_id
    if delay:
        kept[PROPERTY_DELAY] = str(delay)
    if sharding_key:
        kept[SHARDING_PROPERTY] = sharding_key
    return encode_properties(kept).encode()
