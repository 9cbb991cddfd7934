"""The page cache of a virtual machine, made like that of a machine that has been up for a while.

A virtual machine gets a page from its host when it touches it for the first time, at several times the cost of all
that a broker does with it; once the cache is full, pages are used again. Pages of deleted files go back to the host
within seconds, and so do those that a benchmark drops to read them from disk; so the cache is filled again before each
round (each deletes the store of the one before) and after dropping.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType

READ_SIZE = 16 << 20
LEFT_FREE_SIZE = 256 << 20  # what the kernel keeps free anyway, about


class PageCache:
    """Holds a file without content, whose pages are what fills the cache; nothing at all unless ``wanted``."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._file = tempfile.TemporaryFile(prefix="cometmq-cache-")  # noqa: SIM115 (this object is the context)
        self._filled = False

    def __enter__(self) -> PageCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def fill(self) -> None:
        """Let the cache have all memory that is free now."""
        free = _free_size() - LEFT_FREE_SIZE
        if not self._wanted or free <= 0:
            return
        if not self._filled:
            print("  filling the page cache", flush=True)
            self._filled = True
        begin = self._file.seek(0, 2)
        self._file.truncate(begin + free)
        while self._file.read(READ_SIZE):
            pass


def _free_size() -> int:
    return int(Path("/proc/meminfo").read_text().split("MemFree:")[1].split()[0]) * 1024
