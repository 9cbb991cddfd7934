"""``ha/sums``: checksums of a replica's log, by which bits that flip on its disk are noticed at the next start.

The format of the log has a CRC for the body of a message only; topic, queue, offset and properties have none. What is
confirmed and on disk is summed up piece by piece, about once a second (for what is younger see tail_sums). A wrong
piece, and all behind it, is copied anew from the master, as after any other damage.

    8  start    8  end    4  CRC-32 of the log between them    4  CRC-32 of the 20 bytes before

Pieces hold whole records and follow each other. The file is a help, not a truth: what cannot be read of it is left out.
Sums are made in a thread (``sum_up``), everything else happens on the loop.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cometmq.store.scan_cy import scan_records

PIECE_SIZE_MAX = 1 << 20  # bytes, unless one record is larger
ROUND_SIZE_MAX = 256 << 20  # bytes summed up at a time
CHECKED_SIZE_MAX = 256 << 20  # bytes of log, from its end, that are read at a start
KEPT_COUNT_MAX = 100_000  # pieces; older ones are forgotten at the next start

_PIECE = struct.Struct(">QQI")
_CRC = struct.Struct(">I")
RECORD_SIZE = _PIECE.size + _CRC.size

ReadLog = Callable[[int, int], memoryview | None]

log = logging.getLogger(__name__)


class Piece(NamedTuple):
    start: int
    end: int
    crc: int


class LogSums:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.pieces: list[Piece] = []
        self.version = 0  # of the log: sums of one that was cut meanwhile are void
        self._load()

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else 0

    def first_wrong(self, read: ReadLog) -> int | None:
        """The start of the first piece, of the last ones, that is not what it was."""
        oldest = self.end - CHECKED_SIZE_MAX
        for piece in self.pieces:
            if piece.start >= oldest and not is_right(piece, read):
                return piece.start
        return None

    def unsummed(self, read: ReadLog, begin: int, end: int) -> list[tuple[int, memoryview]]:
        """What is new up to an offset behind a record; for ``sum_up``. ``begin`` is where the log begins."""
        at = self.end if self.pieces and self.end >= begin else begin
        limit, found = min(end, at + ROUND_SIZE_MAX), []
        while at < limit:
            part = read(at, limit - at)  # within one file
            if not part:
                break
            found.append((at, part))
            at += len(part)
        return found

    def add(self, version: int, pieces: Sequence[Piece]) -> None:
        """Keep the outcome of ``sum_up``. Raises OSError."""
        if version != self.version or not pieces:
            return
        if self.pieces and pieces[0].start != self.end:
            self.pieces = []  # the log begins later now
        self.pieces += pieces
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, b"".join(map(encode_piece, pieces)))
        finally:
            os.close(descriptor)

    def cut(self, physical_offset: int) -> None:
        """The log was cut there. Raises OSError."""
        self.version += 1
        if self.end > physical_offset:
            self.pieces = [piece for piece in self.pieces if piece.end <= physical_offset]
            self._save()

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        pieces: list[Piece] = []
        for at in range(0, len(data) - RECORD_SIZE + 1, RECORD_SIZE):
            piece = decode_piece(data[at : at + RECORD_SIZE])
            if piece is None:
                break
            if pieces and piece.start != pieces[-1].end:
                pieces = []
            pieces.append(piece)
        self.pieces = pieces[-KEPT_COUNT_MAX:]
        if len(data) != RECORD_SIZE * len(self.pieces):
            self._save()

    def _save(self) -> None:
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_bytes(b"".join(map(encode_piece, self.pieces)))
        os.replace(beside, self._path)


def sum_up(parts: Sequence[tuple[int, memoryview]]) -> list[Piece]:
    """Any thread."""
    return [piece for start, part in parts for piece in _pieces(start, part)]


def _pieces(start: int, part: memoryview) -> Iterator[Piece]:
    """A part of one file, cut between records."""
    at = 0
    while at < len(part):
        size = _whole_records(part[at : at + PIECE_SIZE_MAX], start + at)
        if not 0 < size <= len(part) - at:
            return  # the round ended in the middle of a record: next time
        yield Piece(start + at, start + at + size, zlib.crc32(part[at : at + size]))
        at += size


def _whole_records(part: memoryview, physical_offset: int) -> int:
    """How many bytes of records a part begins with; of one that does not fit, or a blank end, its size."""
    scan = scan_records(part, 0, len(part), physical_offset, False)
    return scan.end or int.from_bytes(part[:4], "big")


def is_right(piece: Piece, read: ReadLog) -> bool:
    """What has left the log, at either end, is not wrong. A piece may reach from one file into the next."""
    at, crc = piece.start, 0
    while at < piece.end:
        part = read(at, piece.end - at)
        if not part:
            return True
        crc = zlib.crc32(part, crc)
        at += len(part)
    return crc == piece.crc


def encode_piece(piece: Piece) -> bytes:
    body = _PIECE.pack(*piece)
    return body + _CRC.pack(zlib.crc32(body))


def decode_piece(data: bytes) -> Piece | None:
    """None if these bytes are no piece."""
    body = data[: _PIECE.size]
    return Piece(*_PIECE.unpack(body)) if _CRC.unpack_from(data, _PIECE.size)[0] == zlib.crc32(body) else None
