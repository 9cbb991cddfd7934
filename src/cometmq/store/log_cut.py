"""LogCut: takes the end off a log that is in use, on every file that knows of it, and brings that to disk.

A replica whose log differs from its master's is cut where the two part. Setting positions back would not be enough: a
crash later would find the old records valid again. So the bytes are zeroed, later files deleted, and all is synced
before anybody writes there. The flush threads are held off meanwhile. Loop thread only.
"""

from __future__ import annotations

import os
from pathlib import Path

from cometmq.store.commit_log import CommitLog
from cometmq.store.config import StoreConfig
from cometmq.store.flush import LogFlusher
from cometmq.store.index import Index
from cometmq.store.queue_flush import QueueFlusher
from cometmq.store.queue_table import QueueTable


class LogCut:
    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        table: QueueTable,
        index: Index | None,
        flusher: LogFlusher,
        queue_flusher: QueueFlusher,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._table = table
        self._index = index
        self._flusher = flusher
        self._queue_flusher = queue_flusher

    def cut_log(self, physical_offset: int) -> None:
        """Everything at and behind an offset goes; on disk when it returns. Raises StoreError or OSError."""
        with self._flusher.held_off():
            self._log.cut(physical_offset)
            if self._log.files:
                self._log.files[-1].sync()
                self._log.open_files.ops.sync_directory(self._log.directory)
            self._flusher.go_back(physical_offset)
        self.cut_queues(physical_offset)
        self._queue_flusher.sync_all_first = True
        self._queue_flusher.flush_all()

    def cut_queues(self, physical_offset: int) -> None:
        """Queues and index forget the records at and behind an offset."""
        with self._queue_flusher.held_off():
            for queue in self._table.all():
                if queue.max_physical_offset > physical_offset and queue.truncate(physical_offset):
                    queue.recover_ext()
            if self._index is not None:
                self._index.truncate(physical_offset)

    def move_log(self, aside: Path) -> None:
        """Keep the files of the log elsewhere and begin without any. Raises OSError."""
        with self._flusher.held_off():
            self._log.forget_files()
            aside.parent.mkdir(parents=True, exist_ok=True)
            if self._log.directory.exists():
                os.rename(self._log.directory, aside)
            self._log.directory.mkdir(parents=True)
            self._log.open_files.ops.sync_directory(self._log.directory.parent)
            self._flusher.go_back(0)
        with self._queue_flusher.held_off():
            self._table.remove_all()
            if self._index is not None:
                self._index.destroy()
