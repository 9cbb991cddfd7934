"""One file of the hash index: ``index/<yyyyMMddHHmmssSSS>``, fixed size, byte for byte that of RocketMQ.

The layout stands in ``index_cy``; the set of files of a store is ``index.Index``.

Disk space is allocated before it is touched (a write to a hole of a mapped file on a full disk would kill
the process): the slots at creation, the entries in chunks ahead of the writer. Their pages are made ready by a
background thread, when one is given; the writer never waits for it: what is not ready costs it a page fault.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.store.file_ops import FileOps
from cometmq.store.index_cy import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexWriter, rebuild_slots
from cometmq.store.mapped_file import clear_range
from cometmq.store.populate import GENTLE_STEP
from cometmq.store.residency_cy import make_ready

log = logging.getLogger(__name__)

Submit = Callable[[Callable[[], None]], Any]

ALLOCATE_CHUNK_SIZE = 8 << 20  # entries are allocated and populated in steps of this many bytes
PREPARE_SIZE_MIN = 1 << 20  # bytes; less is not worth a thread
SYNC_STEP = 256 << 10  # bytes; the writer waits for a page until all pages of the same step are on their way

_HEADER = struct.Struct(">qqqqii")


def in_thread(job: Callable[[], None]) -> None:
    """Run a job in a thread of its own; jobs here are rare and short."""
    threading.Thread(target=job, name="index", daemon=True).start()


class IndexHeader(NamedTuple):
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int  # number of the next entry; 1 = empty

    @classmethod
    def parse(cls, data: bytes | memoryview) -> IndexHeader:
        header = cls(*_HEADER.unpack_from(data))
        return header._replace(index_count=max(header.index_count, 1))


class IndexShape(NamedTuple):
    """The two sizes that all files of a directory share."""

    hash_slot_count: int
    index_count_max: int

    @property
    def entries_at(self) -> int:
        return HEADER_SIZE + SLOT_SIZE * self.hash_slot_count

    @property
    def file_size(self) -> int:
        return self.entries_at + ENTRY_SIZE * self.index_count_max


class IndexFile:
    """One file, mapped writable. ``writer`` puts the keys; at its limit ask ``extend``."""

    def __init__(self, path: Path, shape: IndexShape, submit: Submit | None) -> None:
        self.path = path
        self.shape = shape
        self._submit = submit
        self._ops = FileOps()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._descriptor).st_size != shape.file_size:
                os.ftruncate(self._descriptor, shape.file_size)
            os.posix_fallocate(self._descriptor, 0, shape.entries_at)
            mapped = mmap.mmap(self._descriptor, shape.file_size)
            if hasattr(mmap, "MADV_RANDOM"):
                mapped.madvise(mmap.MADV_RANDOM)  # slots are hit at random: read no neighbours in
            self.view = memoryview(mapped)
        except OSError:
            os.close(self._descriptor)
            raise
        self.writer = IndexWriter(self.view, *shape)
        self.writer.limit = 0
        self._allocated_to = shape.entries_at  # the writer may use this much
        self._ahead_to = 0  # and this much soon, made ready by the background
        self._synced_to = shape.entries_at  # entries before this are on disk; they never change
        self._lock = threading.Lock()
        self._to_prepare: deque[tuple[int, int]] = deque()  # for the background
        self._prepared = threading.Event()  # set while it has nothing to do
        self._prepared.set()
        self._prepare(0, shape.entries_at)

    @property
    def header(self) -> IndexHeader:
        header = IndexHeader.parse(self.view)
        return header._replace(index_count=min(header.index_count, self.shape.index_count_max))

    @property
    def full(self) -> bool:
        return self.header.index_count >= self.shape.index_count_max

    def begin_at(self, timestamp_ms: int, physical_offset: int) -> None:
        """A new file carries its predecessor's end in all four fields until the first key comes."""
        _HEADER.pack_into(self.view, 0, timestamp_ms, timestamp_ms, physical_offset, physical_offset, 0, 0)

    def extend(self) -> bool:
        """The writer came to its limit: move it. False if the file is full; OSError if the disk is."""
        next_entry = self.header.index_count
        if next_entry >= self.shape.index_count_max:
            return False
        next_at = self.shape.entries_at + ENTRY_SIZE * next_entry
        self._allocated_to = max(self._allocated_to, self._ahead_to)
        self._allocate(next_at + ENTRY_SIZE)
        self.writer.limit = (self._allocated_to - self.shape.entries_at) // ENTRY_SIZE
        start = max(next_at, self._ahead_to)  # a file that was opened again has no page ready
        self._prepare(start, min(self._allocated_to + ALLOCATE_CHUNK_SIZE, self.shape.file_size))
        return True

    def keep(self, count: int) -> None:
        """Forget all entries from number ``count`` on; slots and chains are made anew from the rest."""
        old = self.header
        if count >= old.index_count:
            return
        self._synced_to = self.shape.entries_at
        # After a power cut there may be holes among the entries; writing them needs room like any new entry.
        self._allocate(self.shape.entries_at + ENTRY_SIZE * old.index_count)
        used_slots = rebuild_slots(self.view, self.shape.hash_slot_count, self.shape.index_count_max, count)
        first, last = (self.shape.entries_at + ENTRY_SIZE * number for number in (count, old.index_count))
        clear_range(self.view, first, last)
        offset, seconds = self.entry(count - 1)
        end_ms = min(old.begin_timestamp_ms + seconds * 1000 + 999, old.end_timestamp_ms)
        _HEADER.pack_into(
            self.view, 0, old.begin_timestamp_ms, end_ms, old.begin_physical_offset, offset, used_slots, count
        )

    def entry(self, number: int) -> tuple[int, int]:
        """Physical offset and seconds after the file's begin."""
        at = self.shape.entries_at + ENTRY_SIZE * number + 4
        offset, seconds = struct.unpack_from(">qi", self.view, at)
        return offset, seconds

    def first_entry(self, condition: Callable[[int, int], bool]) -> int:
        """Number of the first entry for which the condition holds; it must hold for all later ones too."""
        low, high = 1, self.header.index_count
        while low < high:
            middle = (low + high) // 2
            if condition(*self.entry(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def flush(self) -> None:
        """Any thread. In steps, without what was made ready ahead; the page that every key changes comes last."""
        end = self.shape.entries_at + ENTRY_SIZE * self.header.index_count
        self._sync(mmap.PAGESIZE, self.shape.entries_at)
        self._sync(self._synced_to, end)
        self._sync(0, min(mmap.PAGESIZE, self.shape.file_size))
        self._synced_to = end - end % mmap.PAGESIZE

    def _sync(self, start: int, end: int) -> None:
        for at in range(start, end, SYNC_STEP):
            self._ops.sync_range(self._descriptor, self.view, at, min(at + SYNC_STEP, end))

    def close(self) -> None:
        """Wait for the background and let go; views handed out keep the mapping alive."""
        self._prepared.wait()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _allocate(self, wanted: int) -> None:
        if wanted > self._allocated_to:
            end = min(wanted + ALLOCATE_CHUNK_SIZE, self.shape.file_size)
            os.posix_fallocate(self._descriptor, self._allocated_to, end - self._allocated_to)
            self._allocated_to = end

    def _prepare(self, start: int, end: int) -> None:
        """Allocate and populate [start, end) in the background, if there is one."""
        if self._submit is None or end - start < PREPARE_SIZE_MIN:
            return
        with self._lock:
            self._to_prepare.append((start, end))
            if not self._prepared.is_set():
                return
            self._prepared.clear()
        try:
            self._submit(self._prepare_all)
        except RuntimeError:  # the background is shutting down
            self._prepared.set()

    def _prepare_all(self) -> None:
        while True:
            with self._lock:
                if not self._to_prepare:
                    self._prepared.set()
                    return
                start, end = self._to_prepare.popleft()
            try:
                self._prepare_now(start, end)
            except OSError as error:
                log.warning("index file %s: no room ahead (%s)", self.path, error.strerror)

    def _prepare_now(self, start: int, end: int) -> None:
        os.posix_fallocate(self._descriptor, start, end - start)
        self._ahead_to = max(self._ahead_to, end)
        make_ready(
            self.view[start:end], GENTLE_STEP
        )  # in one step it would keep a processor for 20 ms and more
