"""Small files that must survive a power loss: written aside, synced, renamed, and the directory synced. Any thread.

Numbers are big-endian and end with the CRC-32 of what stands before; JSON files carry it in a field.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

from cometmq.directories import sync_directory
from cometmq.errors import StoreError

CRC_FIELD = "crc32"


class DamagedFile(StoreError):
    """What a file says cannot be trusted; the replica is not to be a member with it."""


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file; it has the old content or the new one whatever happens. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(beside, path)
    sync_directory(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """A disk that fills up takes a part first and complains about the rest. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def remove_durably(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        sync_directory(path.parent)


def with_crc(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "big")


def checked(path: Path, data: bytes, size: int) -> bytes:
    """The content before the CRC. Raises DamagedFile."""
    if len(data) != size + 4 or zlib.crc32(data[:size]) != int.from_bytes(data[size:], "big"):
        raise DamagedFile(f"The file {path} is damaged (wrong length or CRC).")
    return data[:size]


def write_json(path: Path, fields: dict[str, Any]) -> None:
    write_durably(path, json.dumps({**fields, CRC_FIELD: _json_crc(fields)}, indent=1).encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """None without a file. Raises DamagedFile."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        fields: dict[str, Any] = json.loads(data)
        crc = fields.pop(CRC_FIELD)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedFile(f"The file {path} is damaged: {error}.") from error
    if crc != _json_crc(fields):
        raise DamagedFile(f"The file {path} is damaged (wrong CRC).")
    return fields


def _json_crc(fields: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())
