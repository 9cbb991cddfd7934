"""Changes of a table since its file was last written: one line each, appended at once.

Rewriting ``topics.json`` with every new topic takes time that grows with the table, so the file is written
some time later. A process that is killed in between must not forget a topic whose messages it has already
taken; the journal keeps it. Lines go to the page cache like the messages themselves: they survive the
process, and the machine as far as the disk got.

``begin_save`` sets aside what the text being written contains, ``end_save`` drops it. A save that failed
leaves it for the next. Loop thread only, apart from ``end_save``.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._saving_path = path.with_name(path.name + ".saving")
        self._descriptor = -1

    def lines(self) -> Iterator[bytes]:
        """Everything noted since the last successful save, oldest first. A line cut off by a crash is left out."""
        for path in (self._saving_path, self._path):
            with contextlib.suppress(FileNotFoundError):
                yield from (line for line in path.read_bytes().split(b"\n")[:-1] if line)

    def add(self, line: str) -> None:
        try:
            if self._descriptor < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(
                    self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
                )
            os.write(self._descriptor, line.encode() + b"\n")
        except OSError as error:
            log.error(
                "the journal %s cannot be written: %s", self._path, error
            )  # the file itself follows soon

    def begin_save(self) -> None:
        self.close()
        if not self._path.exists():
            return
        if self._saving_path.exists():
            with self._saving_path.open("ab") as older:  # the save before this one failed
                older.write(self._path.read_bytes())
            self._path.unlink()
        else:
            self._path.rename(self._saving_path)

    def end_save(self) -> None:
        self._saving_path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
