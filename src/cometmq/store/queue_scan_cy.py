"""Scans of ConsumeQueue files: where the entries end, and which records a pull gets.

Entry, big-endian: 8 physical offset, 4 record size, 8 tags code. Valid when offset >= 0 and size > 0.
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
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

ENTRY_SIZE = 20
BLANK_SIZE_FIELD = 0x7FFFFFFF  # of entries that only fill up the front of a queue
EXT_ADDRESS_MAX = -2147483649  # such a code is an address, not a tag: its unit or the client decides

_ENTRY = struct.Struct(">qiq")


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


def entries_end(buffer: object, start: int, end: int) -> tuple[int, int]:
    """Walk valid entries from `start`: position of the first invalid one, end of the last valid record.

    The second number is -1 without a valid entry.
    """
    if cython.compiled:
        return _entries_end_compiled(buffer, start, end)
    last = -1
    while start < end:
        physical_offset, size, _ = _ENTRY.unpack_from(buffer, start)
        if physical_offset < 0 or size <= 0:
            break
        last = physical_offset + size
        start += ENTRY_SIZE
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
) -> Collected:
    """Choose records by the entries buffer[start:end]; `count`, `size`, `skip_to` go on from an earlier call.

    Only entries with one of `tags_codes` count, if given. `file_size` is that of commit log files: after an
    entry whose record was deleted, everything below the next file is passed over.
    """
    if cython.compiled:
        return _collect_compiled(buffer, start, end, limits, count, size, skip_to, tags_codes, file_size)
    return _collect_python(buffer, start, end, limits, count, size, skip_to, tags_codes, file_size)


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


def _collect_python(buffer, start, end, limits, count, size, skip_to, tags_codes, file_size):
    runs = []
    run_start = run_end = last = -1
    full = False
    while start < end:
        physical_offset, record_size, tags_code = _ENTRY.unpack_from(buffer, start)
        if physical_offset < skip_to or record_size == BLANK_SIZE_FIELD:
            start += ENTRY_SIZE
            continue
        last = physical_offset
        if batch_full(limits, count, size, physical_offset, record_size):
            full = True
            break
        start += ENTRY_SIZE
        if tags_codes is not None and tags_code > EXT_ADDRESS_MAX and tags_code not in tags_codes:
            continue
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
    return Collected(start, count, size, full, skip_to, last, runs)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get32(p: cython.p_uchar) -> cython.uint:
    return (
        (cython.cast(cython.uint, p[0]) << 24)
        | (cython.cast(cython.uint, p[1]) << 16)
        | (cython.cast(cython.uint, p[2]) << 8)
        | cython.cast(cython.uint, p[3])
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get64(p: cython.p_uchar) -> cython.longlong:
    return cython.cast(
        cython.longlong,
        (cython.cast(cython.ulonglong, _get32(p)) << 32) | cython.cast(cython.ulonglong, _get32(p + 4)),
    )


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
            size = cython.cast(cython.int, _get32(p + 8))
            if _get64(p) < 0 or size <= 0:
                break
            last = _get64(p) + size
            start += 20
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
) -> object:
    view: Py_buffer
    p: cython.p_uchar
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
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len:
            raise ValueError(f"{start}..{end} is not inside the buffer of {view.len} bytes")
        while start + 20 <= end:
            p = cython.cast(cython.p_uchar, view.buf) + start
            physical_offset = _get64(p)
            record_size = cython.cast(cython.int, _get32(p + 8))
            if physical_offset < skip_to or record_size == 0x7FFFFFFF:
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
            start += 20
            if tags_codes is not None and _get64(p + 12) > -2147483649 and _get64(p + 12) not in tags_codes:
                continue
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
    return Collected(start, count, size, full, skip_to, last, runs)
