"""FileOps: the few calls by which the store changes files. Tests hand in a subclass that fails on demand.

Any thread. Errors are plain OSError here; whoever knows what the file was for turns them into a sentence.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

from cometmq.directories import sync_directory

MS_SYNC = 4

_libc = ctypes.CDLL(None, use_errno=True)


class FileOps:
    def create(self, path: Path | str, size: int) -> int:
        """A new sparse file of full length (or the existing one, if it has that length); its descriptor."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < size:
                self.truncate(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open(self, path: Path | str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def allocate(self, descriptor: int, start: int, size: int) -> None:
        """Have real blocks on disk: writing a hole of a mapped file on a full disk kills the process."""
        os.posix_fallocate(descriptor, start, size)

    def sync_length(self, descriptor: int) -> None:
        """Length and blocks of a new file to disk; it has no data yet."""
        os.fdatasync(descriptor)

    def sync(self, descriptor: int) -> None:
        """Data of one file to disk, dirty mapped pages included; releases the interpreter lock."""
        os.fdatasync(descriptor)

    def sync_range(self, descriptor: int, view: memoryview, start: int, end: int) -> None:
        """Data of view[start:end], a mapping of the file, to disk.

        fdatasync would also write the pages that were made ready ahead, and the writer would have to wait for a page
        fault with each of them. ctypes releases the interpreter lock.
        """
        start -= start % mmap.PAGESIZE
        anchor = ctypes.c_char.from_buffer(view, start)
        address = ctypes.c_void_p(ctypes.addressof(anchor))
        failed = _libc.msync(address, ctypes.c_size_t(end - start), MS_SYNC)
        number = ctypes.get_errno()
        del anchor
        if failed:
            raise OSError(number, os.strerror(number))

    def unlink(self, path: Path | str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def sync_directory(self, path: Path | str) -> None:
        """Names of new files to disk."""
        sync_directory(path)


FILE_NAME_DIGITS = 20


def file_name(start: int) -> str:
    """Files are named by the stream position of their first byte."""
    return f"{start:0{FILE_NAME_DIGITS}d}"
