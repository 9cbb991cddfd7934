"""The columns of Arrow batches by number, and how each is made of messages: the specification of ``arrow_cy``.

A column is the bytes of its Arrow buffers::

    int32, int64, timestamp   (data)
    string, binary            (null_count, validity or None, offsets, data)
    map<string,string>        (entry_count, offsets, key offsets, key data, value offsets, value data)

Plain Python over decoded messages; ``arrow_cy`` gives the same without an object for each message.
"""

from __future__ import annotations

import array
from typing import Any

from cometmq.errors import LocalProtocolError
from cometmq.protocol.host import decode_host
from cometmq.protocol.message import MessageExt
from cometmq.protocol.properties import decode_properties_bytes, encode_properties

# The names stand in columns.py in the same order.
TOPIC, BROKER_NAME, QUEUE_ID, QUEUE_OFFSET, TAGS, KEYS, BODY, PROPERTIES = range(8)
BORN_TIMESTAMP, STORE_TIMESTAMP, MSG_ID, RECONSUME_TIMES, SYS_FLAG, COMMIT_LOG_OFFSET = range(8, 14)
FLAG, BORN_HOST, STORE_HOST, OFFSET_MSG_ID, BODY_CRC, STORE_SIZE, PREPARED_TRANSACTION_OFFSET = range(14, 21)

NEEDS_PROPERTIES = frozenset((TAGS, KEYS, PROPERTIES, MSG_ID))
COLUMN_SIZE_MAX = 0x7FFFFFFF  # bytes: Arrow's offsets of string and binary have 32 bits
TIMESTAMP_MS_MAX = 0x7FFFFFFFFFFFFFFF // 1000  # later ones do not fit as microseconds

PROPERTY_COLUMNS = {TAGS: b"TAGS", KEYS: b"KEYS", MSG_ID: b"UNIQ_KEY"}

_INT32 = {
    QUEUE_ID: "queue_id",
    RECONSUME_TIMES: "reconsume_times",
    SYS_FLAG: "sys_flag",
    FLAG: "flag",
    BODY_CRC: "body_crc",
    STORE_SIZE: "store_size",
}
_INT64 = {
    QUEUE_OFFSET: "queue_offset",
    COMMIT_LOG_OFFSET: "physical_offset",
    PREPARED_TRANSACTION_OFFSET: "prepared_transaction_offset",
}
_TIMES = {BORN_TIMESTAMP: "born_timestamp_ms", STORE_TIMESTAMP: "store_timestamp_ms"}

Parts = tuple[Any, ...]


def is_wanted(message: MessageExt, topics: frozenset[bytes] | None, tags: frozenset[bytes] | None) -> bool:
    if topics is not None and message.topic.encode() not in topics:
        return False
    return tags is None or (message.tag or "").encode() in tags


def column_of(messages: list[MessageExt], column: int, broker_name: str, inflate: bool) -> Parts:
    if column in _INT32:
        name = _INT32[column]
        return (array.array("i", [getattr(message, name) for message in messages]).tobytes(),)
    if column in _INT64:
        name = _INT64[column]
        return (array.array("q", [getattr(message, name) for message in messages]).tobytes(),)
    if column in _TIMES:
        name = _TIMES[column]
        return (array.array("q", [_microseconds(getattr(message, name)) for message in messages]).tobytes(),)
    if column == PROPERTIES:
        return _map_column([message.properties for message in messages])
    return _bytes_column([_value(message, column, broker_name, inflate) for message in messages])


def _microseconds(value_ms: int) -> int:
    return max(min(value_ms, TIMESTAMP_MS_MAX), -TIMESTAMP_MS_MAX) * 1000


def _value(message: MessageExt, column: int, broker_name: str, inflate: bool) -> bytes | None:
    if column == BODY:
        return message.body if inflate else message.stored_body
    if column == TOPIC:
        return message.topic.encode()
    if column == BROKER_NAME:
        return broker_name.encode()
    if column == BORN_HOST:
        return str(message.born_host).encode()
    if column == STORE_HOST:
        return str(message.store_host).encode()
    if column == OFFSET_MSG_ID:
        return message.offset_msg_id.encode()
    value = message.properties.get(PROPERTY_COLUMNS[column].decode())
    return None if value is None else value.encode()


def _bytes_column(values: list[bytes | None]) -> Parts:
    nulls = values.count(None)
    offsets = array.array("i", [0])
    total = 0
    validity = bytearray((len(values) + 7) // 8) if nulls else None
    for row, value in enumerate(values):
        total += len(value or b"")
        if total > COLUMN_SIZE_MAX:
            raise too_large()
        offsets.append(total)
        if validity is not None and value is not None:
            validity[row >> 3] |= 1 << (row & 7)
    return (
        nulls,
        validity and bytes(validity),
        offsets.tobytes(),
        b"".join([value or b"" for value in values]),
    )


def _map_column(maps: list[dict[str, str]]) -> Parts:
    offsets = array.array("i", [0])
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for properties in maps:
        keys += [name.encode() for name in properties]
        values += [value.encode() for value in properties.values()]
        offsets.append(len(keys))
    _, _, key_offsets, key_data = _bytes_column(keys)
    _, _, value_offsets, value_data = _bytes_column(values)
    return len(keys), offsets.tobytes(), key_offsets, key_data, value_offsets, value_data


# what both twins use ------------------------------------------------------------------------------


def too_large() -> LocalProtocolError:
    return LocalProtocolError(
        f"A column of one Arrow batch would have more than {COLUMN_SIZE_MAX} bytes; lower pullBatchSize, "
        "or set decompress=false if bodies are compressed very much."
    )


def clean_properties(data: bytes) -> bytes:
    """The stored properties with valid UTF-8 and without doubles."""
    return encode_properties(decode_properties_bytes(data)).encode()


def clean_text(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def host_text(data: bytes) -> bytes:
    return str(decode_host(data)).encode()
