"""``ha/tail-sums``: checksums of what a replica appended last, kept while it appends.

``ha/sums`` has what is confirmed and on disk, a second or two late. A bit that flips in what is younger, outside of a
message's body, would not be noticed by anybody. So each append continues the sum of the current piece, in a page of
memory that the kernel keeps when the process is killed. After a loss of power the page says nothing about the log: it
counts only within the run of the machine whose id it holds.

    64  id of the machine's run, padded with zeros
    then up to 64 times, used in turn:
    8  start    8  end    4  CRC-32 of the log between them    4  CRC-32 of the 20 bytes before

Pieces begin and end between records. The file is a help, not a truth: without it nothing is checked. Loop thread only.
"""

from __future__ import annotations

import logging
import mmap
import os
import zlib
from pathlib import Path

from cometmq.broker.ha.log_sums import RECORD_SIZE, Piece, ReadLog, decode_piece, encode_piece, is_right

PAGE_SIZE = mmap.PAGESIZE
RUN_ID_SIZE = 64
SLOT_COUNT = 64
# Bytes of log after which the next slot is begun: together more than is ever unsummed.
SLOT_LOG_SIZE = 4 << 20

log = logging.getLogger(__name__)


class TailSums:
    def __init__(self, path: Path, machine_run_id: str) -> None:
        self._run_id = machine_run_id.encode()[:RUN_ID_SIZE].ljust(RUN_ID_SIZE, b"\0")
        self._page = _map_page(path)
        self._slot = 0
        self._start = self._end = self._crc = 0

    def first_wrong(self, read: ReadLog) -> int | None:
        """The start of the first piece of the last run that is not what it was."""
        for piece in sorted(self._pieces()):
            if not is_right(piece, read):
                return piece.start
        return None

    def _pieces(self) -> list[Piece]:
        if self._page is None or self._page[:RUN_ID_SIZE] != self._run_id:
            return []
        places = (RUN_ID_SIZE + RECORD_SIZE * number for number in range(SLOT_COUNT))
        found = (decode_piece(self._page[at : at + RECORD_SIZE]) for at in places)
        return [piece for piece in found if piece is not None and piece.start < piece.end]

    def begin(self, physical_offset: int) -> None:
        """The log ends here, and goes on from here: it was opened, or cut."""
        if self._page is not None:
            self._page[RUN_ID_SIZE : RUN_ID_SIZE + RECORD_SIZE * SLOT_COUNT] = bytes(RECORD_SIZE * SLOT_COUNT)
            self._page[:RUN_ID_SIZE] = self._run_id
        self._begin_slot(0, physical_offset)

    def _begin_slot(self, slot: int, physical_offset: int) -> None:
        self._slot = slot
        self._start = self._end = physical_offset
        self._crc = 0

    def grew(self, read: ReadLog, end: int) -> None:
        """Inside an append: whole records stand up to ``end``."""
        if self._page is None or end == self._end:
            return
        if end < self._end:
            self.begin(end)
        while self._end < end:
            part = read(self._end, end - self._end)  # within one file
            if not part:
                self.begin(end)  # another log was begun
                return
            self._crc = zlib.crc32(part, self._crc)
            self._end += len(part)
        at = RUN_ID_SIZE + RECORD_SIZE * self._slot
        self._page[at : at + RECORD_SIZE] = encode_piece(Piece(self._start, self._end, self._crc))
        if self._end - self._start >= SLOT_LOG_SIZE:
            self._begin_slot((self._slot + 1) % SLOT_COUNT, self._end)


def _map_page(path: Path) -> mmap.mmap | None:
    """The page, with a block of its disk; None if there is no room for it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size != PAGE_SIZE:
                os.truncate(descriptor, 0)
                os.posix_fallocate(descriptor, 0, PAGE_SIZE)
            return mmap.mmap(descriptor, PAGE_SIZE)
        finally:
            os.close(descriptor)
    except OSError as error:
        log.warning("no checksums are kept of what was appended last path=%s: %s", path, error)
        return None
