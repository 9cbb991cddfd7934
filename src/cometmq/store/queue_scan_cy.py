"""Scans of ConsumeQueue files: where the entries end, and which records a pull gets.

Entry, big-endian: 8 physical offset, 4 record size, 8 tags code. Valid when offset >= 0 and size > 0.
An entry is true when the record that it points to says the same of itself (see `is_record_of`); pulls check that.
Buffers and integers only; the branches for uncompiled use are the specification.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64, get_u32
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp, memcpy

ENTRY_SIZE = 20
BLANK_SIZE_FIELD = 0x7FFFFFFF  # of entries that only fill up the front of a queue
EXT_ADDRESS_MAX = -2147483649  # such a code is an address, not a tag: its unit or the client decides

MESSAGE_MAGIC = 0xDAA320A7
RECORD_SIZE_MIN = 91

_ENTRY = struct.Struct(">qiq")
_HEAD = struct.Struct(">IIIiiqqi")


class Home(NamedTuple):
    """Where entries come from and where their records should be: what a check needs to know."""

    log: object  # buffer: one commit log file
    log_start: int  # physical offset of its first byte
    log_end: int  # ... after its last record
    queue_start: int  # stream position of the first byte of the buffer with the entries
    topic: bytes
    queue_id: int
    lenient: bool  # records of other queues may stand here (multi-dispatch): only their place is checked


class Limits(NamedTuple):
    """When a batch is full, and where the log begins, ends and leaves memory."""

    count: int  # messages wanted
    memory_bytes: int  # a batch of records in memory ends before it would exceed these ...
    memory_count: int
    disk_bytes: int  # ... and one that meets a record on disk ends here
    disk_count: int
    log_min: int  # first physical offset that is still there
    log_end: int
    disk_below: int  # records below this physical offset are probably not in memory


class Collected(NamedTuple):
    position: int  # after the last entry that was passed
    count: int
    size: int
    full: bool  # the batch is full; otherwise the entries were at an end
    skip_to: int  # entries below this physical offset point to deleted files
    last_physical_offset: int  # of the last entry looked at, -1 without one
    runs: list[tuple[int, int]]  # (physical offset, size) of adjacent records
    doubtful: bool = False  # the entry at `position` does not point to its record in that log file


def entries_end(buffer: object, start: int, end: int) -> tuple[int, int]:
    """Walk entries from `start`: position of the first that was never written, end of the last valid record.

    Never written means offset and size 0; anything else that is invalid is damage, and not the end of the queue.
    The second number is -1 without a valid entry.
    """
    if cython.compiled:
        return _entries_end_compiled(buffer, start, end)
    last = -1
    while start < end:
        physical_offset, size, _ = _ENTRY.unpack_from(buffer, start)
        if physical_offset == 0 and size == 0:
            break
        start += ENTRY_SIZE
        if physical_offset >= 0 and size > 0:
            last = physical_offset + size
    return start, last


def collect(
    buffer: object,
    start: int,
    end: int,
    limits: Limits,
    count: int,
    size: int,
    skip_to: int,
    tags_codes: Collection[int] | None,
    file_size: int,
    home: Home | None = None,
) -> Collected:
    """Choose records by the entries buffer[start:end]; `count`, `size`, `skip_to` go on from an earlier call.

    Only entries with one of `tags_codes` count, if given. `file_size` is that of commit log files: after an
    entry whose record was deleted, everything below the next file is passed over. With `home` every chosen
    entry is checked, and the first one that is not true there ends the scan (`doubtful`).
    """
    if cython.compiled:
        return _collect_compiled(
            buffer, start, end, limits, count, size, skip_to, tags_codes, file_size, home
        )
    return _collect_python(buffer, start, end, limits, count, size, skip_to, tags_codes, file_size, home)


def is_record_of(home: Home, queue_offset: int, physical_offset: int, size: int) -> bool:
    """Does the record of this place and size stand in this log file and belong to this place of the queue?"""
    at = physical_offset - home.log_start
    if size < RECORD_SIZE_MIN or at < 0 or physical_offset + size > home.log_end:
        return False
    if cython.compiled:
        return _is_record_of_compiled(home, queue_offset, at, size)
    log = home.log
    found_size, magic, _, queue_id, _, found_offset, found_place, sys_flag = _HEAD.unpack_from(log, at)
    if found_size != size or magic != MESSAGE_MAGIC or found_place != physical_offset:
        return False
    if home.lenient:
        return True
    topic_at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    if topic_at + 7 > size:
        return False
    topic_at += 4 + int.from_bytes(log[at + topic_at : at + topic_at + 4], "big")
    if topic_at + 3 + len(home.topic) > size or queue_id != home.queue_id or found_offset != queue_offset:
        return False
    topic_at += at
    return log[topic_at] == len(home.topic) and log[topic_at + 1 : topic_at + 1 + log[topic_at]] == home.topic


def gather(buffer: object, base: int, runs: list[tuple[int, int]], size: int) -> bytes:
    """The bytes of all runs in one piece; `base` is the physical offset of buffer[0], `size` the sum of the runs."""
    if cython.compiled:
        return _gather_compiled(buffer, base, runs, size)
    return b"".join([bytes(buffer[start - base : start - base + length]) for start, length in runs])


def batch_full(limits: Limits, count: int, size: int, physical_offset: int, record_size: int) -> bool:
    """Would the next record be one too many? Never before the first one."""
    if count == 0:
        return False
    if count >= limits.count:
        return True
    if physical_offset < limits.disk_below:
        return size + record_size > limits.disk_bytes or count > limits.disk_count - 1
    return size + record_size > limits.memory_bytes or count > limits.memory_count - 1


def _collect_python(buffer, start, end, limits, count, size, skip_to, tags_codes, file_size, home):
    runs = []
    run_start = run_end = last = -1
    full = doubtful = False
    while start < end:
        physical_offset, record_size, tags_code = _ENTRY.unpack_from(buffer, start)
        passed = physical_offset < skip_to and (home is None or physical_offset >= 0)
        if passed or (record_size == BLANK_SIZE_FIELD and (home is None or physical_offset == 0)):
            start += ENTRY_SIZE
            continue
        last = physical_offset
        if batch_full(limits, count, size, physical_offset, record_size):
            full = True
            break
        if tags_codes is not None and tags_code > EXT_ADDRESS_MAX and tags_code not in tags_codes:
            start += ENTRY_SIZE
            continue
        if home is not None and not is_record_of(
            home, (home.queue_start + start) // ENTRY_SIZE, physical_offset, record_size
        ):
            doubtful = True
            break
        start += ENTRY_SIZE
        if physical_offset < limits.log_min or physical_offset + record_size > limits.log_end:
            skip_to = physical_offset - physical_offset % file_size + file_size
            continue
        if physical_offset != run_end:
            if run_end >= 0:
                runs.append((run_start, run_end - run_start))
            run_start = physical_offset
        run_end = physical_offset + record_size
        count += 1
        size += record_size
    if run_end >= 0:
        runs.append((run_start, run_end - run_start))
    return Collected(start, count, size, full, skip_to, last, runs, doubtful)


@cython.cfunc
@cython.exceptval(check=False)
def _is_true(
    p: cython.p_uchar,
    size: cython.longlong,
    physical_offset: cython.longlong,
    queue_offset: cython.longlong,
    queue_id: cython.int,
    topic: cython.p_uchar,
    topic_size: cython.longlong,
    lenient: cython.bint,
) -> cython.bint:
    """is_record_of() for bytes that are there: `size`, at least 91 of them, at p."""
    at: cython.longlong
    sys_flag: cython.uint
    if get_u32(p) != size or get_u32(p + 4) != 0xDAA320A7 or get_i64(p + 28) != physical_offset:
        return False
    if lenient:
        return True
    if get_i32(p + 12) != queue_id or get_i64(p + 20) != queue_offset:
        return False
    sys_flag = get_u32(p + 36)
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    if at + 7 > size:
        return False
    at += 4 + cython.cast(cython.longlong, get_u32(p + at))
    if at + 3 + topic_size > size:
        return False
    return p[at] == topic_size and memcmp(p + at + 1, topic, topic_size) == 0


@cython.cfunc
def _is_record_of_compiled(
    home: object, queue_offset: cython.longlong, at: cython.longlong, size: cython.longlong
) -> cython.bint:
    view: Py_buffer
    topic: bytes = home[4]
    log_start: cython.longlong = home[1]
    queue_id: cython.int = home[5]
    lenient: cython.bint = home[6]
    PyObject_GetBuffer(home[0], cython.address(view), PyBUF_SIMPLE)
    try:
        if at + size > view.len:
            raise ValueError(f"{size} bytes at {at} are not inside the log file of {view.len} bytes")
        return _is_true(
            cython.cast(cython.p_uchar, view.buf) + at, size, log_start + at, queue_offset, queue_id,
            cython.cast(cython.p_uchar, cython.cast(cython.p_char, topic)), len(topic), lenient,
        )  # fmt: skip
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
def _gather_compiled(buffer: object, base: cython.longlong, runs: list, size: cython.Py_ssize_t) -> bytes:
    view: Py_buffer
    start: cython.longlong
    length: cython.longlong
    done: cython.Py_ssize_t = 0
    result: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    target: cython.p_char = PyBytes_AS_STRING(result)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        for run in runs:
            start = run[0]
            length = run[1]
            start -= base
            if start < 0 or length < 0 or start + length > view.len or done + length > size:
                raise ValueError(f"run of {length} bytes at {start} is not inside the buffer")
            memcpy(target + done, cython.cast(cython.p_char, view.buf) + start, length)
            done += length
        if done != size:
            raise ValueError(f"the runs have {done} bytes, not {size}")
    finally:
        PyBuffer_Release(cython.address(view))
    return result


@cython.cfunc
def _entries_end_compiled(buffer: object, start: cython.longlong, end: cython.longlong) -> tuple:
    view: Py_buffer
    p: cython.p_uchar
    last: cython.longlong = -1
    size: cython.int
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len:
            raise ValueError(f"{start}..{end} is not inside the buffer of {view.len} bytes")
        while start + 20 <= end:
            p = cython.cast(cython.p_uchar, view.buf) + start
            size = get_i32(p + 8)
            if size == 0 and get_i64(p) == 0:
                break
            start += 20
            if get_i64(p) >= 0 and size > 0:
                last = get_i64(p) + size
    finally:
        PyBuffer_Release(cython.address(view))
    return start, last


@cython.cfunc
def _collect_compiled(
    buffer: object,
    start: cython.longlong,
    end: cython.longlong,
    limits: object,
    count: cython.longlong,
    size: cython.longlong,
    skip_to: cython.longlong,
    tags_codes: object,
    file_size: cython.longlong,
    home: object,
) -> object:
    view: Py_buffer
    log: Py_buffer
    p: cython.p_uchar
    log_p: cython.p_uchar = cython.NULL
    topic_p: cython.p_uchar = cython.NULL
    topic_size: cython.longlong = 0
    log_start: cython.longlong = 0
    home_end: cython.longlong = 0
    queue_start: cython.longlong = 0
    queue_id: cython.int = 0
    checked: cython.bint = home is not None
    topic: bytes = home[4] if home is not None else b""
    lenient: cython.bint = False
    doubtful: cython.bint = False
    count_max: cython.longlong = limits[0]
    memory_bytes: cython.longlong = limits[1]
    memory_count: cython.longlong = limits[2]
    disk_bytes: cython.longlong = limits[3]
    disk_count: cython.longlong = limits[4]
    log_min: cython.longlong = limits[5]
    log_end: cython.longlong = limits[6]
    disk_below: cython.longlong = limits[7]
    physical_offset: cython.longlong
    record_size: cython.longlong
    run_start: cython.longlong = -1
    run_end: cython.longlong = -1
    last: cython.longlong = -1
    full: cython.bint = False
    runs: list = []
    if checked:
        topic_p = cython.cast(cython.p_uchar, cython.cast(cython.p_char, topic))
        topic_size = len(topic)
        log_start = home[1]
        home_end = home[2]
        queue_start = home[3]
        queue_id = home[5]
        lenient = home[6]
        PyObject_GetBuffer(home[0], cython.address(log), PyBUF_SIMPLE)
        # The caller's reference keeps the memory.
        log_p = cython.cast(cython.p_uchar, log.buf)
        home_end = min(home_end, log_start + log.len)
        PyBuffer_Release(cython.address(log))
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len:
            raise ValueError(f"{start}..{end} is not inside the buffer of {view.len} bytes")
        while start + 20 <= end:
            p = cython.cast(cython.p_uchar, view.buf) + start
            physical_offset = get_i64(p)
            record_size = get_i32(p + 8)
            if (physical_offset < skip_to and (not checked or physical_offset >= 0)) or (
                record_size == 0x7FFFFFFF and (not checked or physical_offset == 0)
            ):
                start += 20
                continue
            last = physical_offset
            if count:
                if count >= count_max:
                    full = True
                elif physical_offset < disk_below:
                    full = size + record_size > disk_bytes or count > disk_count - 1
                else:
                    full = size + record_size > memory_bytes or count > memory_count - 1
                if full:
                    break
            if tags_codes is not None and get_i64(p + 12) > -2147483649 and get_i64(p + 12) not in tags_codes:
                start += 20
                continue
            if checked and (
                record_size < 91
                or physical_offset < log_start
                or physical_offset > home_end - record_size
                or not _is_true(
                    log_p + (physical_offset - log_start), record_size, physical_offset,
                    (queue_start + start) // 20, queue_id, topic_p, topic_size, lenient,
                )
            ):  # fmt: skip
                doubtful = True
                break
            start += 20
            if physical_offset < log_min or physical_offset + record_size > log_end:
                skip_to = physical_offset - physical_offset % file_size + file_size
                continue
            if physical_offset != run_end:
                if run_end >= 0:
                    runs.append((run_start, run_end - run_start))
                run_start = physical_offset
            run_end = physical_offset + record_size
            count += 1
            size += record_size
    finally:
        PyBuffer_Release(cython.address(view))
    if run_end >= 0:
        runs.append((run_start, run_end - run_start))
    return Collected(start, count, size, full, skip_to, last, runs, doubtful)
