"""The JSON files of a broker: which part is kept where, when it is written, and by whom.

Texts are made on the loop and written in one thread, so the files never stand still for a disk. Many changes
make one write. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from cometmq.errors import StoreError
from cometmq.store.json_files import DirtySaver, JsonFile

log = logging.getLogger(__name__)


class Kept(Protocol):
    """A table that is kept in a file."""

    def file_text(self) -> str: ...

    def load_text(self, data: bytes) -> None: ...


class ConfigFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._savers: dict[str, DirtySaver] = {}
        self._executor: ThreadPoolExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, name: str, part: Kept) -> None:
        """Load a file into its part, and write the part there from now on. Raises StoreError."""
        file = JsonFile(self._directory / name)
        file.load(_loader(part))
        self._savers[name] = DirtySaver(file, part.file_text, submit=self._submit)

    def changed(self, name: str) -> None:
        """Have a file written soon. Before it is kept (while parts are loaded) nothing happens."""
        saver = self._savers.get(name)
        if saver is not None:
            saver.mark()
            self._tick_later()

    def close(self) -> None:
        """Write what is left, in this thread; a file that cannot be written is logged, the others still are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for saver in self._savers.values():
            try:
                saver.close()
            except StoreError as error:
                log.error("%s", error)
        if self._executor is not None:
            self._executor.shutdown()

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


def _loader(part: Kept) -> Callable[[bytes], bool]:
    def load(data: bytes) -> bool:
        part.load_text(data)
        return True

    return load
