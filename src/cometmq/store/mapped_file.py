"""MappedFile: a fixed-size file, mapped when needed. OpenFiles: the table of mapped files with its bound.

Each mapping costs a descriptor (CPython duplicates it) and a map of the process; both limits bound the table.
Whoever still holds a view of an unmapped or deleted file keeps the mapping alive: memory goes away with the
last view, never under a reader. Loop thread only.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from cometmq.errors import StoreError
from cometmq.store.file_ops import FileOps

PAGE_SIZE = mmap.PAGESIZE
MAPS_MAX = 65_530  # vm.max_map_count of Linux by default
MAPS_RESERVED = 5_530  # for libraries, heaps, threads, index files and views of files that left the table
OPEN_FILES_MIN = 16


class MapOwner(Protocol):
    """Who writes through the mapping by pointer and must be told when it goes."""

    used: bool

    def detach(self) -> None: ...


def raise_descriptor_limit() -> int:
    """Lift the soft limit of open files to the hard one; the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else MAPS_MAX * 2


def open_files_limit() -> int:
    """How many files to map at most: half of the descriptors (the others are for connections)."""
    return max(OPEN_FILES_MIN, min(raise_descriptor_limit() // 2, MAPS_MAX - MAPS_RESERVED))


class OpenFiles:
    """Mapped files in the order of their last check; the first one not used since then makes room."""

    def __init__(self, count_max: int = 0, ops: FileOps | None = None) -> None:
        self.count_max = count_max or open_files_limit()
        self.ops = ops or FileOps()
        self._files: OrderedDict[MappedFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: MappedFile) -> None:
        if len(self._files) >= self.count_max:
            self._make_room()
        self._files[file] = None

    def remove(self, file: MappedFile) -> None:
        self._files.pop(file, None)

    def close_idle(self) -> int:
        """Unmap what was not used since the last call; how many."""
        idle = [file for file in self._files if not file.take_used()]
        for file in idle:
            file.unmap()
        return len(idle)

    def close_all(self) -> None:
        for file in list(self._files):
            file.unmap()

    def _make_room(self) -> None:
        # Second chance: a file used since it was looked at last goes to the end. Two rounds clear every mark.
        for _ in range(2 * len(self._files)):
            file, _none = self._files.popitem(last=False)
            if file.take_used():
                self._files[file] = None
            else:
                file.unmap()
                return


class MappedFile:
    __slots__ = (
        "_map", "allocated", "open_files", "owner", "path", "pinned", "scattered", "size", "start", "used",
        "view",
    )  # fmt: skip

    def __init__(
        self, path: Path | str, start: int, size: int, open_files: OpenFiles, *, scattered: bool = False
    ) -> None:
        self.path = path
        # Touched here and there (queues): a page fault shall not read megabytes of neighbours in.
        self.scattered = scattered
        self.start = start  # stream position of the first byte
        self.size = size
        self.open_files = open_files
        self.view: memoryview | None = None
        self.owner: MapOwner | None = None
        self.allocated = 0  # bytes from the front known to have blocks on disk
        self.pinned = False
        self.used = False
        self._map: mmap.mmap | None = None

    @property
    def end(self) -> int:
        return self.start + self.size

    def buffer(self) -> memoryview:
        """The whole file, writable; maps it if need be. StoreError for a missing file or a wrong length."""
        self.used = True
        return self.view if self.view is not None else self._map_now()

    def create(self) -> None:
        """Make the file at full length, without blocks. Raises OSError."""
        os.close(self.open_files.ops.create(self.path, self.size))

    def create_mapped(self, allocated: int) -> None:
        """Make the file, with blocks for its first part, and map it. Raises OSError, leaving nothing behind."""
        ops = self.open_files.ops
        descriptor = ops.create(self.path, self.size)
        try:
            ops.allocate(descriptor, 0, min(allocated, self.size))
            self.adopt(self._new_map(descriptor), min(allocated, self.size))
        except OSError:
            ops.unlink(self.path)
            raise
        finally:
            os.close(descriptor)

    def ensure_allocated(self, end: int, step: int) -> None:
        """Blocks on disk for everything below position `end`, in steps. Raises OSError."""
        if end <= self.allocated:
            return
        ops = self.open_files.ops
        target = min(max(end, self.allocated + step), self.size)
        descriptor = ops.open(self.path)
        try:
            ops.allocate(descriptor, self.allocated, target - self.allocated)
        finally:
            os.close(descriptor)
        self.allocated = target

    def sync(self) -> None:
        """Any thread. Raises OSError."""
        sync_path(self.path, self.open_files.ops)

    def clear_from(self, position: int) -> None:
        """Zero the rest of the file: a cut must not leave bytes that look valid later. Raises OSError."""
        view = self.buffer()
        descriptor = self.open_files.ops.open(self.path)
        try:
            for start, end in data_extents(descriptor, position, self.size):
                clear_range(view, start, end)
        finally:
            os.close(descriptor)

    def adopt(self, mapped: mmap.mmap, allocated: int) -> None:
        """Take a mapping that another thread has prepared."""
        self._map, self.view, self.allocated = mapped, memoryview(mapped), allocated
        self.open_files.add(self)

    def unmap(self) -> None:
        if self.owner is not None:
            self.owner.detach()
        self.open_files.remove(self)
        self.view = None
        self._map = None

    def delete(self) -> None:
        self.unmap()
        self.open_files.ops.unlink(self.path)

    def take_used(self) -> bool:
        """Was it used since the last call?"""
        used = self.used or self.pinned
        self.used = False
        if self.owner is not None:
            used = used or self.owner.used
            self.owner.used = False
        return used

    def _new_map(self, descriptor: int) -> mmap.mmap:
        mapped = mmap.mmap(descriptor, self.size)
        if self.scattered and hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)
        return mapped

    def _map_now(self) -> memoryview:
        try:
            descriptor = self.open_files.ops.open(self.path)
        except OSError as error:
            raise StoreError(f"The file {self.path} cannot be opened ({error.strerror}).") from error
        try:
            check_length(self.path, os.fstat(descriptor).st_size, self.size)
            self._map = self._new_map(descriptor)
        except OSError as error:
            raise StoreError(f"The file {self.path} cannot be mapped ({error.strerror}).") from error
        finally:
            os.close(descriptor)
        self.open_files.add(self)
        self.view = memoryview(self._map)
        return self.view


def sync_path(path: Path | str, ops: FileOps) -> None:
    descriptor = ops.open(path)
    try:
        ops.sync(descriptor)
    finally:
        os.close(descriptor)


def is_unborn(entry: os.DirEntry[str]) -> bool:
    """Was this file caught by a crash between its creation and its first byte?"""
    return entry.is_file() and entry.stat().st_size == 0 and entry.name.isdecimal()


def remove_unborn(entry: os.DirEntry[str]) -> bool:
    """Such a file goes."""
    if is_unborn(entry):
        os.unlink(entry.path)
        return True
    return False


def check_length(path: Path | str, found: int, wanted: int) -> None:
    if found != wanted:
        raise StoreError(
            f"The file {path} has {found} bytes instead of {wanted}: set mappedFileSizeCommitLog and "
            "mappedFileSizeConsumeQueue to what the store was made with, or restore the file from a copy."
        )


def data_extents(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of a sparse file that are not holes (one part if the file system cannot tell)."""
    while start < end:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole up to the end of the file
                return
            raise
        stop = min(os.lseek(descriptor, start, os.SEEK_HOLE), end)
        if start < stop:
            yield start, stop
        start = stop


_ZEROS = bytes(1 << 20)


def clear_range(buffer: memoryview, start: int, end: int) -> None:
    """Zero buffer[start:end] without touching chunks that are zero already."""
    while start < end:
        size = min(len(_ZEROS), end - start)
        if buffer[start : start + size] != _ZEROS[:size]:
            buffer[start : start + size] = _ZEROS[:size]
        start += size
