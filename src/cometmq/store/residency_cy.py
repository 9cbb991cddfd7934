"""Is a piece of a mapped file in memory? And: read it in, or make it ready to be written. Linux `mincore` and `madvise`.

Compiled, read_in() works without the interpreter lock from its first to its last byte, and it looks at every page:
on a virtual machine the host gives memory to a page when a processor touches it for the first time, and that takes
longer than all else that a pull does with it (10 us). The thread shall pay for it and not the loop. read_jobs() goes
further and never takes the lock: a thread that waits for it, or is put aside while it has it, would hold up the loop.
"""

# mypy: ignore-errors

from __future__ import annotations

import ctypes
import mmap
import os
import struct

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.scheduler import sched_yield
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.libc.errno import EINTR, errno
    from cython.cimports.posix.mman import MADV_WILLNEED, madvise, mincore
    from cython.cimports.posix.unistd import read, write
else:
    from os import sched_yield

PAGE_SIZE = mmap.PAGESIZE
MADV_HUGEPAGE = cython.declare(cython.int, 14)
MADV_POPULATE_READ = cython.declare(cython.int, 22)  # Linux 5.14
MADV_POPULATE_WRITE = cython.declare(cython.int, 23)  # the same
# Bytes that one call brings into memory; meanwhile the kernel has a lock that the loop may need (to map a file)
STEP_SIZE = cython.declare(cython.size_t, 64 << 10)
# Bytes; of a larger range the kernel takes no more than one request to the disk
ADVICE_SIZE = cython.declare(cython.size_t, 512 << 10)
# Bytes; what is as long is read as huge pages: one entry in the kernel's tables instead of 512, to make and to drop
HUGE_SIZE = cython.declare(cython.size_t, 2 << 20)
PAGES_AT_ONCE = cython.declare(cython.size_t, 1024)  # that one question is about

JOB = struct.Struct("=QQ")  # address and size of a piece

_libc = ctypes.CDLL(None, use_errno=True)


def is_resident(part: memoryview) -> bool:
    """True if all pages of a (writable) view are in memory; also if the system does not tell."""
    if cython.compiled:
        return _is_resident_compiled(part, PAGE_SIZE)
    if len(part) == 0:
        return True
    anchor = ctypes.c_char.from_buffer(part)
    first, size = _whole_pages(ctypes.addressof(anchor), len(part))
    pages = ctypes.create_string_buffer((size + PAGE_SIZE - 1) // PAGE_SIZE)
    failed = _libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(size), pages)
    del anchor
    return bool(failed) or b"\0" not in pages.raw


def read_in(part: memoryview) -> None:
    """Bring all pages into memory; takes as long as the disk, so for a thread."""
    if cython.compiled:
        _read_in_compiled(part, PAGE_SIZE)
    else:
        _read_range_slowly(*job_of(part))


def make_ready(part: memoryview, step: int) -> None:
    """Give all pages of a writable view frames to write to, so many bytes a system call. An older kernel does nothing.

    Between two calls the processor is free for others, of which a kernel without preemption has no idea within one.
    """
    if cython.compiled:
        _make_ready_compiled(part, step, PAGE_SIZE)
    elif len(part):
        anchor = ctypes.c_char.from_buffer(part)
        first, size = _whole_pages(ctypes.addressof(anchor), len(part))
        for at in range(0, size, step):
            _advise(first + at, min(step, size - at), MADV_POPULATE_WRITE)
        del anchor


def job_of(part: memoryview) -> tuple[int, int]:
    """What to write to the pipe of read_jobs(), as a JOB. The view must live until it is done."""
    if len(part) == 0:
        return 0, 0
    anchor = ctypes.c_char.from_buffer(part)
    return ctypes.addressof(anchor), len(part)


def read_jobs(descriptor: int, done: object, answers: int = -1) -> None:
    """For a thread: read in what is written to a pipe, until that is closed. `done` (array of 'q') counts the jobs.

    For each job a byte is written to the pipe `answers`, if there is one.
    """
    if cython.compiled:
        _read_jobs_compiled(descriptor, done, PAGE_SIZE, answers)
        return
    while len(job := os.read(descriptor, JOB.size)) == JOB.size:
        _read_range_slowly(*JOB.unpack(job))
        done[0] += 1
        if answers >= 0:
            os.write(answers, b"\0")


def _read_range_slowly(address: int, size: int) -> None:
    first, size = _whole_pages(address, size)
    is_huge = size >= HUGE_SIZE and _advise(first, size, MADV_HUGEPAGE)
    for at in range(0, size, STEP_SIZE):
        step = min(STEP_SIZE, size - at)
        if not is_huge:
            _advise(first + at, step, mmap.MADV_WILLNEED)
        if not _advise(first + at, step, MADV_POPULATE_READ):  # reads them now
            _advise(first + at, step, mmap.MADV_WILLNEED)  # an older kernel: it begins to, at least
        sched_yield()


