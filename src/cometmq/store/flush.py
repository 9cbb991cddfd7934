"""Flush threads: LogFlusher brings the commit log to disk, QueueFlusher ConsumeQueues, index and checkpoint.

Theory of operation. Writers only touch mapped memory. LogFlusher notes the end of the log, syncs the files up to it
and then publishes it as `flushed_offset`. With ASYNC_FLUSH that happens every 500 ms if four pages are dirty, and
every 10 s in any case; between those the page that is being written is left out, since the writer would have to wait
until it is on disk. With SYNC_FLUSH somebody waits: a waiter is (end offset, deadline, callback), and after one flush
the thread follows the log as long as somebody waits for it (`log_sync_cy`).

A failed sync. After an error the kernel takes the pages for clean although they are not on disk, so a later,
successful sync proves nothing. Therefore: all waiters fail, `healthy` goes False (the store takes no more
messages), and a file `fsync-failed` notes from where on the log is doubtful, in case the process ends now. Then, once
a second, everything after `flushed_offset` is checked in memory (CRC of every record), written again through the
descriptor, which makes the pages dirty anew, and synced. When that works the log is known good and service returns.
See docs/decisions for the options that were turned down.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cometmq.store.checkpoint import Checkpoint
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import FlushDiskType, StoreConfig
from cometmq.store.file_ops import FileOps
from cometmq.store.log_sync_cy import LogSync
from cometmq.store.mapped_file import MappedFile
from cometmq.store.scan_cy import STOP_BAD, scan_records

PAGE_SIZE = 4096
SYNC_IDLE_S = 0.010  # with SYNC_FLUSH: how long messages that nobody waits for stay unflushed
REPAIR_INTERVAL_S = 1.0
REWRITE_STEP = 1 << 20  # bytes
FAILED_SYNC_FILE = "fsync-failed"

log = logging.getLogger(__name__)

FlushCallback = Callable[[bool], None]
CallSoon = Callable[..., Any]


class Loop(Protocol):
    """What the store needs to know of whoever runs it."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> Any: ...

    def add_reader(self, descriptor: int, callback: Callable[..., Any], /) -> Any: ...

    def remove_reader(self, descriptor: int, /) -> Any: ...


class Waiter(NamedTuple):
    end_offset: int
    deadline_s: float
    callback: FlushCallback


