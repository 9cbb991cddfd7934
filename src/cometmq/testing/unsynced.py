"""File calls of a test broker: what it stores survives the process, which is all that a test can end.

Waiting for the disk would take most of the time of a short test.
"""

from __future__ import annotations

from pathlib import Path

from cometmq.store.file_ops import FileOps


class UnsyncedFileOps(FileOps):
    def sync(self, descriptor: int) -> None:
        pass

    def sync_range(self, descriptor: int, view: memoryview, start: int, end: int) -> None:
        pass

    def sync_directory(self, path: Path | str) -> None:
        pass
