"""A walk through commit log files that does not end at the first damage: good ranges and bad ones in turn.

Recovery stops where the log stops being good; people who look at a broken store want to know what comes
behind. A walk finds the next good record by its magic number and by the physical offset that it holds. Reads
only.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from cometmq.store.read_only import Segment, Stream
from cometmq.store.scan_cy import (
    MESSAGE_MAGIC,
    REASONS,
    STOP_BAD,
    STOP_BLANK,
    STOP_ZERO,
    Scan,
    scan_records,
)

CHUNK_SIZE = 32 << 20  # bytes per step, for progress and for little memory; larger than any record
# Bytes copied at a time to look for a magic number: much faster than a search in the map
SEARCH_SIZE = 1 << 20
CUT_REASON = REASONS[1]
ZERO_REASON = "the bytes are zero although good records follow"

_MAGIC = struct.pack(">I", MESSAGE_MAGIC)
_ZEROS = bytes(SEARCH_SIZE + len(_MAGIC) - 1)


class Piece(NamedTuple):
    """A stretch of one file: good records if ``reason`` is empty, else what is wrong with it."""

    segment: Segment
    view: memoryview
    start: int  # position in the file
    end: int
    record_count: int = 0
    first_store_timestamp_ms: int = 0
    last_store_timestamp_ms: int = 0
    reason: str = ""

    @property
    def physical_offset(self) -> int:
        return self.segment.start + self.start

    @property
    def physical_end(self) -> int:
        return self.segment.start + self.end

    @property
    def to_end_of_file(self) -> bool:
        """Damage with nothing good behind it in this file."""
        return bool(self.reason) and self.end == self.segment.size


def walk_log(stream: Stream, physical_offset: int = 0, *, check_crc: bool) -> Iterator[Piece]:
    """All pieces from the record at an offset on (or from the first record behind it)."""
    for segment in stream.segments:
        if segment.end > physical_offset:
            yield from walk_segment(segment, max(physical_offset - segment.start, 0), check_crc=check_crc)


def walk_segment(
    segment: Segment,
    position: int = 0,
    end: int | None = None,
    *,
    check_crc: bool,
    chunk_size: int = CHUNK_SIZE,
) -> Iterator[Piece]:
    """Pieces of one file, at most ``chunk_size`` long unless a record is longer; the last may reach beyond ``end``."""
    mapped = segment.map()
    if mapped is None:
        return
    view = memoryview(mapped)
    end = segment.size if end is None else end
    while position < end:
        limit = min(position + chunk_size, segment.size)
        scan = scan_records(view, position, limit, segment.start, check_crc, segment.size)
        if scan.end == position and chunk_size < CHUNK_SIZE and scan.reason == CUT_REASON:
            limit = min(position + CHUNK_SIZE, segment.size)
            scan = scan_records(view, position, limit, segment.start, check_crc, segment.size)
        if scan.end > position:
            yield _good(segment, view, position, scan)
        cut_by_us = scan.stop == STOP_BAD and scan.reason == CUT_REASON and limit < segment.size
        if scan.stop == STOP_BLANK or scan.end >= end:
            return
        if scan.stop in (STOP_BAD, STOP_ZERO) and not (cut_by_us and scan.end > position):
            found = next_record(mapped, view, scan.end + 1, segment)
            if found is None and scan.stop == STOP_ZERO:
                return
            position = segment.size if found is None else found
            yield Piece(segment, view, scan.end, position, reason=scan.reason or ZERO_REASON)
        else:
            position = scan.end


def next_record(mapped: mmap.mmap, view: memoryview, position: int, segment: Segment) -> int | None:
    """Position of the first good record at or behind a position."""
    end = data_end(segment, position)
    found = _find_magic(mapped, position + 4, end)
    while found >= 0:
        start = found - 4
        limit = min(start + CHUNK_SIZE, segment.size)
        if scan_records(view, start, limit, segment.start, False, segment.size).count:
            return start
        found = _find_magic(mapped, found + 1, end)
    return None


def data_end(segment: Segment, position: int) -> int:
    """Where a file's last data behind a position ends: the file system knows holes, which need not be read."""
    if not hasattr(os, "SEEK_DATA"):
        return segment.size
    try:
        with segment.path.open("rb") as file:
            while position < segment.size:
                position = os.lseek(file.fileno(), position, os.SEEK_DATA)
                position = os.lseek(file.fileno(), position, os.SEEK_HOLE)
    except OSError as error:
        return position if error.errno == errno.ENXIO else segment.size
    return segment.size


def _find_magic(mapped: mmap.mmap, position: int, end: int) -> int:
    """Most of what is searched are the zeros behind the last record: they are compared, which is much faster."""
    while position < end:
        chunk = mapped[position : position + SEARCH_SIZE + len(_MAGIC) - 1]
        found = -1 if chunk == _ZEROS else chunk.find(_MAGIC)
        if found >= 0:
            return position + found
        position += SEARCH_SIZE
    return -1


def log_end(stream: Stream) -> tuple[int, int]:
    """Physical offset after the last good record, and its store time (0 without one). Quick: one or two files."""
    end, time_ms = stream.start, 0
    for segment in reversed(stream.segments):
        pieces = [piece for piece in walk_segment(segment, check_crc=False) if not piece.reason]
        if pieces:
            return pieces[-1].physical_end, pieces[-1].last_store_timestamp_ms
    return end, time_ms


def _good(segment: Segment, view: memoryview, start: int, scan: Scan) -> Piece:
    return Piece(
        segment,
        view,
        start,
        scan.end,
        scan.count,
        scan.first_store_timestamp_ms,
        scan.last_store_timestamp_ms,
    )
