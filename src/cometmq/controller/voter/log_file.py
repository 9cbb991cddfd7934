"""The log of one voter on disk: records appended and synced, cut at the end, rewritten after a snapshot.

A record, big-endian::

    0   4  length of the payload
    4   4  crc32 of everything else
    8   4  term
    12  8  index
    20  .. payload: kind, then a command or the voters

A crash while appending leaves a record that ends early, or whose last sectors were never written; it was never
answered for and is dropped. Any other bad record is damage: entries may be missing for which this voter has answered.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cometmq.controller.raft.codec import decode_payload, encode_payload
from cometmq.controller.raft.messages import Entry
from cometmq.controller.voter.files import Damaged, DiskFailed, replace_file, write_all

_HEAD = struct.Struct(">IIIQ")
SECTOR_SIZE = 512  # what a disk writes whole
PAYLOAD_SIZE_MAX = 16 << 20


def encode_entry(entry: Entry) -> bytes:
    payload = encode_payload(entry)
    rest = _HEAD.pack(len(payload), 0, entry.term, entry.index)[8:] + payload
    return _HEAD.pack(len(payload), _crc(len(payload), rest), entry.term, entry.index) + payload


def _crc(length: int, rest: bytes) -> int:
    return zlib.crc32(rest, zlib.crc32(length.to_bytes(4, "big")))


class LogFile:
    """Open with ``load``. Every call is durable when it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._ends: dict[int, int] = {}  # index -> where its record ends
        self._size = 0

    def load(self) -> list[Entry]:
        """Read everything, drop what a crash left half-written; raises Damaged."""
        data = self.path.read_bytes() if self.path.exists() else b""
        entries, size = read_records(data, self.path)
        self._open()
        self._remember(entries)
        if size < len(data):
            self._truncate(size)
        return entries

    def append(self, entries: Iterable[Entry]) -> None:
        records = [(entry.index, encode_entry(entry)) for entry in entries]
        try:
            write_all(self._descriptor, b"".join(record for _, record in records))
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise DiskFailed(f"{self.path} could not be written: {error}.") from error
        for index, record in records:
            self._size += len(record)
            self._ends[index] = self._size

    def cut(self, index: int) -> None:
        """Forget entries from this index on."""
        if index not in self._ends:
            return
        size = self._ends.get(index - 1, 0)
        self._ends = {known: end for known, end in self._ends.items() if known < index}
        self._truncate(size)

    def rewrite(self, entries: list[Entry]) -> None:
        """Only these are left."""
        self.close()
        replace_file(self.path, b"".join(map(encode_entry, entries)))
        self._open()
        self._remember(entries)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise DiskFailed(f"{self.path} cannot be opened: {error}.") from error

    def _remember(self, entries: list[Entry]) -> None:
        self._ends, self._size = {}, 0
        for entry in entries:
            self._size += _HEAD.size + len(encode_payload(entry))
            self._ends[entry.index] = self._size

    def _truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise DiskFailed(f"{self.path} could not be cut: {error}.") from error
        self._size = size


def read_records(data: bytes, path: Path) -> tuple[list[Entry], int]:
    """The entries, and how many bytes of the file they are."""
    entries: list[Entry] = []
    position = 0
    while position < len(data):
        entry, end = _record_at(data, position)
        if entry is None:
            if not _is_torn(data, position):
                raise Damaged(f"{path} is damaged at byte {position}, after entry {_last(entries)}.")
            break
        if entries and entry.index != entries[-1].index + 1:
            raise Damaged(f"{path} has entry {entry.index} after entry {_last(entries)}.")
        entries.append(entry)
        position = end
    return entries, position


def _last(entries: list[Entry]) -> int:
    return entries[-1].index if entries else 0


def _record_at(data: bytes, position: int) -> tuple[Entry | None, int]:
    if position + _HEAD.size > len(data):
        return None, position
    length, crc, term, index = _HEAD.unpack_from(data, position)
    end = position + _HEAD.size + length
    if not 0 < length <= PAYLOAD_SIZE_MAX or end > len(data):
        return None, position
    if _crc(length, data[position + 8 : end]) != crc:
        return None, position
    try:
        return decode_payload(index, term, data[position + _HEAD.size : end]), end
    except (ValueError, msgspec.MsgspecError):
        return None, position


def _is_torn(data: bytes, position: int) -> bool:
    """The bad record is the last thing in the file, and is as a crash leaves it: short, or zeros from a sector on."""
    if _has_record_after(data, position):
        return False
    left = len(data) - position - _HEAD.size
    if left <= 0:
        return True
    length: int = _HEAD.unpack_from(data, position)[0]
    crc: int = _HEAD.unpack_from(data, position)[1]
    if 0 < length <= PAYLOAD_SIZE_MAX and length > left:
        return _crc(left, data[position + 8 :]) != crc  # else it is whole, and its length was damaged
    written = len(data[position:].rstrip(b"\0")) + position
    first_unwritten = -(-written // SECTOR_SIZE) * SECTOR_SIZE
    return written == position or first_unwritten < len(data)


def _has_record_after(data: bytes, position: int) -> bool:
    """A whole record anywhere behind a bad one: then it was not the last one that was written."""
    return any(
        _record_at(data, start)[0] is not None for start in range(position + 1, len(data) - _HEAD.size)
    )
