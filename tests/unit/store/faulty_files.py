"""FileOps that fail on demand."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from cometmq.store.file_ops import FileOps


class FaultyOps(FileOps):
    """Set an attribute to an errno and the call of that name fails with it, for paths that contain `where`."""

    def __init__(self, where: str = "") -> None:
        self.where = where
        self.fail_create = 0
        self.fail_allocate = 0
        self.fail_sync = 0
        self.sync_count = 0
        self.hold_sync = threading.Event()  # syncs wait while it is cleared
        self.hold_sync.set()
        self._paths: dict[int, str] = {}

    def create(self, path: Path | str, size: int) -> int:
        self._maybe_fail(self.fail_create, str(path))
        descriptor = super().create(path, size)
        self._paths[descriptor] = str(path)
        return descriptor

    def open(self, path: Path | str) -> int:
        descriptor = super().open(path)
        self._paths[descriptor] = str(path)
        return descriptor

    def allocate(self, descriptor: int, start: int, size: int) -> None:
        self._maybe_fail(self.fail_allocate, self._paths[descriptor])
        super().allocate(descriptor, start, size)

    def sync(self, descriptor: int) -> None:
        self._before_sync(descriptor)
        super().sync(descriptor)

    def sync_range(self, descriptor: int, view: memoryview, start: int, end: int) -> None:
        self._before_sync(descriptor)
        super().sync_range(descriptor, view, start, end)

    def _before_sync(self, descriptor: int) -> None:
        self.hold_sync.wait(10)
        self._maybe_fail(self.fail_sync, self._paths[descriptor])
        self.sync_count += 1

    def _maybe_fail(self, number: int, path: str) -> None:
        if number and self.where in path:
            raise OSError(number, os.strerror(number), path)


NO_SPACE = errno.ENOSPC
IO_ERROR = errno.EIO
