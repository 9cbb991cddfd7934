"""CommitLog: the stream of records of all topics, in fixed-size files named by the offset of their first byte.

One writer, the loop thread: reserve() gives room in the current file, advance() makes what was written visible.
A record never spans two files; what does not fit closes the file with a blank record. Space that is handed out
has blocks on disk. After a cut the rest of the file is zeroed, so that old records cannot come back.
Loop thread, except end_offset, flushed ranges and the list of files, which other threads may read.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from cometmq.errors import StoreError
from cometmq.store.append_cy import write_blank
from cometmq.store.commit_cy import LogEnd
from cometmq.store.config import StoreConfig
from cometmq.store.file_ops import FILE_NAME_DIGITS
from cometmq.store.mapped_file import PAGE_SIZE, MappedFile, OpenFiles, check_length, is_unborn, remove_unborn
from cometmq.store.model import AppendSpace
from cometmq.store.populate import ALLOCATION_STEP, PreparedFile, Preparer, create_log_file
from cometmq.store.scan_cy import BLANK_SIZE, MESSAGE_MAGIC, RECORD_SIZE_MIN

RECORD_HEAD_SIZE = 8  # bytes: length and magic
ADVANCE_STEP = 4 << 20  # bytes after which the preparer hears of the writer's position


class CommitLog(LogEnd):
    view: memoryview  # of the current file
    base: int  # physical offset of its first byte
    position: int  # after its last record

    def __init__(self, config: StoreConfig, open_files: OpenFiles, *, ahead_size: int) -> None:
        super().__init__()
        self.directory: Path = config.commit_log_dir
        self.file_size = config.mapped_file_size_commit_log
        self.open_files = open_files
        self.files: list[MappedFile] = []
        self.error: OSError | None = None  # why the last reserve() failed
        self._current: MappedFile | None = None
        self._limit = 0  # the current file has blocks up to here
        self.finish_batch: Callable[[], None] | None = (
            None  # ends the batch that somebody has begun and not committed
        )
        self._ahead_size = ahead_size
        self.preparer = Preparer(self.directory, self.file_size, ahead_size, open_files.ops)
        self._advance_step = min(ADVANCE_STEP, max(ahead_size // 4, 4096))

    # Where things are

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte that is still there, -1 for an empty log."""
        return self.files[0].start if self.files else -1

    @property
    def end_offset(self) -> int:
        """Physical offset after the last record."""
        return self.base + self.position

    def file_at(self, physical_offset: int) -> MappedFile | None:
        if not self.files:
            return None
        index = (physical_offset - self.files[0].start) // self.file_size
        if not 0 <= index < len(self.files):
            return None
        return self.files[index]

    # Reading

    def read(self, physical_offset: int, size: int) -> memoryview | None:
        """A range within one file, None if it is not there (any more, or yet)."""
        file = self.file_at(physical_offset)
        if file is None or size < 0:
            return None
        at = physical_offset - file.start
        if physical_offset + size > self.end_offset or at + size > self.file_size:
            return None
        return file.buffer()[at : at + size]

    def read_record(self, physical_offset: int) -> memoryview | None:
        """The record at an offset, None if there is none."""
        head = self.read(physical_offset, RECORD_HEAD_SIZE)
        if head is None or int.from_bytes(head[4:], "big") != MESSAGE_MAGIC:
            return None
        size = int.from_bytes(head[:4], "big")
        return self.read(physical_offset, size) if size >= RECORD_SIZE_MIN else None

    def read_rest(self, physical_offset: int, size_max: int) -> memoryview | None:
        """What there is from an offset on, within one file, blank tails included; empty at the end of the log."""
        file = self.file_at(physical_offset)
        if file is None:
            return memoryview(b"") if physical_offset == self.end_offset else None
        at = physical_offset - file.start
        readable = min(self.end_offset - file.start, self.file_size)
        return file.buffer()[at : max(at, min(at + size_max, readable))]

    # Writing

    def reserve(self, size: int) -> AppendSpace | None:
        """Room for `size` bytes of records; None with `error` set if the disk does not give it."""
        self._end_batch()
        if self.position + size + BLANK_SIZE > self._limit and not self._make_room(size):
            return None
        return AppendSpace(self.view, self.position, self._limit - BLANK_SIZE, self.base)

    def _end_batch(self) -> None:
        """Whoever has room reserved here loses it now: the end of the log moves."""
        if self.finish_batch is not None:
            self.finish_batch()

    def write_raw(self, physical_offset: int, data: memoryview) -> int:
        """Bytes of a master's log at exactly the end of ours; how many were taken (up to the end of the file)."""
        self._end_batch()
        if self._current is None or self.position == self.file_size:
            if not self._open_next(physical_offset - physical_offset % self.file_size):
                raise StoreError(f"The commit log cannot grow in {self.directory} ({self.error}).")
            self.position = physical_offset - self.base
        size = min(len(data), self.file_size - self.position)
        if not self._allocate(self.position + size):
            raise StoreError(f"The commit log cannot grow in {self.directory} ({self.error}).")
        self.view[self.position : self.position + size] = data[:size]
        self.advance(self.position + size)
        return size

    def _make_room(self, size: int) -> bool:
        if self._current is None:
            return self._open_next(0) and self._allocate(size + BLANK_SIZE)
        needed = self.position + size + BLANK_SIZE
        if needed <= self.file_size:
            return self._allocate(needed)
        view, position = self.view, self.position
        # The next file first: if the disk is full the log stays as it is and goes on when there is room.
        if not self._open_next(self.base + self.file_size):
            return False
        if position < self.file_size:
            write_blank(view, position, self.file_size)
        return self._allocate(size + BLANK_SIZE)

    def _allocate(self, end: int) -> bool:
        assert self._current is not None
        file = self._current
        file.allocated = max(file.allocated, self.preparer.allocated(file.start))
        try:
            file.ensure_allocated(end, ALLOCATION_STEP)
        except OSError as error:
            self.error = error
            return False
        self._limit = file.allocated
        return True

    def _open_next(self, start: int) -> bool:
        """Make the file at `start` the current one."""
        try:
            prepared = self.preparer.take(start) or self._create(start)
        except OSError as error:
            self.error = error
            return False
        file = MappedFile(self.directory / f"{start:020d}", start, self.file_size, self.open_files)
        file.adopt(prepared.mapped, prepared.allocated)
        self.files.append(file)
        self._use(file, 0)
        return True

    def _create(self, start: int) -> PreparedFile:
        if not self.directory.is_dir():
            self.directory.mkdir(parents=True, exist_ok=True)
            self.open_files.ops.sync_directory(self.directory.parent)
        return create_log_file(self.directory, start, self.file_size, self.open_files.ops)

    def _use(self, file: MappedFile | None, position: int) -> None:
        self._end_batch()
        if self._current is not None:
            self._current.pinned = False
        self._current, self.position = file, position
        if file is None:
            self.view, self.base, self._limit = memoryview(b""), 0, 0
            return
        file.pinned = True
        self.view, self.base, self._limit = file.buffer(), file.start, file.allocated
        self.tell_preparer()

    def tell_preparer(self) -> None:
        file = self._current
        assert file is not None
        self.tell_at = self.position + self._advance_step
        self.preparer.advance(file.path, file.start, self.view, self.position, file.allocated)

    # Life

    def load(self) -> None:
        """Find the files. Raises StoreError for anything that is not a commit log file of the right length."""
        if not self.directory.exists():
            return
        if not self.directory.is_dir():
            raise StoreError(f"The commit log {self.directory} is a file: move it away and start again.")
        with os.scandir(self.directory) as entries:
            newest_first = sorted(entries, key=lambda entry: entry.name, reverse=True)
        starts: list[int] = []
        for entry in newest_first:
            if starts and is_unborn(entry) and not any(map(self._begins_with_data, starts)):
                # A loss of power took its length and left a file that was made ahead, behind it (ours are synced with
                # their length, others' may not be). With zeros in it, recovery finds the end of the log there.
                os.truncate(entry.path, self.file_size)
                starts.append(int(entry.name))
            elif starts or not remove_unborn(entry):
                starts.append(self._check_entry(entry))
        self.files = [
            MappedFile(self.directory / f"{start:020d}", start, self.file_size, self.open_files)
            for start in sorted(starts)
        ]
        self._check_gaps()

    def _begins_with_data(self, start: int) -> bool:
        with open(self.directory / f"{start:020d}", "rb") as file:
            return any(file.read(RECORD_HEAD_SIZE))

    def _check_gaps(self) -> None:
        for file, following in itertools.pairwise(self.files):
            if file.end != following.start:
                raise StoreError(
                    f"The commit log file {self.directory / f'{file.end:020d}'} is missing: "
                    f"restore it, or move {following.path} and all later files away."
                )

    def _check_entry(self, entry: os.DirEntry[str]) -> int:
        if len(entry.name) != FILE_NAME_DIGITS or not entry.name.isdecimal() or not entry.is_file():
            raise StoreError(
                f"{entry.path} is not a commit log file: move it out of the directory and start again."
            )
        check_length(entry.path, entry.stat().st_size, self.file_size)
        if int(entry.name) % self.file_size:
            raise StoreError(
                f"The commit log file {entry.path} does not begin at a multiple of mappedFileSizeCommitLog "
                f"({self.file_size}): set the option to what the store was made with."
            )
        return int(entry.name)

    def truncate(self, end_offset: int) -> None:
        """Make this the end of the log: later files are deleted, the rest of its file is zeroed."""
        while self.files and self.files[-1].start > end_offset:
            self.files.pop().delete()
        if self.files and self.files[-1].start == end_offset and len(self.files) > 1:
            # An empty last file (made ahead) is of no use; it is made again when it is needed.
            self.files.pop().delete()
        if not self.files:
            self._use(None, 0)
            return
        file = self.files[-1]
        if end_offset < file.end:
            file.clear_from(end_offset - file.start)
        self.end_at(end_offset)

    def cut(self, end_offset: int) -> None:
        """As truncate(), while the log is in use."""
        self._renew_preparer()
        self.truncate(end_offset)
        if self._current is None:
            self.position = 0
        self.preparer.start()

    def forget_files(self) -> None:
        """Begin without any file, while in use; the files themselves stay where they are."""
        self._renew_preparer()
        for file in self.files:
            file.unmap()
        self.files = []
        self._use(None, 0)
        self.preparer.start()

    def _renew_preparer(self) -> None:
        """A file made ahead stands where the log will not come by soon: it would look like a gap at the next start."""
        self.stop()
        self.preparer = Preparer(self.directory, self.file_size, self._ahead_size, self.open_files.ops)

    def end_at(self, end_offset: int) -> None:
        """Go on writing at this offset of the last file; what lies behind is known to be zero."""
        file = self.files[-1]
        position = min(end_offset - file.start, self.file_size)
        file.allocated = max(file.allocated, position - position % PAGE_SIZE)
        self._use(file, position)

    def remove_first(self) -> MappedFile | None:
        """Take the oldest file out of the log (never the current one); the caller deletes it."""
        if len(self.files) < 2:
            return None
        file = self.files.pop(0)
        file.unmap()
        return file

    def stop(self) -> None:
        """End the thread and remove a file that was made ahead, as the original does at an orderly stop."""
        unused = self.preparer.stop()
        if unused is not None:
            self.open_files.ops.unlink(self.directory / f"{unused.start:020d}")

    def abandon(self) -> None:
        """Let go of everything as a killed process would."""
        self.preparer.stop()
        self._use(None, 0)
        self.files = []