class LogFlusher:
    def __init__(
        self, commit_log: CommitLog, config: StoreConfig, checkpoint: Checkpoint, call_soon: CallSoon
    ) -> None:
        self._log = commit_log
        self.config = config
        self.checkpoint = checkpoint
        self._call_soon = call_soon
        self._ops = commit_log.open_files.ops
        self._sync_mode = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._line = LogSync(commit_log)
        self._synced_to = 0  # may be in the middle of one
        self.healthy = True
        self.failure_count = 0
        self._seen = (0, 0)  # end of the log at some flush, and the time of the last message before it
        self._wake = threading.Event()
        self._stopping = False
        self._waiting: deque[Waiter] = deque()  # loop only, in order of their deadlines
        self._loop: Loop | None = None
        self._descriptors: dict[int, int] = {}  # file start -> descriptor, thread only
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # one flush at a time: the thread's, or one asked for by close()

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk. Always the end of a record: replicas keep and tell it."""
        synced: int = self._line.synced
        return synced

    # Loop thread

    def start(self, flushed_offset: int) -> None:
        self._line.synced = self._synced_to = flushed_offset
        self._seen = (flushed_offset, 0)
        self._line.open()
        self._thread = threading.Thread(target=self._run, name="commitlog-flush", daemon=True)
        self._thread.start()

    def attach(self, loop: Loop) -> None:
        """From now on this loop serves the waiters, as soon as a sync is done."""
        loop.add_reader(self._line.descriptor, self._followed)
        self._loop = loop

    def stop(self) -> None:
        """End the thread without a last flush; waiters fail."""
        self._stopping = True
        self._line.let_go()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._loop is not None:
            self._loop.remove_reader(self._line.descriptor)
            self._loop = None
        self._line.close()
        while self._waiting:
            self._waiting.popleft().callback(False)

    def close(self) -> None:
        """Let go of the files."""
        self._close_descriptors(up_to=None)

    def wait(self, end_offset: int, callback: FlushCallback) -> None:
        """callback(ok), on the loop, when everything below end_offset is on disk, failed or overdue."""
        if end_offset <= self.flushed_offset:
            callback(True)
            return
        if not self.healthy or self._thread is None:
            callback(False)
            return
        deadline_s = time.monotonic() + self.config.sync_flush_timeout / 1000
        self._waiting.append(Waiter(end_offset, deadline_s, callback))
        self._line.want(end_offset)
        self.wake()

    def wake(self) -> None:
        if not self._wake.is_set():
            self._wake.set()

    def expire(self) -> None:
        """Fail waiters that are overdue (a sync hangs); call it now and then."""
        now = time.monotonic()
        while self._waiting and self._waiting[0].deadline_s <= now:
            self._waiting.popleft().callback(False)

    def go_back(self, end_offset: int) -> None:
        """The log was cut here, and that is on disk. Only while held off."""
        for start in [
            start for start in self._descriptors if start >= end_offset - end_offset % self._log.file_size
        ]:
            os.close(self._descriptors.pop(start))
        self._line.go_back(end_offset)
        self._synced_to = end_offset
        self._seen = (end_offset, 0)
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.callback(waiter.end_offset <= end_offset)

    def _followed(self) -> None:
        """The log went on to disk behind its writer."""
        self._line.heard()
        if self._line.timestamp_ms:
            self.checkpoint.physic_msg_timestamp_ms = self._line.timestamp_ms
        self._serve()

    def _serve(self) -> None:
        """Answer those who have waited long enough; all of them, if the disk fails."""
        waiting, flushed_offset = self._waiting, self.flushed_offset
        while waiting and (waiting[0].end_offset <= flushed_offset or not self.healthy):
            waiter = waiting.popleft()
            waiter.callback(waiter.end_offset <= flushed_offset)

    # Thread

    def _run(self) -> None:
        last_thorough_s = time.monotonic()
        while not self._stopping:
            self._pause()
            if self._stopping:
                return
            if not self.healthy:
                self._try_repair()
                continue
            thorough = time.monotonic() - last_thorough_s >= self._thorough_interval_s
            if thorough:
                last_thorough_s = time.monotonic()
            self._round(thorough)
            if self._sync_mode and self.healthy:
                self._follow()

    @property
    def _thorough_interval_s(self) -> float:
        return self.config.flush_commit_log_thorough_interval / 1000

    def _pause(self) -> None:
        if not self.healthy:
            self._wake.wait(REPAIR_INTERVAL_S)
        elif self._sync_mode:
            behind = self._log.end_offset > self.flushed_offset
            self._wake.wait(SYNC_IDLE_S if behind else self.config.flush_interval_commit_log / 1000)
        else:
            self._wake.wait(self.config.flush_interval_commit_log / 1000)
        self._wake.clear()

    def _round(self, thorough: bool) -> None:
        dirty = self._log.end_offset - self.flushed_offset
        least = self.config.flush_commit_log_least_pages * PAGE_SIZE
        must = bool(self._waiting) or thorough or self._sync_mode
        if not dirty:
            self._note_idle()
        elif must or dirty >= least:
            idle = self._log.end_offset == self._seen[0]  # nobody wants the last page
            self.flush(whole=must or idle)
        if self._waiting:
            self._tell(self._serve)

    def _follow(self) -> None:
        """Bring to disk what somebody waits for until that is nothing more, or in the next file."""
        with self._lock:
            file = self._log.file_at(self.flushed_offset)
            view = None if file is None else file.view
            if file is None or view is None:
                return
            descriptor = self._descriptor(file.start, file.path)

            def sync(start: int, end: int) -> None:
                self._ops.sync_range(descriptor, view, start, end)

            def told() -> None:
                self._tell(self._followed)

            slowly = self._loop is None or type(self._ops) is not FileOps  # nobody looks, or a test does
            try:
                self._line.follow(view, file.start, sync, told, slowly=slowly)
            except OSError as error:
                self._fail(error)
                self._tell(self._serve)
            self._synced_to = self.flushed_offset
            self._seen = (self._synced_to, self._line.timestamp_ms)

    def _note_idle(self) -> None:
        """A flush may have come between the append and the note of its time: make up for it when all is quiet."""
        timestamp_ms = self._log.last_store_timestamp_ms
        if timestamp_ms and self._log.end_offset == self.flushed_offset:
            self.checkpoint.physic_msg_timestamp_ms = timestamp_ms

    def _tell(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._call_soon(callback)

    # Any thread

    @contextlib.contextmanager
    def held_off(self) -> Iterator[None]:
        """Nothing else is flushed meanwhile."""
        self._line.let_go()
        try:
            with self._lock:
                yield
        finally:
            self._line.may_follow()

    def flush(self, whole: bool = True) -> bool:
        """Everything written so far to disk, without its last page unless `whole`; False if that failed."""
        with self.held_off():
            timestamp_ms = self._log.last_store_timestamp_ms
            end = written = self._log.end_offset
            if not whole:
                end = max(end - end % PAGE_SIZE, self._synced_to)
            try:
                for file in self._files(self._synced_to, end):
                    self._sync(file, end)
            except OSError as error:
                self._fail(error)
                return False
            self._synced_to = end
            self._note_flushed(written, timestamp_ms)
            self._close_descriptors(up_to=end)
            return True

    def _note_flushed(self, written: int, timestamp_ms: int) -> None:
        """Tell of the last end of the log that is known to be on disk, and of the time of the message before it."""
        if written <= self._synced_to:
            self._seen = (written, timestamp_ms)
        if self._seen[0] <= self._synced_to:
            self._line.synced = max(self._seen[0], self.flushed_offset)
            if self._seen[1]:
                self.checkpoint.physic_msg_timestamp_ms = self._seen[1]
            self._seen = (written, timestamp_ms)

    def _sync(self, file: MappedFile, end: int) -> None:
        try:
            descriptor, view = self._descriptor(file.start, file.path), file.view
            if view is None:
                self._ops.sync(descriptor)
            else:
                first = max(self._synced_to, file.start) - file.start
                self._ops.sync_range(descriptor, view, first, min(end, file.end) - file.start)
        except FileNotFoundError:
            if file in self._log.files:
                raise
            # Retention was faster: what has left the log need not be on disk.

    def _files(self, start: int, end: int) -> list[MappedFile]:
        return [file for file in list(self._log.files) if file.start < end and file.end > start]

    def _descriptor(self, start: int, path: Path | str) -> int:
        # Kept open while the file is written: the kernel reports a write error once per open descriptor.
        if start not in self._descriptors:
            self._descriptors[start] = self._ops.open(path)
        return self._descriptors[start]

    def _close_descriptors(self, up_to: int | None) -> None:
        size = self._log.file_size
        for start in [start for start in self._descriptors if up_to is None or start + size <= up_to]:
            os.close(self._descriptors.pop(start))

    # After a failed sync

    def _fail(self, error: OSError) -> None:
        log.error(
            "commit log could not be synced, no more messages are taken until it is offset=%d error=%s",
            self.flushed_offset, error,
        )  # fmt: skip
        self.failure_count += 1
        self.healthy = False
        with contextlib.suppress(OSError):
            mark_failed_sync(self.config.store_path_root_dir, self.flushed_offset)

    def _try_repair(self) -> None:
        if self._waiting:
            self._tell(self._serve)
        try:
            with self._lock:
                end = self._log.end_offset
                self._rewrite(self.flushed_offset, end)
                self._line.synced = end
        except OSError as error:
            log.warning(
                "commit log still cannot be synced, look at the disk; no messages are taken error=%s", error
            )
            return
        clear_failed_sync(self.config.store_path_root_dir)
        self.healthy = True
        log.info("commit log is synced again offset=%d", end)

    def _rewrite(self, start: int, end: int) -> None:
        """Make the pages of a range dirty again with what memory holds, and sync. Raises OSError."""
        for file in self._files(start, end):
            descriptor = self._descriptor(file.start, file.path)
            rewrite_range(descriptor, max(start - file.start, 0), min(end, file.end) - file.start, file.start)
            self._ops.sync(descriptor)


def rewrite_range(descriptor: int, start: int, end: int, physical_base: int) -> None:
    """Write [start, end) of a log file again with what memory holds; any thread.

    Raises OSError, also if memory holds something else than good records.
    """
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
        scan = scan_records(view, start, end, physical_base, True)
        if scan.stop == STOP_BAD:
            raise OSError(f"the record at {physical_base + scan.end} is damaged: {scan.reason}")
        for position in range(start - start % PAGE_SIZE, end, REWRITE_STEP):
            stop = min(position + REWRITE_STEP, end)
            os.pwrite(descriptor, bytes(view[position:stop]), position)


def mark_failed_sync(root: Path, flushed_offset: int) -> None:
    (root / FAILED_SYNC_FILE).write_text(f"{flushed_offset}\n")


def clear_failed_sync(root: Path) -> None:
    (root / FAILED_SYNC_FILE).unlink(missing_ok=True)


def failed_sync_offset(root: Path) -> int | None:
    """Where the last run stopped trusting the disk, None if it never did."""
    try:
        return int((root / FAILED_SYNC_FILE).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return 0
