"""ConsumeQueue: the entries of one queue, in fixed-size files named by the byte position of the first entry.

Positions are bytes of the queue's stream, queue offsets are entries (position // 20). Only the starts of the
first and the last file are kept in memory; a file is mapped when it is read or written. A queue has no file
before its first entry. The first file of a queue that begins at an offset other than 0 starts with pre-blank
entries. Loop thread, except take_unsynced().
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import NamedTuple

from cometmq.errors import StoreError
from cometmq.store.consume_queue_ext import ConsumeQueueExt, is_address
from cometmq.store.dispatch_cy import QueueTail
from cometmq.store.file_ops import file_name
from cometmq.store.mapped_file import PAGE_SIZE, MappedFile, OpenFiles, data_extents
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, ENTRY_SIZE, entries_end
from cometmq.store.residency_cy import make_ready

RECOVERED_FILES = 3  # recovery looks at the last three files; older ones are taken as complete
ALLOCATION_STEP_MAX = 256 << 10  # blocks on disk are taken in steps that double up to this, in bytes
READY_SIZE = (
    16 << 10
)  # bytes whose pages are made ready at once: more would be clean again, by a flush, before they are used
STAT_BLOCK_SIZE = 512  # of st_blocks, whatever the file system's is
GAP_ENTRIES_MAX = 1_000_000  # a longer jump in queue offsets is not filled up with blank entries

ENTRY = struct.Struct(">qiq")
_BLANK_ENTRY = ENTRY.pack(0, BLANK_SIZE_FIELD, 0)


class QueueEntry(NamedTuple):
    physical_offset: int
    size: int
    tags_code: int


class ConsumeQueue(QueueTail):
    __slots__ = (
        "_files", "_first_dirty_start", "directory", "ext", "file_size", "first_start", "gap", "is_new",
        "last_start", "lenient", "min_offset", "open_files", "recovered_entry", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, queue_id: int, directory: str, file_size: int, open_files: OpenFiles
    ) -> None:
        super().__init__(queue_id)
        self.topic = topic
        self.directory = directory
        self.file_size = file_size
        self.open_files = open_files
        self.first_start = -1  # stream position of the first file, -1 without files
        self.last_start = -1
        self.min_offset = 0  # queue offset
        self.recovered_entry: QueueEntry | None = None  # the last entry as recovery found it
        self.ext: ConsumeQueueExt | None = None
        self.is_new = False  # its directory was made since the flusher asked last
        self.gap: tuple[int, int] | None = None  # positions between which blanks stand for lost entries
        self.lenient = False  # records of other queues, or under other offsets, were found to belong here
        self._files: dict[int, MappedFile] = {}
        self._first_dirty_start = -1

    # Reading

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message gets."""
        return int(self.end) // ENTRY_SIZE

    def entry(self, queue_offset: int) -> QueueEntry | None:
        found = self.entries_at(queue_offset * ENTRY_SIZE)
        return QueueEntry(*ENTRY.unpack_from(found[0], found[1])) if found else None

    def entries_at(self, position: int) -> tuple[memoryview, int, int] | None:
        """The file with a stream position, the position in it, the end of its entries; None if gone."""
        if not max(self.first_start, 0) <= position < self.end:
            return None
        start = position - position % self.file_size
        try:
            view = self._file(start).buffer()
        except StoreError:
            return None  # removed by hand: readers step over it
        return view, position - start, min(self.end - start, self.file_size)

    def read_rest(self, position: int, size_max: int) -> memoryview | None:
        """Entries from a position on, within one file; None if they are gone."""
        found = self.entries_at(position)
        return found[0][found[1] : min(found[1] + size_max, found[2])] if found is not None else None

    def last_entry(self) -> QueueEntry | None:
        return self.entry(self.max_offset - 1) if self.end > 0 and self.last_start >= 0 else None

    # Writing

    def append_slowly(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        expected = queue_offset * ENTRY_SIZE
        if self.last_start < 0:
            self._begin(expected)
        elif expected < self.end and queue_offset:
            return False
        elif 0 < expected - self.end <= GAP_ENTRIES_MAX * ENTRY_SIZE:
            # Entries were lost (a crash took pages that the checkpoint had promised). The original writes the
            # new one here and is off by the gap for ever; we keep queue offsets true. Recovery looks for them in
            # the log, readers pass the blanks.
            self.gap = (self.end, expected)
            self._fill(expected)
        self._write(ENTRY.pack(physical_offset, size, tags_code))
        self.max_physical_offset = physical_offset + size
        return True

    def _begin(self, position: int) -> None:
        start = position - position % self.file_size
        os.makedirs(self.directory, exist_ok=True)
        self.is_new = True
        self._add_file(start)
        self.first_start = self.end = start
        if position > 0:
            self.min_offset = position // ENTRY_SIZE
            self._fill(position)

    def _fill(self, position: int) -> None:
        """Blank entries up to a position."""
        while self.end < position:
            self._write(_BLANK_ENTRY)
            at, count = self.end - self.file_start, (min(position, self.limit) - self.end) // ENTRY_SIZE
            if count > 0:
                self.view[at : at + count * ENTRY_SIZE] = _BLANK_ENTRY * count
                self.end += count * ENTRY_SIZE

    def _write(self, entry: bytes) -> None:
        if self.end + ENTRY_SIZE > self.limit:
            self._extend()
        at = self.end - self.file_start
        self.view[at : at + ENTRY_SIZE] = entry
        self.end += ENTRY_SIZE
        self.used = True

    def rewrite(self, queue_offset: int, entry: QueueEntry) -> None:
        """Replace an entry that is wrong."""
        position = queue_offset * ENTRY_SIZE
        start = position - position % self.file_size
        ENTRY.pack_into(self._file(start).buffer(), position - start, *entry)
        if self._first_dirty_start < 0 or start < self._first_dirty_start:
            self._first_dirty_start = start

    def _extend(self) -> None:
        """Map the tail file with blocks for at least one more entry. Raises StoreError."""
        if self.end == self.last_start + self.file_size:
            self._add_file(self.end)
        file = self._file(self.last_start)
        view = file.buffer()
        at = self.end - self.last_start
        file.allocated = max(file.allocated, at - at % PAGE_SIZE)
        try:
            step = max(PAGE_SIZE, min(file.allocated, ALLOCATION_STEP_MAX))
            file.ensure_allocated(at + ENTRY_SIZE, step)
        except OSError as error:
            raise StoreError(
                f"The ConsumeQueue file {file.path} cannot grow ({error.strerror}): free space on its disk."
            ) from error
        ready_to = min(file.allocated, at - at % PAGE_SIZE + READY_SIZE)
        if at:  # a queue with a few entries needs its first page only
            make_ready(view[at:ready_to], READY_SIZE)
        file.owner = self
        self.attach(view, self.last_start, self.last_start + ready_to)
        if self._first_dirty_start < 0:
            self._first_dirty_start = self.last_start

    def _add_file(self, start: int) -> None:
        file = MappedFile(self.path_of(start), start, self.file_size, self.open_files, scattered=True)
        try:
            file.create_mapped(PAGE_SIZE)
        except OSError as error:
            raise StoreError(
                f"The ConsumeQueue file {file.path} cannot be created ({error.strerror}): "
                "free space on its disk and check who may write there."
            ) from error
        self._release_tail()
        self._files[start] = file
        self.last_start = start

    def _release_tail(self) -> None:
        old = self._files.get(self.last_start)
        if old is not None:
            old.owner = None
        self.detach()

    def _file(self, start: int) -> MappedFile:
        file = self._files.get(start)
        if file is None:
            file = MappedFile(self.path_of(start), start, self.file_size, self.open_files, scattered=True)
            self._files[start] = file
        return file

    def path_of(self, start: int) -> str:
        return f"{self.directory}/{file_name(start)}"

    # Durability

    def take_unsynced(self) -> list[str]:
        """Paths of the files written since the last call; loop thread or flush thread."""
        first, last = self._first_dirty_start, self.last_start
        self.dirty = False
        if last < 0:
            return []
        # The tail stays attached and may be written again without _extend().
        self._first_dirty_start = last
        starts = range(first if first >= 0 else last, last + 1, self.file_size)
        return [self.path_of(start) for start in starts] + (self.ext.take_unsynced() if self.ext else [])

    # Recovery

    def load(self, starts: list[int]) -> None:
        """The files found on disk, sorted; recover() finds the end."""
        if starts:
            self.first_start, self.last_start = starts[0], starts[-1]
            self.min_offset = starts[0] // ENTRY_SIZE

    def recover(self) -> bool:
        """Find the end: the first entry that was never written, in the last three files or an older one with a hole.

        True if more stands behind it: entries are lost. Changes nothing on disk; forget_behind() does.
        """
        if self.last_start < 0:
            return False
        start = self._first_file_to_walk()
        while True:
            position, _ = entries_end(self._file(start).buffer(), 0, self.file_size)
            self.end = start + position
            if position < self.file_size or start >= self.last_start:
                break
            start += self.file_size
        self.note_last()
        return start < self.last_start or self._has_data_behind(start, position)

    def _has_data_behind(self, start: int, position: int) -> bool:
        page_end = min(position + -position % PAGE_SIZE, self.file_size)
        if bytes(self._file(start).buffer()[position:page_end]).strip(b"\0"):
            return True
        path = self.path_of(start)
        allocated = os.stat(path).st_blocks * STAT_BLOCK_SIZE
        return allocated > page_end and _has_data(path, page_end, self.file_size)

    def _first_file_to_walk(self) -> int:
        newest = max(self.first_start, self.last_start - (RECOVERED_FILES - 1) * self.file_size)
        for start in range(self.first_start, newest, self.file_size):
            if not looks_full(self.path_of(start), self.file_size):
                return start
        return newest

    def forget_behind(self) -> None:
        """What stands behind the end goes: it would look like entries again as soon as the hole is filled."""
        start = self.end - self.end % self.file_size
        self._drop_files_after(start)
        if start == self.last_start:
            self._cut(self.end)

    def cut_to(self, position: int) -> None:
        """Forget the entries from a position on."""
        while self.last_start > max(position, self.first_start):
            self._drop_last()
        if self.last_start >= position:
            self._drop_last()
        elif self.last_start >= 0:
            self._cut(position)
        self.note_last()

    def truncate(self, physical_offset: int) -> bool:
        """Forget entries of records at or behind an offset (the log was cut); True if there were any."""
        old_end = self.end
        while self.last_start >= 0:
            view = self._file(self.last_start).buffer()
            used = min(self.end - self.last_start, self.file_size)
            keep = first_entry_at(view, used, physical_offset)
            if keep > 0 or used == 0:
                self._cut(self.last_start + keep)
                break
            self._drop_last()
        self.note_last()
        return bool(self.end != old_end)

    def cut_last_entry(self) -> None:
        """Drop the last entry (recovery found that its record is another one)."""
        self._cut(self.end - ENTRY_SIZE)
        if self.end == self.last_start:
            self._drop_last()
        self.note_last()

    def _cut(self, end: int) -> None:
        # Positions alone are not enough: a later recovery would find the old entries valid again.
        self._file(self.last_start).clear_from(end - self.last_start)
        self.end = end
        self._release_tail()
        self._first_dirty_start = self.last_start

    def note_last(self) -> None:
        """The end of the last record, as the last entry says."""
        last = self.recovered_entry = self.last_entry()
        blank = last is None or last.size == BLANK_SIZE_FIELD
        self.max_physical_offset = 0 if last is None or blank else last.physical_offset + last.size
        self.min_offset = min(self.min_offset, self.max_offset)

    def _drop_last(self) -> None:
        start = self.last_start
        self._release_tail()
        self._file(start).delete()
        self._files.pop(start, None)
        if start > self.first_start:
            self.last_start = start - self.file_size
            self.end = start
        else:
            self.first_start = self.last_start = -1
            self.end = 0

    def _drop_files_after(self, start: int) -> None:
        while self.last_start > start:
            self._file(self.last_start).delete()
            self._files.pop(self.last_start, None)
            self.last_start -= self.file_size

    def recover_ext(self) -> None:
        """Bring the extension to the highest address that the entries know; call it when the end is settled."""
        if self.ext is None:
            return
        self.ext.recover()
        for queue_offset in range(self.max_offset - 1, self.min_offset - 1, -1):
            entry = self.entry(queue_offset)
            if entry is not None and is_address(entry.tags_code):
                self.ext.truncate_after(entry.tags_code)
                return
        self.ext.clear()

    # Minimum and removal

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """The first entry of the first file whose record is still in the log; without one nothing changes."""
        found = None
        if min_physical_offset <= 0 <= self.first_start:
            self.min_offset = self.first_start // ENTRY_SIZE  # nothing has left the log: no need to look
        elif self.first_start >= 0:
            found = self.entries_at(self.first_start)
        if found is not None:
            view, _, end = found
            at = first_entry_at(view, end, min_physical_offset)
            if at < end:
                self.min_offset = (self.first_start + at) // ENTRY_SIZE

    def expire(self, min_physical_offset: int) -> list[str]:
        """Let go of files (never the last) whose records have all left the log; paths to delete."""
        expired: list[str] = []
        while 0 <= self.first_start < self.last_start:
            file = self._file(self.first_start)
            last_physical_offset = ENTRY.unpack_from(file.buffer(), self.file_size - ENTRY_SIZE)[0]
            if last_physical_offset >= min_physical_offset:
                break
            file.unmap()
            expired.append(str(file.path))
            del self._files[self.first_start]
            self.first_start += self.file_size
        self.min_offset = max(self.min_offset, self.first_start // ENTRY_SIZE)
        self.correct_min_offset(min_physical_offset)
        first = self.entry(self.min_offset) if self.ext is not None else None
        if self.ext is not None and first is not None and is_address(first.tags_code):
            expired += self.ext.expire(first.tags_code)
        return expired

    def destroy(self) -> None:
        """Remove all files and the directory."""
        self._release_tail()
        if self.ext is not None:
            self.ext.destroy()
        # The last one first: whatever a crash leaves begins where the queue began.
        for start in (
            range(self.last_start, self.first_start - 1, -self.file_size) if self.last_start >= 0 else ()
        ):
            self._file(start).delete()
        self._files.clear()
        self.first_start = self.last_start = self._first_dirty_start = -1
        self.end = self.max_physical_offset = self.min_offset = 0
        self.recovered_entry = self.gap = None
        with contextlib.suppress(OSError):
            os.rmdir(self.directory)


def looks_full(path: str, size: int) -> bool:
    """Has a file its length and no hole, and are its first and last entries written? Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != size or os.lseek(descriptor, 0, os.SEEK_HOLE) < size:
            return False
        return all(any(os.pread(descriptor, 12, at)) for at in (0, size - ENTRY_SIZE))
    finally:
        os.close(descriptor)


def _has_data(path: str, start: int, end: int) -> bool:
    """Is anything but zeros in a part of a file? Holes are not read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return any(
            os.pread(descriptor, to - at, at).strip(b"\0") for at, to in data_extents(descriptor, start, end)
        )
    finally:
        os.close(descriptor)


def first_entry_at(view: memoryview, end: int, physical_offset: int) -> int:
    """Position of the first entry below `end` whose record is at or behind an offset, else `end`.

    Entries of a queue are in the order of the log, so this is a binary search; blank entries have offset 0.
    """
    low, high = 0, end // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if ENTRY.unpack_from(view, middle * ENTRY_SIZE)[0] >= physical_offset:
            high = middle
        else:
            low = middle + 1
    return low * ENTRY_SIZE
