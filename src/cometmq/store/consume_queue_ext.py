"""ConsumeQueueExt: what does not fit into a ConsumeQueue entry, in a stream of units beside the queue.

A unit, big-endian; the entry's tags code holds its address, the most negative long plus the unit's stream
position:

    0   2  size (20 + bit map)     2   8  tagsCode     10  8  msgStoreTime
    18  2  size of the bit map     20  n  bit map: Bloom filter of the groups whose SQL expression is true

Files are named and sized like those of the queue. Where a unit and 4 bytes more do not fit, a size of -1
closes the file; a size of 0 is the end of the data. Loop thread, except sync().
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

from cometmq.errors import StoreError
from cometmq.store.file_ops import FILE_NAME_DIGITS, file_name
from cometmq.store.mapped_file import PAGE_SIZE, MappedFile, OpenFiles, remove_unborn, sync_path

UNIT_SIZE_MIN = 20
UNIT_SIZE_MAX = 32767
END_SIZE = 4  # bytes kept free for the mark that closes a file
ADDRESS_BASE = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1  # tags codes up to here are addresses, anything above is a tag hash or a time
POSITION_MAX = ADDRESS_MAX - ADDRESS_BASE
ALLOCATION_STEP = 64 << 10  # bytes

_UNIT = struct.Struct(">hqqh")
_SIZE = struct.Struct(">h")
_CLOSED = -1


class ExtUnit(NamedTuple):
    tags_code: int
    store_timestamp_ms: int
    bit_map: bytes

    @property
    def size(self) -> int:
        return UNIT_SIZE_MIN + len(self.bit_map)


def is_address(tags_code: int) -> bool:
    """Does a queue entry's tags code point to a unit?"""
    return tags_code <= ADDRESS_MAX