def _whole_pages(address: int, size: int) -> tuple[int, int]:
    first = address - address % PAGE_SIZE
    return first, address + size - first


def _advise(address: int, size: int, advice: int) -> bool:
    return _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), advice) == 0


_seen = cython.declare(cython.uint, 0)  # what was looked at: the compiler shall not leave the looking out


@cython.cfunc
def _is_resident_compiled(part: object, page_size: cython.size_t) -> cython.bint:
    view: Py_buffer
    pages: cython.uchar[1024]
    at: cython.size_t
    end: cython.size_t
    size: cython.size_t
    resident: cython.bint = True
    PyObject_GetBuffer(part, cython.address(view), PyBUF_SIMPLE)
    at = cython.cast(cython.size_t, view.buf)
    end = at + view.len
    at -= at % page_size
    while at < end and resident:
        size = min(end - at, PAGES_AT_ONCE * page_size)
        if mincore(cython.cast(cython.p_void, at), size, pages) != 0:
            break
        for number in range((size + page_size - 1) // page_size):
            if not pages[number] & 1:
                resident = False
                break
        at += size
    PyBuffer_Release(cython.address(view))
    return resident


@cython.cfunc
def _read_in_compiled(part: object, page_size: cython.size_t) -> object:
    view: Py_buffer
    at: cython.size_t
    end: cython.size_t
    PyObject_GetBuffer(part, cython.address(view), PyBUF_SIMPLE)
    try:
        at = cython.cast(cython.size_t, view.buf)
        end = at + view.len
        at -= at % page_size
        with cython.nogil:
            _read_range(at, end, page_size)
    finally:
        PyBuffer_Release(cython.address(view))


@cython.cfunc
def _make_ready_compiled(part: object, step: cython.size_t, page_size: cython.size_t) -> object:
    view: Py_buffer
    at: cython.size_t
    end: cython.size_t
    PyObject_GetBuffer(part, cython.address(view), PyBUF_SIMPLE)
    at = cython.cast(cython.size_t, view.buf)
    end = at + view.len
    at -= at % page_size
    with cython.nogil:
        while at < end:
            madvise(cython.cast(cython.p_void, at), min(end - at, step), MADV_POPULATE_WRITE)
            at += step
    PyBuffer_Release(cython.address(view))


@cython.cfunc
def _read_jobs_compiled(
    descriptor: cython.int, done: object, page_size: cython.size_t, answers: cython.int
) -> object:
    view: Py_buffer
    job: cython.ulonglong[2]
    count: cython.p_longlong
    size: cython.Py_ssize_t
    PyObject_GetBuffer(done, cython.address(view), PyBUF_SIMPLE)
    count = cython.cast(cython.p_longlong, view.buf)
    with cython.nogil:
        while True:
            size = read(descriptor, job, 16)
            if size == 16:
                _read_range(job[0] - job[0] % page_size, job[0] + job[1], page_size)
                count[0] += 1
                if answers >= 0:
                    write(answers, job, 1)
            elif size >= 0 or errno != EINTR:
                break
    PyBuffer_Release(cython.address(view))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_range(at: cython.size_t, end: cython.size_t, page_size: cython.size_t) -> cython.void:
    """Ask for everything, wait for it step by step, look at every page.

    And let others have the processor after each step: a kernel without preemption takes it from a thread that never
    waits with its next tick only, and the loop may be on the same one while another is idle.
    """
    global _seen
    size: cython.size_t
    advised: cython.size_t = at
    if end - at >= HUGE_SIZE and madvise(cython.cast(cython.p_void, at), end - at, MADV_HUGEPAGE) == 0:
        advised = end  # a page fault there asks for more than is waited for
    while advised < end:
        size = min(end - advised, ADVICE_SIZE)
        madvise(cython.cast(cython.p_void, advised), size, MADV_WILLNEED)
        advised += size
    while at < end:
        size = min(end - at, STEP_SIZE)
        # A page that the disk does not give is an error here; looking at it would end the process. An older kernel
        # does not know the call: then it is asked to begin, at least.
        if madvise(cython.cast(cython.p_void, at), size, MADV_POPULATE_READ) == 0:
            while size > 0:
                _seen += cython.cast(cython.p_uchar, at)[0]
                at += page_size
                size = size - page_size if size > page_size else 0
        else:
            madvise(cython.cast(cython.p_void, at), size, MADV_WILLNEED)
            at += size
        sched_yield()
