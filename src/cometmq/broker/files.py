"""The JSON files of a broker: which part is kept where, when it is written, and by whom.

Texts are made on the loop and written in one thread, so the files never stand still for a disk. Many changes
make one write. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from cometmq.broker.journal import Journal
from cometmq.errors import CometMQError, StoreError
from cometmq.store.json_files import DirtySaver, JsonFile

log = logging.getLogger(__name__)


class Kept(Protocol):
    """A table that is kept in a file."""

    def file_text(self) -> str: ...

    def load_text(self, data: bytes) -> None: ...


class Journaled(Kept, Protocol):
    """A table whose changes are noted one by one until its file is written."""

    def journal_line(self, name: str) -> str: ...

    def load_journal_line(self, data: bytes) -> None: ...


class ConfigFiles:
    def __init__(self, directory: Path, *, synced: bool = True) -> None:
        self._directory = directory
        self._synced = synced
        self._savers: dict[str, DirtySaver] = {}
        self._journals: dict[str, tuple[Journal, Journaled]] = {}
        self._executor: ThreadPoolExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, name: str, part: Kept) -> None:
        """Load a file into its part, and write the part there from now on. Raises StoreError."""
        file = JsonFile(self._directory / name, synced=self._synced)
        file.load(_loader(part))
        self._savers[name] = DirtySaver(file, part.file_text, submit=self._submit)

    def keep_with_journal(self, name: str, part: Journaled) -> None:
        """As ``keep``, and no change that was reported to ``changed`` by name is lost with the process."""
        journal = Journal(self._directory / f"{name}.journal")
        file = JsonFile(self._directory / name, synced=self._synced)
        file.load(_loader(part))
        lines = list(journal.lines())
        for line in lines:
            _load_line(part, line)
        journal.open()

        def render() -> str:
            journal.mark()
            return part.file_text()

        def submit(save: Callable[[], None]) -> object:
            loop = asyncio.get_running_loop()
            return self._submit(lambda: self._save_and_switch(save, name, loop))

        self._savers[name] = DirtySaver(file, render, submit=submit)
        self._journals[name] = (journal, part)
        if lines:
            self.changed(name)

    def _save_and_switch(self, save: Callable[[], None], name: str, loop: asyncio.AbstractEventLoop) -> None:
        """In the thread: what the written text contains need not be remembered any more."""
        saver = self._savers[name]
        errors = saver.error_count
        save()
        if saver.error_count == errors:
            journal = self._journals[name][0]
            with contextlib.suppress(
                OSError, RuntimeError
            ):  # no new file, or the loop has ended: the old one serves
                loop.call_soon_threadsafe(journal.switch, *journal.prepare())

    def changed(self, name: str, entries: Iterable[str] = ()) -> None:
        """Have a file written soon; with a journal, note the changed entries now.

        Before the file is kept (while parts are loaded) nothing happens.
        """
        if name in self._journals:
            journal, part = self._journals[name]
            for entry in entries:
                journal.add(part.journal_line(entry))
        saver = self._savers.get(name)
        if saver is not None:
            saver.mark()
            self._tick_later()

    def close(self) -> None:
        """Write what is left, in this thread; a file that cannot be written is logged, the others still are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsaved = set()
        for name, saver in self._savers.items():
            try:
                saver.close()
            except StoreError as error:
                unsaved.add(name)
                log.error("%s", error)
        if self._executor is not None:
            self._executor.shutdown()
        for name, (journal, _) in self._journals.items():
            journal.close(everything_saved=name not in unsaved)

    def _submit(self, work: Callable[[], None]) -> object:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="config-files")
        return self._executor.submit(work)

    def _tick_later(self) -> None:
        """The saver joins changes that follow each other closely: look again when the pause is over."""
        waiting = [saver for saver in self._savers.values() if saver.dirty]
        if waiting and self._timer is None:
            delay_s = max(saver.interval_ms for saver in waiting) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for saver in self._savers.values():
            saver.tick()
        self._tick_later()


def _load_line(part: Journaled, line: bytes) -> None:
    try:
        part.load_journal_line(line)
    except CometMQError as error:
        log.warning("a line of the journal is left out: %s", error)


def _loader(part: Kept) -> Callable[[bytes], bool]:
    def load(data: bytes) -> bool:
        part.load_text(data)
        return True

    return load
