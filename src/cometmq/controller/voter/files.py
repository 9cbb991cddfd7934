"""Writing small files so that a crash leaves the old or the new content, and nothing else. A failed sync is final.

After a failed fsync the kernel may drop the pages and report success the next time: whoever gets DiskFailed must stop
and must not try again.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from cometmq.directories import sync_directory
from cometmq.errors import StoreError

_HEAD = struct.Struct(">III")  # magic, length, crc32 of the content


class DiskFailed(StoreError):
    """Something could not be written or synced; what is on disk is not known any more."""


class Damaged(StoreError):
    """A file is not what was written."""


def replace_file(path: Path, content: bytes) -> None:
    """Durable when it returns."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise DiskFailed(f"{path} could not be written: {error}.") from error


def write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def seal(magic: int, content: bytes) -> bytes:
    """The content behind a head that tells whether it is whole."""
    return _HEAD.pack(magic, len(content), zlib.crc32(content)) + content


def unseal(magic: int, sealed: bytes, path: Path) -> bytes:
    content = sealed[_HEAD.size :]
    if len(sealed) < _HEAD.size or _HEAD.unpack_from(sealed) != (magic, len(content), zlib.crc32(content)):
        raise Damaged(f"{path} is damaged.")
    return content
