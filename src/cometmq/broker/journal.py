"""Changes of a table since its file was last written: one line each, appended at once.

Rewriting ``topics.json`` with every new topic takes time that grows with the table, so the file is written
some time later. A process that is killed in between must not forget a topic whose messages it has already
taken; the journal keeps it. Lines go to the page cache like the messages themselves: they survive the
process, and the machine as far as the disk got.

Theory of operation. A journal is a file with a number in its name. ``mark`` is called when the text of the
table is made. ``prepare`` (in the thread that wrote the text) removes files older than the current one and
makes the next; ``switch`` (on the loop) copies the lines since the mark there and goes on with it. So the
loop only ever appends, and whatever moment a crash picks, the lines of all files in the order of their
numbers lead to the present state: a line says what an entry *is*, so reading one again does no harm.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)


class Journal:
    """Loop thread only, apart from ``prepare``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._descriptor = -1
        self._since_mark: list[str] = []

    def lines(self) -> Iterator[bytes]:
        """Everything noted since the last successful save. A line cut off by a crash is left out."""
        for path in self._files():
            yield from (line for line in path.read_bytes().split(b"\n")[:-1] if line)

    def open(self) -> None:
        """Begin a new file behind those that are there."""
        files = self._files()
        self._number = int(files[-1].suffix[1:]) + 1 if files else 1
        self._descriptor = self._create(self._number)

    def add(self, line: str) -> None:
        self._since_mark.append(line)
        self._write(self._descriptor, [line])

    def mark(self) -> None:
        """A text of the whole table is being made: it contains every line so far."""
        self._since_mark = []

    def prepare(self) -> tuple[int, int]:
        """In the thread, when the text of the last ``mark`` is on disk: the next file, for ``switch``."""
        number = self._number + 1
        _remove([path for path in self._files() if int(path.suffix[1:]) < self._number])
        return number, self._create(number)

    def switch(self, number: int, descriptor: int) -> None:
        """Go on with the file of ``prepare``."""
        if self._descriptor < 0:  # closed meanwhile
            os.close(descriptor)
            return
        self._write(descriptor, self._since_mark)
        os.close(self._descriptor)
        self._number, self._descriptor = number, descriptor

    def close(self, *, everything_saved: bool) -> None:
        """With everything saved nothing is left to remember."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if everything_saved:
            _remove(self._files())

    def _files(self) -> list[Path]:
        found = [path for path in self._path.parent.glob(f"{self._path.name}.*") if path.suffix[1:].isdigit()]
        return sorted(found, key=lambda path: int(path.suffix[1:]))

    def _create(self, number: int) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        path = self._path.with_name(f"{self._path.name}.{number}")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _write(self, descriptor: int, lines: list[str]) -> None:
        if not lines:
            return
        try:
            os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            log.error(
                "the journal %s cannot be written: %s", self._path, error
            )  # the file itself follows soon


def _remove(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