class ConsumeQueueExt:
    """The units of one queue."""

    __slots__ = ("_dirty_from", "_files", "directory", "end", "file_size", "open_files")

    def __init__(self, directory: str | Path, file_size: int, open_files: OpenFiles) -> None:
        self.directory = str(directory)
        self.file_size = file_size
        self.open_files = open_files
        self.end = 0  # stream position after the last unit
        self._files: list[MappedFile] = []
        self._dirty_from = -1  # start of the first file written since the last sync

    # Use

    def put(self, unit: ExtUnit) -> int | None:
        """Append a unit; its address, or None if it cannot be kept: the plain tags code must do then."""
        if unit.size > min(UNIT_SIZE_MAX, self.file_size - END_SIZE) or self.end + unit.size > POSITION_MAX:
            return None
        try:
            file = self._file_for(unit.size)
        except (OSError, StoreError):
            return None
        at = self.end - file.start
        view = file.buffer()
        _UNIT.pack_into(view, at, unit.size, unit.tags_code, unit.store_timestamp_ms, len(unit.bit_map))
        view[at + UNIT_SIZE_MIN : at + unit.size] = unit.bit_map
        if self._dirty_from < 0:
            self._dirty_from = file.start
        address = ADDRESS_BASE + self.end
        self.end += unit.size
        return address

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address, None if there is none."""
        position = address - ADDRESS_BASE
        file = self._file_at(position) if is_address(address) and position < self.end else None
        if file is None:
            return None
        return read_unit(file.buffer(), position - file.start)

    # Life

    def load(self) -> None:
        """Find the files. Raises StoreError for anything that is not one of them."""
        self._files = []
        if os.path.isdir(self.directory):
            with os.scandir(self.directory) as entries:
                starts = sorted(self._check_entry(entry) for entry in entries if not remove_unborn(entry))
            self._files = [self._mapped(start) for start in starts]
        self.end = self._files[-1].start if self._files else 0

    def recover(self) -> None:
        """Find the end of the data: units are walked file by file from the first."""
        for file in self._files:
            self.end = file.start + _walk(file.buffer(), self.file_size)

    def truncate_after(self, max_address: int) -> None:
        """Forget the units behind the highest address that the queue knows (no address: nothing happens)."""
        unit = self.get(max_address) if is_address(max_address) else None
        if unit is not None:
            self._cut(max_address - ADDRESS_BASE + unit.size)

    def clear(self) -> None:
        """Forget all units, keep no file (the queue has no entry with an address)."""
        while self._files:
            self._files.pop().delete()
        self.end = 0

    def expire(self, min_address: int) -> list[str]:
        """Let go of files below the lowest address in use, never the last; paths to delete."""
        expired = []
        position = min_address - ADDRESS_BASE
        while is_address(min_address) and len(self._files) > 1 and self._files[0].end <= position:
            file = self._files.pop(0)
            file.unmap()
            expired.append(str(file.path))
        return expired

    def take_unsynced(self) -> list[str]:
        """Paths of the files written since the last call; any thread."""
        first, self._dirty_from = self._dirty_from, -1
        return [str(file.path) for file in list(self._files) if 0 <= first <= file.start]

    def sync(self) -> None:
        """Any thread. Raises OSError."""
        for path in self.take_unsynced():
            with contextlib.suppress(FileNotFoundError):
                sync_path(path, self.open_files.ops)

    def destroy(self) -> None:
        """Remove all files, the directory, and the topic's directory when it was the last queue."""
        self.clear()
        with contextlib.suppress(OSError):
            os.rmdir(self.directory)
            os.rmdir(os.path.dirname(self.directory))

    # Inside

    def _check_entry(self, entry: os.DirEntry[str]) -> int:
        if len(entry.name) != FILE_NAME_DIGITS or not entry.name.isdecimal() or not entry.is_file():
            raise StoreError(
                f"{entry.path} is not a file of the ConsumeQueue extension: move it out of the directory."
            )
        if entry.stat().st_size != self.file_size:
            raise StoreError(
                f"The file {entry.path} has {entry.stat().st_size} bytes instead of {self.file_size}: set "
                "mappedFileSizeConsumeQueueExt to what the store was made with, or restore the file from a copy."
            )
        return int(entry.name)

    def _mapped(self, start: int) -> MappedFile:
        return MappedFile(
            f"{self.directory}/{file_name(start)}", start, self.file_size, self.open_files, scattered=True
        )

    def _file_at(self, position: int) -> MappedFile | None:
        if not self._files or position < self._files[0].start:
            return None
        number = (position - self._files[0].start) // self.file_size
        return self._files[number] if number < len(self._files) else None

    def _file_for(self, size: int) -> MappedFile:
        """The file at ``end`` with blocks for ``size`` bytes; a full one is closed. OSError on a full disk."""
        file = self._files[-1] if self._files else self._add_file(self.end - self.end % self.file_size)
        if self.end - file.start + size + END_SIZE > self.file_size:
            self._close(file)
            file = self._add_file(file.end)
        at = self.end - file.start
        file.allocated = max(file.allocated, at - at % PAGE_SIZE)
        file.ensure_allocated(at + size + END_SIZE, ALLOCATION_STEP)
        return file

    def _close(self, file: MappedFile) -> None:
        at = self.end - file.start
        if at + _SIZE.size <= self.file_size:
            file.ensure_allocated(at + _SIZE.size, ALLOCATION_STEP)
            _SIZE.pack_into(file.buffer(), at, _CLOSED)
        self.end = file.end

    def _add_file(self, start: int) -> MappedFile:
        os.makedirs(self.directory, exist_ok=True)
        file = self._mapped(start)
        file.create()
        self._files.append(file)
        return file

    def _cut(self, end: int) -> None:
        while self._files and self._files[-1].start > end:
            self._files.pop().delete()
        self.end = end
        if self._files and end < self._files[-1].end:
            # Zeroed, so that a later recovery does not take the old units for good ones.
            self._files[-1].clear_from(end - self._files[-1].start)


def read_unit(view: memoryview, at: int) -> ExtUnit | None:
    """The unit at a position of a file, None if there is no whole one."""
    if at + UNIT_SIZE_MIN > len(view):
        return None
    size, tags_code, store_timestamp_ms, bit_map_size = _UNIT.unpack_from(view, at)
    if size != UNIT_SIZE_MIN + bit_map_size or bit_map_size < 0 or at + size > len(view):
        return None
    return ExtUnit(tags_code, store_timestamp_ms, bytes(view[at + UNIT_SIZE_MIN : at + size]))


def _walk(view: memoryview, file_size: int) -> int:
    """Position after the last unit of a file; the file's size if it was closed."""
    at = 0
    while (unit := read_unit(view, at)) is not None:
        at += unit.size
    closed = at + _SIZE.size <= file_size and _SIZE.unpack_from(view, at)[0] == _CLOSED
    return file_size if closed else at
