"""QueueFlusher: a thread that brings ConsumeQueues and index to disk and then moves the checkpoint on.

Queues can be made again from the log, so they are synced once a minute (the kernel writes them earlier anyway).
Only after everything dispatched up to a moment is on disk may the checkpoint name that moment, since recovery
after a crash dispatches the log from the checkpoint on. If a queue cannot be synced the checkpoint stays where it
is until the next start, and recovery does more.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable

from cometmq.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.index import Index
from cometmq.store.queue_table import QueueTable

SYNC_EACH_MAX = 256  # files; more are brought to disk by one sync of the whole file system

log = logging.getLogger(__name__)

_libc = ctypes.CDLL(None, use_errno=True)


class QueueFlusher:
    def __init__(
        self, table: QueueTable, index: Index | None, config: StoreConfig, checkpoint: Checkpoint
    ) -> None:
        self._table = table
        self._index = index
        self.config = config
        self.checkpoint = checkpoint
        self._ops = table.open_files.ops
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.healthy = True
        # After a crash of the process, files that are not written any more may still be in memory only.
        self.sync_all_first = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="queue-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def held_off(self) -> threading.Lock:
        """Nothing is flushed while this is held."""
        return self._lock

    def flush_all(self) -> bool:
        """Everything dispatched so far to disk, then the checkpoint; any thread. False if something failed."""
        with self._lock:
            timestamp_ms = self._table.last_store_timestamp_ms
            queues = self._take_dirty()
            try:
                self._sync(queues)
                if self._index is not None:
                    self._note_index(self._index.flush())
                if self.healthy and timestamp_ms:
                    self.checkpoint.logics_msg_timestamp_ms = timestamp_ms
                self.checkpoint.save()
            except (OSError, StoreError) as error:
                self._fail(error)
            return self.healthy

    def _note_index(self, synced_ms: int) -> None:
        if synced_ms:
            self.checkpoint.index_msg_timestamp_ms = synced_ms

    # Thread

    def _run(self) -> None:
        last_thorough_s = time.monotonic()
        while not self._stop.wait(self.config.flush_interval_consume_queue / 1000):
            now = time.monotonic()
            if now - last_thorough_s >= self.config.flush_consume_queue_thorough_interval / 1000:
                last_thorough_s = now
                self.flush_all()

    def _take_dirty(self) -> list[ConsumeQueue]:
        # Pops from the one list that the loop appends to: each step is atomic, nothing gets lost between them.
        dirty = self._table.dirty
        return [dirty.pop() for _ in range(len(dirty))]

    def _sync(self, queues: list[ConsumeQueue]) -> None:
        paths = [path for queue in queues for path in queue.take_unsynced()]
        directories = [*{os.path.dirname(path) for path in paths}, *self._parents_of_new(queues)]
        if len(paths) > SYNC_EACH_MAX or self.sync_all_first:
            self._sync_file_system()
            self.sync_all_first = False
            return
        for queue_path in paths:
            self._sync_path(queue_path)
        for directory in directories:
            self._ignore_missing(self._ops.sync_directory, directory)

    def _parents_of_new(self, queues: list[ConsumeQueue]) -> list[str]:
        """A directory that was made is on disk only when the one that it stands in is."""
        topics = set()
        for queue in queues:
            if queue.is_new:
                queue.is_new = False
                topics.add(os.path.dirname(queue.directory))
        root = self.config.store_path_root_dir
        return [*topics, str(self._table.directory), str(root)] if topics else []

    def _sync_path(self, path: str) -> None:
        try:
            descriptor = self._ops.open(path)
        except FileNotFoundError:
            return  # the queue was deleted meanwhile
        try:
            self._ops.sync(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def _ignore_missing(action: Callable[[str], None], path: str) -> None:
        try:
            action(path)
        except FileNotFoundError:
            return

    def _sync_file_system(self) -> None:
        descriptor = os.open(self.config.store_path_root_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(descriptor):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(descriptor)

    def _fail(self, error: Exception) -> None:
        self.healthy = False
        log.error("queues could not be synced, the checkpoint stays where it is error=%s", error)
