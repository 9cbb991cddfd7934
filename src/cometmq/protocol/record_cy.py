"""Message records, as they stand in the commit log and in the bodies of pull answers, and the items of a batch.

A record, big-endian. B and S are the sizes of the two hosts: 8 for IPv4, 20 for IPv6 (sysFlag bits 0x10,
0x20)::

    0   4  totalSize            20  8  queueOffset         48      B  bornHost: ip, port as int32
    4   4  magic 0xDAA320A7     28  8  physicalOffset      48+B    8  storeTimestamp
    8   4  bodyCRC, 31 bits     36  4  sysFlag             56+B    S  storeHost
    12  4  queueId              40  8  bornTimestamp       56+B+S  4  reconsumeTimes
    16  4  flag                                            60+B+S  8  preparedTransactionOffset
                                                           68+B+S  4  bodyLength, then the body
    then 1 topicLength · topic · 2 propertiesLength · properties

An item of a batch::

    0  4  totalSize     12  4  flag
    4  4  magic, 0      16  4  bodyLength · body · 2 propertiesLength · properties
    8  4  bodyCRC, 0

Records are decoded in one call for a whole pull body. Reads buffers, touches nothing else.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.protocol.limits import (
    BATCH_ITEM_COUNT_MAX,
    PROPERTIES_SIZE_MAX,
    RECORD_SIZE_MAX,
    TOPIC_SIZE_MAX,
)
from cometmq.protocol.message import Message, MessageExt
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.sys_flag import BORN_HOST_V6, STORE_HOST_V6

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp

Buffer = bytes | bytearray | memoryview

MESSAGE_MAGIC = 0xDAA320A7
RECORD_SIZE_MIN = 91  # two IPv4 hosts, nothing in body, topic and properties
HOST_V6_EXTRA_SIZE = 12
BATCH_ITEM_SIZE_MIN = 22

_HEAD = struct.Struct(">iIiiiqqiq")  # up to bornTimestamp
_STORE_TIMESTAMP = struct.Struct(">q")
_TAIL = struct.Struct(">iqi")  # reconsumeTimes, preparedTransactionOffset, bodyLength
_PROPERTIES_SIZE = struct.Struct(">h")
_ITEM_HEAD = struct.Struct(">iiiii")

assert _HEAD.size + 8 + _STORE_TIMESTAMP.size + 8 + _TAIL.size + 3 == RECORD_SIZE_MIN
assert _ITEM_HEAD.size + 2 == BATCH_ITEM_SIZE_MIN


class BatchItem(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes


# one record out, many in --------------------------------------------------------------------------


def encode_record(
    *,
    topic: bytes,
    body: Buffer,
    properties: bytes,
    born_host: bytes,
    store_host: bytes,
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp_ms: int = 0,
    store_timestamp_ms: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """One record. Hosts are in the form of :func:`cometmq.protocol.host.encode_host` and set their sysFlag bits."""
    _check_sizes(topic, properties)
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= _host_bit(born_host, BORN_HOST_V6) | _host_bit(store_host, STORE_HOST_V6)
    size = 75 + len(born_host) + len(store_host) + len(body) + len(topic) + len(properties)
    head = _HEAD.pack(
        size,
        MESSAGE_MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
    )
    return b"".join(
        (
            head,
            born_host,
            _STORE_TIMESTAMP.pack(store_timestamp_ms),
            store_host,
            _TAIL.pack(reconsume_times, prepared_transaction_offset, len(body)),
            body,
            bytes((len(topic),)),
            topic,
            _PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    )


def _check_sizes(topic, properties):
    if len(topic) > TOPIC_SIZE_MAX:
        raise LocalProtocolError(
            f"The topic {topic[:40]!r}... has {len(topic)} bytes, a record holds {TOPIC_SIZE_MAX}."
        )
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"The properties of a message have {len(properties)} bytes, a record holds {PROPERTIES_SIZE_MAX}."
        )


def _host_bit(host, bit):
    if len(host) == 8:
        return 0
    if len(host) == 20:
        return bit
    raise LocalProtocolError(f"A host of {len(host)} bytes is neither IPv4 nor IPv6 with a port.")


def encode_message(message: MessageExt) -> bytes:
    """The record of a received message; gives the bytes it was decoded from unless it was changed."""
    return encode_record(
        topic=message.topic.encode(),
        body=message.stored_body,
        properties=message.stored_properties,
        born_host=message.born_host_bytes,
        store_host=message.store_host_bytes,
        queue_id=message.queue_id,
        flag=message.flag,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        store_timestamp_ms=message.store_timestamp_ms,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def decode_records(buffer: Buffer, start: int = 0, end: int = -1) -> list[MessageExt]:
    """All records in buffer[start:end], which must hold whole records. The magic is not looked at, as in Java."""
    if end < 0:
        end = len(buffer)
    if not 0 <= start <= end <= len(buffer):
        raise ValueError(f"[{start}:{end}] is outside of a buffer of {len(buffer)} bytes")
    if cython.compiled:
        return _decode_compiled(buffer, start, end)
    return _decode_python(memoryview(buffer), start, end)


def decode_record(buffer: Buffer) -> MessageExt:
    """The one record that a buffer holds (bodies of 33, 39 and 309)."""
    messages = decode_records(buffer)
    if len(messages) != 1:
        raise RemoteProtocolError(f"One message was expected, {len(messages)} came.")
    return messages[0]


def _bad_record(position: int, problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"The message record at byte {position} {problem}.")


CUT = "is cut off"
IMPOSSIBLE = "has an impossible length"
NOT_ADDING_UP = "has lengths inside that do not add up to its own"


def _decode_python(view, start, end):
    messages: list[MessageExt] = []
    position = start
    while position < end:
        if end - position < RECORD_SIZE_MIN:
            raise _bad_record(position, CUT)
        (size,) = struct.unpack_from(">i", view, position)
        if not RECORD_SIZE_MIN <= size <= RECORD_SIZE_MAX:
            raise _bad_record(position, IMPOSSIBLE)
        if size > end - position:
            raise _bad_record(position, CUT)
        message = _decode_one(view[position : position + size], size)
        if message is None:
            raise _bad_record(position, NOT_ADDING_UP)
        messages.append(message)
        position += size
    return messages


def _decode_one(record, size):
    """The message of a record, None when its lengths do not add up."""
    _, _, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = _HEAD.unpack_from(record)
    stored_at = _HEAD.size + (20 if sys_flag & BORN_HOST_V6 else 8)
    tail = stored_at + 8 + (20 if sys_flag & STORE_HOST_V6 else 8)
    body_start = tail + _TAIL.size
    if body_start + 3 > size:
        return None
    reconsume_times, prepared_transaction_offset, body_size = _TAIL.unpack_from(record, tail)
    body_end = body_start + body_size
    if body_size < 0 or body_end + 3 > size:
        return None
    topic_end = body_end + 1 + record[body_end]
    if record[body_end] > TOPIC_SIZE_MAX or topic_end + 2 > size:
        return None
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(record, topic_end)
    if properties_size < 0 or topic_end + 2 + properties_size != size:
        return None
    return MessageExt(
        str(record[body_end + 1 : topic_end], "utf-8", "replace"),
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        flag,
        reconsume_times,
        born,
        _STORE_TIMESTAMP.unpack_from(record, stored_at)[0],
        prepared_transaction_offset,
        crc,
        size,
        bytes(record[_HEAD.size : stored_at]),
        bytes(record[stored_at + 8 : tail]),
        bytes(record[body_start:body_end]),
        bytes(record[topic_end + 2 :]),
    )


# batches ------------------------------------------------------------------------------------------


def encode_batch(messages: Iterable[Message]) -> bytes:
    """The body of SEND_BATCH_MESSAGE."""
    pieces: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode("utf-8", "replace")
        _check_sizes(b"", properties)
        size = BATCH_ITEM_SIZE_MIN + len(message.body) + len(properties)
        pieces += (
            _ITEM_HEAD.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    return b"".join(pieces)


def split_batch(body: Buffer) -> list[BatchItem]:
    """The items in the body of SEND_BATCH_MESSAGE. Magic and CRC are not looked at, as in Java."""
    if cython.compiled:
        return _split_batch_compiled(body)
    return _split_batch_python(memoryview(body))


def _bad_item(position: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"The batch item at byte {position} has lengths that do not fit.")


def _too_many_items() -> RemoteProtocolError:
    return RemoteProtocolError(f"A batch has more than {BATCH_ITEM_COUNT_MAX} messages.")


def _split_batch_python(view):
    items: list[BatchItem] = []
    position, end = 0, len(view)
    while position < end:
        if end - position < BATCH_ITEM_SIZE_MIN:
            raise _bad_item(position)
        size, _, _, flag, body_size = _ITEM_HEAD.unpack_from(view, position)
        if size > end - position or not 0 <= body_size <= size - BATCH_ITEM_SIZE_MIN:
            raise _bad_item(position)
        body_start = position + _ITEM_HEAD.size
        properties_start = body_start + body_size + 2
        (properties_size,) = _PROPERTIES_SIZE.unpack_from(view, properties_start - 2)
        if size != BATCH_ITEM_SIZE_MIN + body_size + properties_size:
            raise _bad_item(position)
        if len(items) >= BATCH_ITEM_COUNT_MAX:
            raise _too_many_items()
        position += size
        items.append(
            BatchItem(
                flag, bytes(view[body_start : properties_start - 2]), bytes(view[properties_start:position])
            )
        )
    return items


# the same in C ------------------------------------------------------------------------------------

if cython.compiled:

    @cython.cfunc
    @cython.inline
    def _bytes(p: cython.p_uchar, size: cython.Py_ssize_t) -> bytes:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, p), size)

    @cython.cclass
    class _Last:
        """Topic and hosts of the record before: they seldom change within a pull body, so they are shared."""

        topic_bytes: bytes
        topic: str
        born_host: bytes
        store_host: bytes

        def __init__(self) -> None:
            self.topic_bytes = self.born_host = self.store_host = b""
            self.topic = ""

    @cython.cfunc
    @cython.inline
    def _same(known: bytes, p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        return len(known) == size and memcmp(cython.cast(cython.p_char, known), p, size) == 0

    @cython.cfunc
    def _decode_compiled(buffer: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> list:
        view: Py_buffer
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            return _decode_all(cython.cast(cython.p_uchar, view.buf), start, end)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _decode_all(p: cython.p_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> list:
        messages: list = []
        last: _Last = _Last()
        size: cython.Py_ssize_t
        size_max: cython.Py_ssize_t = RECORD_SIZE_MAX
        while position < end:
            if end - position < 91:
                raise _bad_record(position, CUT)
            size = get_i32(p + position)
            if size < 91 or size > size_max:
                raise _bad_record(position, IMPOSSIBLE)
            if size > end - position:
                raise _bad_record(position, CUT)
            message = _message_of(p + position, size, last)
            if message is None:
                raise _bad_record(position, NOT_ADDING_UP)
            messages.append(message)
            position += size
        return messages

    @cython.cfunc
    def _message_of(p: cython.p_uchar, size: cython.Py_ssize_t, last: _Last) -> object:
        """_decode_one(); size is checked to be at least 91 and all there."""
        sys_flag: cython.int = get_i32(p + 36)
        born_size: cython.Py_ssize_t = 20 if sys_flag & 0x10 else 8
        store_size: cython.Py_ssize_t = 20 if sys_flag & 0x20 else 8
        tail: cython.Py_ssize_t = 56 + born_size + store_size
        body_start: cython.Py_ssize_t = tail + 16
        if body_start + 3 > size:
            return None
        body_size: cython.Py_ssize_t = get_i32(p + tail + 12)
        if body_size < 0 or body_size > size - body_start - 3:
            return None
        body_end: cython.Py_ssize_t = body_start + body_size
        topic_size: cython.Py_ssize_t = p[body_end]
        topic_end: cython.Py_ssize_t = body_end + 1 + topic_size
        if topic_size > 127 or topic_end + 2 > size:
            return None
        properties_size: cython.Py_ssize_t = (p[topic_end] << 8) | p[topic_end + 1]
        if properties_size > 32767 or topic_end + 2 + properties_size != size:
            return None
        if not _same(last.topic_bytes, p + body_end + 1, topic_size):
            last.topic_bytes = _bytes(p + body_end + 1, topic_size)
            last.topic = last.topic_bytes.decode("utf-8", "replace")
        if not _same(last.born_host, p + 48, born_size):
            last.born_host = _bytes(p + 48, born_size)
        if not _same(last.store_host, p + 56 + born_size, store_size):
            last.store_host = _bytes(p + 56 + born_size, store_size)
        return MessageExt(
            last.topic,
            get_i32(p + 12),
            get_i64(p + 20),
            get_i64(p + 28),
            sys_flag,
            get_i32(p + 16),
            get_i32(p + tail),
            get_i64(p + 40),
            get_i64(p + 48 + born_size),
            get_i64(p + tail + 4),
            get_i32(p + 8),
            size,
            last.born_host,
            last.store_host,
            _bytes(p + body_start, body_size),
            _bytes(p + topic_end + 2, properties_size),
        )

    @cython.cfunc
    def _split_batch_compiled(buffer: object) -> list:
        view: Py_buffer
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            return _items_of(cython.cast(cython.p_uchar, view.buf), view.len)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _items_of(p: cython.p_uchar, end: cython.Py_ssize_t) -> list:
        items: list = []
        position: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        body_size: cython.Py_ssize_t
        properties_size: cython.Py_ssize_t
        while position < end:
            if end - position < 22:
                raise _bad_item(position)
            size = get_i32(p + position)
            body_size = get_i32(p + position + 16)
            if size > end - position or body_size < 0 or body_size > size - 22:
                raise _bad_item(position)
            properties_size = (p[position + 20 + body_size] << 8) | p[position + 21 + body_size]
            if size != 22 + body_size + properties_size or properties_size > 32767:
                raise _bad_item(position)
            if len(items) >= BATCH_ITEM_COUNT_MAX:
                raise _too_many_items()
            items.append(
                BatchItem(
                    get_i32(p + position + 12),
                    _bytes(p + position + 20, body_size),
                    _bytes(p + position + 22 + body_size, properties_size),
                )
            )
            position += size
        return items
