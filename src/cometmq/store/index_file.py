"""One file of the hash index: ``index/<yyyyMMddHHmmssSSS>``, fixed size, byte for byte that of RocketMQ.

The layout stands in ``index_cy``; the set of files of a store is ``index.Index``.

Disk space is allocated before it is touched (a write to a hole of a mapped file on a full disk would kill
the process): the slots at creation, the entries in chunks ahead of the writer, in a background thread when
one is given.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.store.index_cy import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, put_many, rebuild_slots

log = logging.getLogger(__name__)

Submit = Callable[[Callable[[], None]], Any]

ALLOCATE_CHUNK_SIZE = 8 << 20  # entries are allocated and populated in steps of this many bytes

_HEADER = struct.Struct(">qqqqii")
_MADV_POPULATE_WRITE = 23


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
    """One file, mapped writable. Allocation is ahead of the writer, never behind."""

    def __init__(self, path: Path, shape: IndexShape, submit: Submit | None) -> None:
        self.path = path
        self.shape = shape
        self._submit = submit
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._descriptor).st_size != shape.file_size:
                os.ftruncate(self._descriptor, shape.file_size)
            os.posix_fallocate(self._descriptor, 0, shape.entries_at)
            self.view = memoryview(mmap.mmap(self._descriptor, shape.file_size))
        except OSError:
            os.close(self._descriptor)
            raise
        self._allocated_to = shape.entries_at
        self._preparing: threading.Event | None = None
        self._prepare_ahead(0, shape.entries_at)

    @property
    def header(self) -> IndexHeader:
        return IndexHeader.parse(self.view)

    @property
    def full(self) -> bool:
        return self.header.index_count >= self.shape.index_count_max

    def begin_at(self, timestamp_ms: int, physical_offset: int) -> None:
        """A new file carries its predecessor's end in all four fields until the first key comes."""
        _HEADER.pack_into(self.view, 0, timestamp_ms, timestamp_ms, physical_offset, physical_offset, 0, 0)

    def put(self, keys: memoryview, start: int, count: int) -> int:
        """Put keys; how many fitted. OSError when the disk is full."""
        used = self.shape.entries_at + ENTRY_SIZE * self.header.index_count
        wanted = min(used + ENTRY_SIZE * count, self.shape.file_size)
        if wanted > self._allocated_to:
            self._allocate(wanted)
        elif self._allocated_to - wanted < ALLOCATE_CHUNK_SIZE // 2:
            self._allocate_ahead()
        return put_many(self.view, self.shape.hash_slot_count, self.shape.index_count_max, keys, start, count)

    def keep(self, count: int) -> None:
        """Forget all entries from number ``count`` on; slots and chains are made anew from the rest."""
        old = self.header
        if count >= old.index_count:
            return
        used_slots = rebuild_slots(self.view, self.shape.hash_slot_count, self.shape.index_count_max, count)
        first, last = (self.shape.entries_at + ENTRY_SIZE * number for number in (count, old.index_count))
        self.view[first:last] = bytes(last - first)
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

    def flush(self) -> None:
        """Any thread."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Wait for the background and let go; views handed out keep the mapping alive."""
        if self._preparing is not None:
            self._preparing.wait()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _allocate(self, wanted: int) -> None:
        if self._preparing is not None:
            self._preparing.wait()
        if wanted > self._allocated_to:
            start = self._allocated_to
            end = min(wanted + ALLOCATE_CHUNK_SIZE, self.shape.file_size)
            os.posix_fallocate(self._descriptor, start, end - start)
            self._allocated_to = end

    def _allocate_ahead(self) -> None:
        end = min(self._allocated_to + ALLOCATE_CHUNK_SIZE, self.shape.file_size)
        if end > self._allocated_to:
            self._prepare_ahead(self._allocated_to, end)

    def _prepare_ahead(self, start: int, end: int) -> None:
        """Allocate and populate [start, end) in the background; without one there is nothing ahead to do."""
        if self._submit is None or (self._preparing is not None and not self._preparing.is_set()):
            return
        done = self._preparing = threading.Event()

        def prepare() -> None:
            try:
                os.posix_fallocate(self._descriptor, start, end - start)
                self._allocated_to = max(self._allocated_to, end)
                _populate(self.view, start, end)
            except OSError as error:
                log.warning("index file %s: no room ahead (%s)", self.path, error.strerror)
            finally:
                done.set()

        self._submit(prepare)


def _populate(view: memoryview, start: int, end: int) -> None:
    """Give view[start:end] its page frames now, in one call without the interpreter lock (Linux 5.14)."""
    page = mmap.PAGESIZE
    anchor = ctypes.c_char.from_buffer(view)
    address = ctypes.addressof(anchor)
    first = start - start % page
    with contextlib.suppress(AttributeError, OSError):
        _libc().madvise(ctypes.c_void_p(address + first), ctypes.c_size_t(end - first), _MADV_POPULATE_WRITE)
    del anchor


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
