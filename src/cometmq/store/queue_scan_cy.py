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
    from cython.cimports.cometmq.big_endian import get_i32, get_i64
    from cython.cimports.cometmq.record_place import Place, is_true
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

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
    if cython.compiled:
        return _is_record_of_compiled(home, queue_offset, physical_offset, size)
    log, at = home.log, physical_offset - home.log_start
    if size < RECORD_SIZE_MIN or at < 0 or physical_offset + size > home.log_end:
        return False
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


if cython.compiled:
    _Bounds = cython.struct(  # Limits
        count=cython.longlong,
        memory_bytes=cython.longlong,
        memory_count=cython.longlong,
        disk_bytes=cython.longlong,
        disk_count=cython.longlong,
        log_min=cython.longlong,
        log_end=cython.longlong,
        disk_below=cython.longlong,
    )


@cython.cfunc
def _take_limits(limits: object, bounds: cython.pointer(_Bounds)) -> object:
    bounds.count = limits[0]
    bounds.memory_bytes = limits[1]
    bounds.memory_count = limits[2]
    bounds.disk_bytes = limits[3]
    bounds.disk_count = limits[4]
    bounds.log_min = limits[5]
    bounds.log_end = limits[6]
    bounds.disk_below = limits[7]


@cython.cfunc
def _take_home(home: object, place: cython.pointer(Place)) -> object:
    """The pointers are good as long as the caller holds `home`."""
    view: Py_buffer
    topic: bytes = home[4]
    log_end: cython.longlong = home[2]
    place.log_start = home[1]
    place.queue_start = home[3]
    place.topic = cython.cast(cython.p_uchar, cython.cast(cython.p_char, topic))
    place.topic_size = len(topic)
    place.queue_id = home[5]
    place.lenient = home[6]
    PyObject_GetBuffer(home[0], cython.address(view), PyBUF_SIMPLE)
    place.log = cython.cast(cython.p_uchar, view.buf)
    place.log_end = min(log_end, place.log_start + view.len)
    PyBuffer_Release(cython.address(view))


@cython.cfunc
def _is_record_of_compiled(
    home: object,
    queue_offset: cython.longlong,
    physical_offset: cython.longlong,
    size: cython.longlong,
) -> cython.bint:
    place: Place
    _take_home(home, cython.address(place))
    return is_true(cython.address(place), queue_offset, physical_offset, size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_full(
    bounds: cython.pointer(_Bounds),
    count: cython.longlong,
    size: cython.longlong,
    physical_offset: cython.longlong,
    record_size: cython.longlong,
) -> cython.bint:
    """batch_full()"""
    if count == 0:
        return False
    if count >= bounds.count:
        return True
    if physical_offset < bounds.disk_below:
        return size + record_size > bounds.disk_bytes or count > bounds.disk_count - 1
    return size + record_size > bounds.memory_bytes or count > bounds.memory_count - 1


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
    bounds: _Bounds
    place: Place
    _take_limits(limits, cython.address(bounds))
    if home is not None:
        _take_home(home, cython.address(place))
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len:
            raise ValueError(f"{start}..{end} is not inside the buffer of {view.len} bytes")
        return _choose(
            cython.cast(cython.p_uchar, view.buf), start, end, cython.address(bounds), count, size, skip_to,
            tags_codes, file_size, cython.address(place) if home is not None else cython.NULL,
        )  # fmt: skip
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
def _choose(
    entries: cython.p_uchar,
    start: cython.longlong,
    end: cython.longlong,
    bounds: cython.pointer(_Bounds),
    count: cython.longlong,
    size: cython.longlong,
    skip_to: cython.longlong,
    tags_codes: object,
    file_size: cython.longlong,
    place: cython.pointer(Place),
) -> object:
    """_collect_python(); `place` is NULL without a home."""
    p: cython.p_uchar
    checked: cython.bint = place != cython.NULL
    full: cython.bint = False
    doubtful: cython.bint = False
    physical_offset: cython.longlong
    record_size: cython.longlong
    run_start: cython.longlong = -1
    run_end: cython.longlong = -1
    last: cython.longlong = -1
    runs: list = []
    while start + 20 <= end:
        p = entries + start
        physical_offset = get_i64(p)
        record_size = get_i32(p + 8)
        if (physical_offset < skip_to and (not checked or physical_offset >= 0)) or (
            record_size == 0x7FFFFFFF and (not checked or physical_offset == 0)
        ):
            start += 20
            continue
        last = physical_offset
        full = _is_full(bounds, count, size, physical_offset, record_size)
        if full:
            break
        if tags_codes is not None and get_i64(p + 12) > -2147483649 and get_i64(p + 12) not in tags_codes:
            start += 20
            continue
        doubtful = checked and not is_true(
            place, (place.queue_start + start) // 20, physical_offset, record_size
        )
        if doubtful:
            break
        start += 20
        if physical_offset < bounds.log_min or physical_offset + record_size > bounds.log_end:
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
