"""Preparer: a thread that keeps the commit log ahead of its writer.

For the current file it takes blocks on disk (a full disk is met here, as an error, not as a SIGBUS in the writer)
and gives pages frames with MADV_POPULATE_WRITE, which costs an eighth of the page faults it saves. Before a file
is full it creates, allocates and maps the next one. The writer never waits: what is not ready it does itself.

With a page that is not in memory yet, the kernel brings in all that its read-ahead covers, in one go: cheap for each
page, but up to megabytes, and a kernel without preemption gives the processor to nobody meanwhile. A writer that
needs many pages wants that; one that writes little would only meet the pause. For it the thread goes gently: it says
that the range is read at random, so that a page comes alone, and leaves the kernel after each small step.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cometmq.store.file_ops import FileOps
from cometmq.store.residency_cy import make_ready

ALLOCATION_STEP = 64 << 20  # bytes of disk space taken at a time
POPULATE_STEP = 4 << 20  # bytes of pages per system call
GENTLE_STEP = 64 << 10  # the same while the writer writes little
GENTLE_RUN = 1 << 20  # bytes in such steps without the interpreter lock, which the loop waits for
GENTLE_BYTES_PER_S = 64 << 20  # up to this speed it does
NEXT_FILE_DISTANCE = 128 << 20  # bytes before the end of a file at which the next one is made

MADV_RANDOM = 1
PAGE_SIZE = mmap.PAGESIZE

log = logging.getLogger(__name__)

_libc = ctypes.CDLL(None, use_errno=True)


class PreparedFile(NamedTuple):
    start: int
    mapped: mmap.mmap
    allocated: int


class Preparer:
    def __init__(
        self,
        directory: Path,
        file_size: int,
        ahead_size: int,
        ops: FileOps,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._directory = directory
        self._file_size = file_size
        self._ahead_size = ahead_size
        self._ops = ops
        self._condition = threading.Condition()
        self._want: tuple[Path | str, int, memoryview, int, int] | None = None
        self._next: PreparedFile | None = None
        self._making = -1  # start of the file that the thread is creating
        self._claimed = -1  # files up to this start are the writer's: the thread must not touch them
        self._allocated: dict[int, int] = {}  # file start -> bytes with blocks on disk
        self._populated: tuple[int, int] = (-1, 0)  # file start, position
        self._heard: tuple[int, float] | None = None  # physical offset of the writer, and when
        self._stopping = False
        self._thread: threading.Thread | None = None

    # Loop thread

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="commitlog-prepare", daemon=True)
        self._thread.start()

    def stop(self) -> PreparedFile | None:
        """End the thread; the next file if one was made and not used."""
        if self._thread is not None:
            with self._condition:
                self._stopping = True
                self._condition.notify_all()
            self._thread.join()
            self._thread = None
        unused, self._next = self._next, None
        return unused

    def advance(self, path: Path | str, start: int, view: memoryview, position: int, allocated: int) -> None:
        """The writer is at `position` of this file."""
        with self._condition:
            self._want = (path, start, view, position, allocated)
            self._condition.notify_all()

    def allocated(self, start: int) -> int:
        return self._allocated.get(start, 0)

    def take(self, start: int) -> PreparedFile | None:
        """The file that begins at `start`, if the thread has made it; otherwise the caller must, and only it."""
        with self._condition:
            while self._making == start:
                self._condition.wait()
            self._claimed = max(self._claimed, start)
            ready = self._next
            if ready is None or ready.start != start:
                return None
            self._next = None
            return ready

    # Thread

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._want is None and not self._stopping:
                    self._condition.wait()
                if self._stopping:
                    return
                assert self._want is not None
                path, start, view, position, allocated = self._want
                self._want = None
            try:
                self._prepare(path, start, view, position, allocated)
            except OSError as error:
                # The writer will meet the same error and refuse the message; nothing is lost here.
                log.warning("commit log cannot be prepared ahead path=%s error=%s", path, error)
            del view

    def _prepare(self, path: Path | str, start: int, view: memoryview, position: int, allocated: int) -> None:
        target = min(position + self._ahead_size, self._file_size)
        allocated = max(allocated, self._allocated.get(start, 0))
        if allocated < min(target + POPULATE_STEP, self._file_size):
            allocated = self._allocate(path, start, allocated)
        gently = self._writes_little(start + position)
        self._populate(start, view, position, min(target, allocated), gently)
        if self._file_size - position <= NEXT_FILE_DISTANCE and self._next is None:
            self._make_next(start + self._file_size)

    def _allocate(self, path: Path | str, start: int, allocated: int) -> int:
        size = min(ALLOCATION_STEP, self._file_size - allocated)
        descriptor = self._ops.open(path)
        try:
            self._ops.allocate(descriptor, allocated, size)
        finally:
            os.close(descriptor)
        self._allocated = {start: allocated + size}
        return allocated + size

    def _writes_little(self, physical_offset: int) -> bool:
        """By the time that the writer took since it was heard of last; one that begins is not fast yet."""
        heard, now = self._heard, self._clock()
        self._heard = (physical_offset, now)
        return heard is None or physical_offset - heard[0] < (now - heard[1]) * GENTLE_BYTES_PER_S

    def _populate(
        self, start: int, view: memoryview, position: int, target: int, gently: bool = False
    ) -> None:
        file, done = self._populated
        begin = max(position, done if file == start else 0)
        if gently and begin < target:
            advise(view, begin, target, MADV_RANDOM)
        while begin < target and not self._stopping:
            end = min(begin + (GENTLE_RUN if gently else POPULATE_STEP), target)
            make_ready(view[begin:end], GENTLE_STEP if gently else POPULATE_STEP)
            begin = end
            self._populated = (start, end)

    def _make_next(self, start: int) -> None:
        with self._condition:
            if start <= self._claimed:
                return
            self._making = start
        prepared = None
        try:
            prepared = create_log_file(self._directory, start, self._file_size, self._ops)
        finally:
            with self._condition:
                self._next, self._making = prepared, -1
                self._condition.notify_all()
        with memoryview(prepared.mapped) as view:
            self._populate(start, view, 0, min(self._ahead_size, prepared.allocated))


def create_log_file(directory: Path, start: int, file_size: int, ops: FileOps) -> PreparedFile:
    """Make a commit log file whose first part has blocks on disk, as are its length and its name. Raises OSError.

    What is written to it later may reach the disk at any time, in any order: if a power loss then took its length, it
    would be a hole in the log, with messages behind it.
    """
    path = directory / f"{start:020d}"
    ops.unlink(path)  # whatever may be left there is not part of the log
    descriptor = ops.create(path, file_size)
    try:
        allocated = min(ALLOCATION_STEP, file_size)
        ops.allocate(descriptor, 0, allocated)
        ops.sync_length(descriptor)
        mapped = mmap.mmap(descriptor, file_size)
        mapped.madvise(
            MADV_RANDOM, 0, min(GENTLE_STEP, file_size)
        )  # a writer that is here first meets one page
    except BaseException:
        ops.unlink(path)
        raise
    finally:
        os.close(descriptor)
    ops.sync_directory(directory)
    return PreparedFile(start, mapped, allocated)


def advise(view: memoryview, start: int, end: int, advice: int) -> None:
    """Tell the kernel about the pages of view[start:end]; without the interpreter lock, which mmap.madvise keeps."""
    first = start - start % PAGE_SIZE
    anchor = ctypes.c_char.from_buffer(view)
    address = ctypes.addressof(anchor) + first
    _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(end - first), advice)
    del anchor
