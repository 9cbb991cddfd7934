"""``ha/epochs``: which master wrote from which offset on. Records of 32 bytes, appended and synced one by one.

    4  magic 0x48414531    4  CRC-32 of the rest    8  epoch    8  first offset    8  zero

An epoch is in the file before its first byte is in the log. A file that gets shorter is written anew and renamed.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from cometmq.broker.ha.durable_file import DamagedFile, write_all, write_durably
from cometmq.broker.ha.epochs import Epoch, Epochs
from cometmq.directories import sync_directory

MAGIC = 0x48414531

_HEAD = struct.Struct(">II")
_BODY = struct.Struct(">QQQ")
RECORD_SIZE = _HEAD.size + _BODY.size


class EpochFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.exists = path.exists()
        self.epochs = self._load() if self.exists else Epochs()

    def save(self, epochs: Epochs) -> None:
        """Durable when it returns. Raises OSError."""
        old = self.epochs.entries
        if epochs.entries == old and self.exists:
            return
        if self.exists and epochs.entries[: len(old)] == old:
            self._append(b"".join(map(_encode, epochs.entries[len(old) :])))
        else:
            write_durably(self.path, b"".join(map(_encode, epochs.entries)))
        self.epochs = epochs
        self.exists = True

    def _append(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            write_all(descriptor, data)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self.path.parent)

    def _load(self) -> Epochs:
        data = self.path.read_bytes()
        # An append that a crash cut short was never acted upon; after a power loss its length may be there already.
        written = len(data.rstrip(b"\0"))
        whole = min(len(data) - len(data) % RECORD_SIZE, -(-written // RECORD_SIZE) * RECORD_SIZE)
        entries = [_decode(self.path, data[at : at + RECORD_SIZE]) for at in range(0, whole, RECORD_SIZE)]
        try:
            epochs = Epochs(entries)
        except AssertionError as error:
            raise DamagedFile(f"The file {self.path} is damaged: its epochs do not go up.") from error
        if whole < len(data):
            write_durably(self.path, data[:whole])
        return epochs


def _encode(entry: Epoch) -> bytes:
    body = _BODY.pack(entry.epoch, entry.start, 0)
    return _HEAD.pack(MAGIC, zlib.crc32(body)) + body


def _decode(path: Path, record: bytes) -> Epoch:
    magic, crc = _HEAD.unpack_from(record)
    body = record[_HEAD.size :]
    if magic != MAGIC or crc != zlib.crc32(body):
        raise DamagedFile(f"The file {path} is damaged: a record has a wrong magic number or CRC.")
    epoch, start, _ = _BODY.unpack(body)
    return Epoch(epoch, start)
