"""Scan of commit log bytes: the one judge of what a good record is (recovery, replicas, verify).

Layout of a record, big-endian; H is 8 for an IPv4 host and 20 for an IPv6 host (sysFlag bits 0x10, 0x20):

    0   4  totalSize            20  8  queueOffset         48      H  bornHost
    4   4  magic 0xDAA320A7     28  8  physicalOffset      48+B    8  storeTimestamp
    8   4  bodyCRC              36  4  sysFlag             56+B    H  storeHost
    12  4  queueId              40  8  bornTimestamp       56+B+S  4  reconsumeTimes
    16  4  flag                                            60+B+S  8  preparedTransactionOffset
    68+B+S  4 bodyLength, body, 1 topicLength, topic, 2 propertiesLength, properties   (B, S: the two H)

A record is good when the magic is right, all lengths add up to totalSize, physicalOffset is where the record
stands and, if asked, the CRC of the body is right. Reads a buffer, touches nothing else; no clock, no files.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64, get_u32
    from cython.cimports.cometmq.crc32 import crc32, fill_crc_tables
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
BLANK_SIZE = 8
RECORD_SIZE_MIN = 91  # two IPv4 hosts, empty body, topic and properties

# Why a scan stopped.
STOP_END = 0  # at the given end
STOP_BLANK = 1  # at a blank record that closes the file
STOP_ZERO = 2  # at a zero length: nothing was written from here on
STOP_BAD = 3  # at bytes that are no good record; `reason` says why


class Scan(NamedTuple):
    """What a scan found."""

    end: int  # position after the last good record
    stop: int
    reason: str
    count: int
    first_store_timestamp_ms: int  # 0 when there was no record
    last_store_timestamp_ms: int


REASONS = (
    "",
    "the record is cut short by the end of the data",
    "the magic number is wrong",
    "the length is impossible",
    "the lengths inside do not add up to the record's length",
    "the physical offset in the record is not its position",
    "the CRC of the body is wrong",
    "the blank record does not fill the file",
)
CUT, MAGIC, LENGTH, INNER_LENGTH, POSITION, CRC, BLANK = 1, 2, 3, 4, 5, 6, 7


_HEAD = struct.Struct(">IIIiiqqi")
_BODY_LENGTH = struct.Struct(">i")
_STORE_TIMESTAMP = struct.Struct(">q")


def scan_records(
    buffer: object, start: int, end: int, physical_base: int, check_crc: bool, file_size: int = 0
) -> Scan:
    """Walk the records in buffer[start:end]; physical_base is the physical offset of buffer[0].

    With file_size a blank record is good only if it reaches exactly to that position.
    """
    if cython.compiled:
        return _scan_compiled(buffer, start, end, physical_base, check_crc, file_size)
    return _scan_python(buffer, start, end, physical_base, check_crc, file_size)


def record_store_timestamp(buffer: object, position: int, end: int) -> int:
    """storeTimestamp of the record at a position, -1 if there is none (only magic and size are looked at)."""
    if end - position < RECORD_SIZE_MIN:
        return -1
    size, magic, _, _, _, _, _, sys_flag = _HEAD.unpack_from(buffer, position)
    if magic != MESSAGE_MAGIC or not RECORD_SIZE_MIN <= size <= end - position:
        return -1
    timestamp: int = _STORE_TIMESTAMP.unpack_from(buffer, position + (68 if sys_flag & 0x10 else 56))[0]
    return timestamp


def _scan_python(buffer, start, end, physical_base, check_crc, file_size):
    position, count, first, last = start, 0, 0, 0
    stop, reason = STOP_END, 0
    while position < end:
        if end - position < BLANK_SIZE:
            stop, reason = STOP_BAD, CUT
            break
        size, magic = struct.unpack_from(">II", buffer, position)
        if magic == BLANK_MAGIC:
            stop = STOP_BLANK
            if file_size and size != file_size - position:
                stop, reason = STOP_BAD, BLANK
            break
        if size == 0 and magic == 0:
            stop = STOP_ZERO
            break
        reason = _judge(buffer, position, end, size, magic, physical_base, check_crc)
        if reason:
            stop = STOP_BAD
            break
        last = record_store_timestamp(buffer, position, end)
        if count == 0:
            first = last
        count += 1
        position += size
    return Scan(position, stop, REASONS[reason], count, first, last)


def _judge(buffer, position, end, size, magic, physical_base, check_crc):
    """0 for a good record, else the number of the reason."""
    if magic != MESSAGE_MAGIC:
        return MAGIC
    if size < RECORD_SIZE_MIN or size > 0x7FFFFFFF:
        return LENGTH
    if size > end - position:
        return CUT
    _, _, crc, _, _, _, physical_offset, sys_flag = _HEAD.unpack_from(buffer, position)
    if physical_offset != physical_base + position:
        return POSITION
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    if at + 7 > size:
        return INNER_LENGTH
    body_size = _BODY_LENGTH.unpack_from(buffer, position + at)[0]
    body = at + 4
    if body_size < 0 or body + body_size + 3 > size:
        return INNER_LENGTH
    topic_size = buffer[position + body + body_size]
    at = body + body_size + 1 + topic_size
    if topic_size > 127 or at + 2 > size:
        return INNER_LENGTH
    properties_size = (buffer[position + at] << 8) | buffer[position + at + 1]
    if properties_size > 32767 or at + 2 + properties_size != size:
        return INNER_LENGTH
    if check_crc and body_size:
        if zlib.crc32(buffer[position + body : position + body + body_size]) & 0x7FFFFFFF != crc:
            return CRC
    return 0


if cython.compiled:
    fill_crc_tables()

    @cython.cfunc
    def _judge_compiled(
        p: cython.p_uchar, room: cython.longlong, physical_offset: cython.longlong, check_crc: cython.bint
    ) -> cython.int:
        """_judge() on the record at p with `room` bytes behind it; at least 8 bytes are there."""
        size: cython.longlong = get_u32(p)
        sys_flag: cython.uint
        at: cython.longlong
        body: cython.longlong
        body_size: cython.longlong
        if get_u32(p + 4) != cython.cast(cython.uint, 0xDAA320A7):
            return 2
        if size < 91 or size > 0x7FFFFFFF:
            return 3
        if size > room:
            return 1
        if get_i64(p + 28) != physical_offset:
            return 5
        sys_flag = get_u32(p + 36)
        at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
        if at + 7 > size:
            return 4
        body_size = get_i32(p + at)
        body = at + 4
        if body_size < 0 or body + body_size + 3 > size:
            return 4
        at = body + body_size
        if p[at] > 127 or at + 1 + p[at] + 2 > size:
            return 4
        at += 1 + p[at]
        if p[at] > 127 or at + 2 + ((cython.cast(cython.uint, p[at]) << 8) | p[at + 1]) != size:
            return 4
        if check_crc and body_size and crc32(p + body, body_size) & 0x7FFFFFFF != get_u32(p + 8):
            return 6
        return 0

    @cython.cfunc
    def _scan_compiled(
        buffer: object,
        start: cython.longlong,
        end: cython.longlong,
        physical_base: cython.longlong,
        check_crc: cython.bint,
        file_size: cython.longlong,
    ) -> object:
        view: Py_buffer
        p: cython.p_uchar
        position: cython.longlong = start
        count: cython.longlong = 0
        first: cython.longlong = 0
        last: cython.longlong = 0
        stop: cython.int = 0
        reason: cython.int = 0
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                raise ValueError(f"{start}..{end} is not inside the buffer of {view.len} bytes")
            while position < end:
                p = cython.cast(cython.p_uchar, view.buf) + position
                if end - position < 8:
                    stop = 3
                    reason = 1
                    break
                if get_u32(p + 4) == 0xCBD43194:
                    stop = 1
                    if file_size and get_u32(p) != file_size - position:
                        stop = 3
                        reason = 7
                    break
                if get_u32(p) == 0 and get_u32(p + 4) == 0:
                    stop = 2
                    break
                reason = _judge_compiled(p, end - position, physical_base + position, check_crc)
                if reason:
                    stop = 3
                    break
                last = get_i64(p + (68 if get_u32(p + 36) & 0x10 else 56))
                if count == 0:
                    first = last
                count += 1
                position += get_u32(p)
        finally:
            PyBuffer_Release(cython.address(view))
        return Scan(position, stop, REASONS[reason], count, first, last)
