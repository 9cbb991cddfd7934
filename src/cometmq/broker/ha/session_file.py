"""``ha/session``: did this machine keep what the last run wrote? And a number that grows with every start.

A replica that comes back after a crash of its process has everything it wrote, because the kernel kept the pages. One
whose *machine* went down without an orderly stop may lack bytes it has acknowledged: it must say so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cometmq.broker.ha.durable_file import DamagedFile, read_json, write_json

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
SESSION_BITS = 20  # connections of one start


def kernel_boot_id() -> str:
    try:
        return BOOT_ID_FILE.read_text().strip()
    except OSError:
        return "unknown"  # never equal to a real one: the careful side


@dataclass(slots=True)
class SessionFile:
    path: Path
    boot_id: str
    unclean: bool  # pages of the last run may be lost
    number: int  # of this start

    @classmethod
    def begin(cls, path: Path, boot_id: str = "") -> SessionFile:
        """Note that a run has begun. Raises OSError."""
        boot_id = boot_id or kernel_boot_id()
        try:
            last = read_json(path)
        except DamagedFile:
            last = {}
        # Wall-clock seconds only keep the number growing when the file was lost.
        number = max(int((last or {}).get("number", 0)) + 1, int(time.time()))
        unclean = last is not None and not last.get("clean") and last.get("bootId") != boot_id
        session = cls(path, boot_id, unclean, number)
        session._save(clean=False, max_offset=0, flushed_offset=0)
        return session

    @property
    def first_connection(self) -> int:
        return self.number << SESSION_BITS

    def end(self, max_offset: int, flushed_offset: int) -> None:
        """An orderly stop: everything is on disk."""
        self._save(clean=True, max_offset=max_offset, flushed_offset=flushed_offset)

    def _save(self, *, clean: bool, max_offset: int, flushed_offset: int) -> None:
        write_json(
            self.path,
            {
                "bootId": self.boot_id,
                "clean": clean,
                "number": self.number,
                "maxOffset": max_offset,
                "flushedOffset": flushed_offset,
            },
        )
