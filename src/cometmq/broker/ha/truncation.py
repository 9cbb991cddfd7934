"""``ha/truncate.intent``: a log that is being cut, so that a crash in the middle is made good at the next start.

    8  offset to cut to    8  epoch    4  CRC-32

Order: the intent, the log, queues and index, the epochs, the intent away. Each step is on disk before the next.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from cometmq.broker.ha.durable_file import DamagedFile, checked, remove_durably, with_crc, write_durably
from cometmq.broker.ha.epoch_file import EpochFile
from cometmq.store.store import MessageStore

_LAYOUT = struct.Struct(">QQ")


class Truncation:
    """``on_cut`` clamps what else knows offsets: consumers, delay levels."""

    def __init__(
        self, path: Path, store: MessageStore, epochs: EpochFile, on_cut: Callable[[], None] = lambda: None
    ) -> None:
        self._path = path
        self._store = store
        self._epochs = epochs
        self.on_cut = on_cut

    def run(self, physical_offset: int) -> None:
        """Cut everything back to an offset. Raises OSError or StoreError; the next start then goes on with it."""
        write_durably(self._path, with_crc(_LAYOUT.pack(physical_offset, self._epochs.epochs.last)))
        self._cut(physical_offset)

    def finish_last(self) -> int | None:
        """At start: complete a cut that was begun; the offset if there was one. Raises DamagedFile."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            offset, _ = _LAYOUT.unpack(checked(self._path, data, _LAYOUT.size))
        except DamagedFile as error:
            raise DamagedFile(
                f"{error} A cut of the log was under way: start with an empty storePathRootDir."
            ) from error
        self._cut(int(offset))
        return int(offset)

    def _cut(self, physical_offset: int) -> None:
        if physical_offset < self._store.max_physical_offset:
            self._store.truncate(physical_offset)
        self.on_cut()
        self._epochs.save(self._epochs.epochs.up_to(physical_offset))
        remove_durably(self._path)
