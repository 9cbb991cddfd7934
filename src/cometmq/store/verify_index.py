"""The part of verify that holds the index against the log: two sequences in the order of the log, merged.

The dispatcher puts the keys of records here as it would put them into an index. An entry of the files without
a record that has this key is an error. A key without an entry is an error inside of the range that an index
file covers, and a note elsewhere (the index was off, or its older files are gone).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cometmq.store.index_cy import ENTRY_SIZE
from cometmq.store.index_file import IndexHeader, IndexShape
from cometmq.store.read_only import Segment

# harmless, path, physical offset, text
Note = Callable[[bool, Path | str, int | None, str], None]

_ENTRY = struct.Struct(">iqii")


class IndexEntry(NamedTuple):
    physical_offset: int
    key_hash: int
    path: Path
    number: int


class IndexMerge:
    """Has the ``put`` of an index; give it to the dispatcher, then ``finish``."""

    def __init__(
        self, files: Iterable[tuple[Segment, IndexShape]], log_start: int, log_end: int, note: Note
    ) -> None:
        self._files = [(segment, shape, IndexHeader.parse(segment.view())) for segment, shape in files]
        self._entries = self._in_order(self._read(log_start))
        self._log_end = log_end
        self._note = note
        self._next = next(self._entries, None)
        self._offset = -1  # of the record whose keys are being collected
        self._hashes: set[int] = set()
        self._outside_count = 0
        self._outside_first = -1
        self.key_count = 0
        self.goes_on_at: tuple[Path, int] | None = None  # entry behind the end of the log

    def put(self, keys: memoryview, count: int) -> None:
        """Keys of good records, in the order of the log."""
        self.key_count += count
        hashes = keys[0 : 3 * count].tolist()
        for at in range(0, 3 * count, 3):
            if hashes[at + 1] != self._offset:
                self._settle()
                self._offset = hashes[at + 1]
            self._hashes.add(hashes[at])

    def finish(self) -> None:
        """All records have been seen."""
        self._settle()
        while self._next is not None and self._next.physical_offset < self._log_end:
            self._complain(self._next)
            self._next = next(self._entries, None)
        if self._next is not None:
            self.goes_on_at = (self._next.path, self._next.physical_offset)
        if self._outside_count:
            text = (
                f"{keys_text(self._outside_count)} of records from this physical offset on in no index file"
            )
            self._note(True, "index", self._outside_first, text)

    def _read(self, log_start: int) -> Iterator[IndexEntry]:
        for segment, shape, header in self._files:
            view = segment.view()
            first, last = (shape.entries_at + ENTRY_SIZE * number for number in (1, header.index_count))
            fields = _ENTRY.iter_unpack(view[first:last])
            for number, (key_hash, offset, _seconds, _previous) in enumerate(fields, 1):
                if offset >= log_start:
                    yield IndexEntry(offset, key_hash, segment.path, number)

    def _in_order(self, entries: Iterator[IndexEntry]) -> Iterator[IndexEntry]:
        """Entries ascend with the log; one that does not is damaged, and must not spoil the others."""
        kept = -1
        pending = next(entries, None)
        for entry in entries:
            assert pending is not None
            if entry.physical_offset >= pending.physical_offset:
                yield pending
                kept, pending = pending.physical_offset, entry
            elif entry.physical_offset < kept:
                self._complain(entry)
            else:
                self._complain(pending)
                pending = entry
        if pending is not None:
            yield pending

    def _settle(self) -> None:
        """Compare the keys of one record with the entries of its offset."""
        if self._offset < 0:
            return
        found: set[int] = set()
        while self._next is not None and self._next.physical_offset <= self._offset:
            if self._next.physical_offset == self._offset and self._next.key_hash in self._hashes:
                found.add(self._next.key_hash)
            else:
                self._complain(self._next)
            self._next = next(self._entries, None)
        missing = self._hashes - found
        if missing:
            self._note_missing(len(missing))
        self._hashes.clear()
        self._offset = -1

    def _complain(self, entry: IndexEntry) -> None:
        text = f"entry {entry.number} points to this physical offset, where no record with its key stands"
        self._note(False, entry.path, entry.physical_offset, text)

    def _note_missing(self, count: int) -> None:
        for segment, _shape, header in self._files:
            if header.begin_physical_offset <= self._offset <= header.end_physical_offset:
                text = f"{keys_text(count)} of the record at this physical offset missing"
                self._note(False, segment.path, self._offset, text)
                return
        if not self._outside_count:
            self._outside_first = self._offset
        self._outside_count += count


def keys_text(count: int) -> str:
    return "1 key" if count == 1 else f"{count} keys"
