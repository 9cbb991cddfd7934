"""Writing one record into a commit log buffer (layout: see scan_cy). Buffers and integers only.

The plain-send path of the broker has its own loop; this one serves everything else and the uncompiled broker.
"""

# mypy: ignore-errors

from __future__ import annotations

import struct
import zlib

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
RECORD_FIXED_SIZE = 75  # everything but hosts, body, topic and properties
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
HOST_V6_SIZE = 20

_HEAD = struct.Struct(">IIIiiqqiq")  # up to and including bornTimestamp
_MIDDLE = struct.Struct(">iqi")  # reconsumeTimes, preparedTransactionOffset, bodyLength
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">H")
_BLANK = struct.Struct(">II")


def record_size(
    born_host: bytes, store_host: bytes, body_size: int, topic_size: int, properties_size: int
) -> int:
    return RECORD_FIXED_SIZE + len(born_host) + len(store_host) + body_size + topic_size + properties_size


def write_record(
    buffer: memoryview,
    position: int,
    physical_offset: int,
    queue_offset: int,
    store_timestamp_ms: int,
    topic: bytes,
    queue_id: int,
    body: object,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> int:
    """Write a record at buffer[position:]; the position after it. The caller has checked that it fits."""
    # Struct calls write the runs of fixed fields at once; typed C gains nothing worth a second text here.
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(born_host) == HOST_V6_SIZE:
        sys_flag |= BORN_HOST_V6
    if len(store_host) == HOST_V6_SIZE:
        sys_flag |= STORE_HOST_V6
    body_size = len(body)  # type: ignore[arg-type]
    at = position + _HEAD.size
    buffer[at : at + len(born_host)] = born_host
    at += len(born_host)
    _LONG.pack_into(buffer, at, store_timestamp_ms)
    at += 8
    buffer[at : at + len(store_host)] = store_host
    at += len(store_host)
    _MIDDLE.pack_into(buffer, at, reconsume_times, prepared_transaction_offset, body_size)
    at += _MIDDLE.size
    buffer[at : at + body_size] = body
    at += body_size
    buffer[at] = len(topic)
    at += 1
    buffer[at : at + len(topic)] = topic
    at += len(topic)
    _SHORT.pack_into(buffer, at, len(properties))
    at += 2
    buffer[at : at + len(properties)] = properties
    at += len(properties)
    crc = zlib.crc32(body) & 0x7FFFFFFF if body_size else 0
    _HEAD.pack_into(
        buffer, position, at - position, MESSAGE_MAGIC, crc, queue_id, flag, queue_offset, physical_offset,
        sys_flag, born_timestamp_ms,
    )  # fmt: skip
    return at


def write_blank(buffer: memoryview, position: int, file_size: int) -> None:
    """Close a file: the rest of it is one blank record."""
    _BLANK.pack_into(buffer, position, file_size - position, BLANK_MAGIC)
