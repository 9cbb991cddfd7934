"""StoreLog: the log of a replica as its state machine sees it, over the real store. Loop thread only.

Frames hold whole records, so that a log never ends in the middle of one, whoever becomes master. A disk that fails
raises: what is not surely on disk must not be told to anybody.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from cometmq.broker.ha.epoch_file import EpochFile
from cometmq.broker.ha.epochs import Epochs
from cometmq.broker.ha.member_files import DAMAGED_PREFIX
from cometmq.broker.ha.truncation import Truncation
from cometmq.errors import StoreError
from cometmq.store.residency_cy import is_resident
from cometmq.store.scan_cy import BLANK_SIZE, scan_records
from cometmq.store.store import MessageStore

COLD_DISTANCE = 16 << 20  # bytes from the end of the log beyond which pages may have left memory

log = logging.getLogger(__name__)


class ForeignLog(StoreError):
    """The store was never a replica's, and the group has another log."""


class StoreLog:
    def __init__(
        self, store: MessageStore, epochs: EpochFile, truncation: Truncation, directory: Path
    ) -> None:
        self._store = store
        self._file = epochs
        self._truncation = truncation
        self._directory = directory
        self._begin = 0  # where the first byte will stand while there is none
        self.cold: memoryview | None = None  # what a follower far behind needs and is not in memory
        self._warmed = -1
        self.gone: set[int] = set()  # offsets that were asked for and have left the log

    @property
    def epochs(self) -> Epochs:
        return self._file.epochs

    @property
    def min_offset(self) -> int:
        return max(self._store.min_physical_offset, self._begin)

    @property
    def max_offset(self) -> int:
        return max(self._store.max_physical_offset, self._begin)

    @property
    def flushed_offset(self) -> int:
        return max(self._store.flushed_offset, self._begin)

    def read(self, offset: int, size_max: int) -> memoryview:
        """Whole records from an offset on, within one file; at least one, or the blank end of the file."""
        part = self._store.read_log(offset, size_max)
        if part is None:
            self.gone.add(offset)  # retention was faster than a slow follower
            return memoryview(b"")
        if len(part) < BLANK_SIZE:
            return part
        if self.max_offset - offset > COLD_DISTANCE and offset != self._warmed and not is_resident(part):
            self.cold = part  # somebody reads it in first, in a thread; the second time it is taken as it is
            self._warmed = offset
            return memoryview(b"")
        scan = scan_records(part, 0, len(part), offset, False)
        if scan.end:
            return part[: scan.end]
        size = int.from_bytes(part[:4], "big")
        record = self._store.read_log(offset, size)
        if record is None or len(record) != size or not size:
            raise StoreError(f"The log has no record at offset {offset}.")
        return record

    def append(self, data: bytes | memoryview) -> None:
        self._store.append_raw(self.max_offset, data)

    def truncate(self, offset: int) -> None:
        self._truncation.run(offset)

    def begin_anew(self, offset: int) -> None:
        """The old log is kept: an operator may want to look for what is only there. Raises ForeignLog."""
        if self._store.max_physical_offset:
            if self._is_foreign:
                raise ForeignLog(
                    f"The store has {self._store.max_physical_offset} bytes of log that no group wrote, and this group "
                    "began without them. Nothing was changed. To join as a replica start with an empty "
                    "storePathRootDir; to let a new group begin with this store see docs/ha/groups.md."
                )
            aside = self._directory / f"orphan-{time.strftime('%Y%m%d-%H%M%S')}-{self.max_offset}"
            log.warning("event=LOG_SET_ASIDE it has nothing in common with the master's kept=%s", aside)
            self._store.begin_anew(aside)
        self._truncation.on_cut()
        self._file.save(Epochs())
        self._begin = offset

    @property
    def _is_foreign(self) -> bool:
        """No epoch of any group is known of it, and not because the files that say so were damaged."""
        return not self.epochs.entries and not any(self._directory.glob(f"{DAMAGED_PREFIX}*"))

    def save_epochs(self, epochs: Epochs) -> None:
        self._file.save(epochs)
