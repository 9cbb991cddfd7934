"""MessageStore: the one door to everything under a store directory.

Plain synchronous calls, loop thread only unless a method says otherwise; no asyncio inside. Threads of its own:
commit log flush, queue flush, preparation of log files, reading ahead, chores of the index, deletion of old files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cometmq.clock import Clock, now_ms
from cometmq.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import BrokerRole, FlushDiskType, StoreConfig
from cometmq.store.consume_queue import QueueEntry
from cometmq.store.delay_levels import DelayLevels
from cometmq.store.directory import StoreDirectory
from cometmq.store.dispatch import Dispatch
from cometmq.store.file_ops import FileOps
from cometmq.store.flush import FlushCallback, LogFlusher, Loop
from cometmq.store.index import Index
from cometmq.store.key_search import KeySearch
from cometmq.store.log_cut import LogCut
from cometmq.store.mapped_file import PAGE_SIZE, OpenFiles, raise_descriptor_limit
from cometmq.store.model import (
    AppendSpace,
    Buffer,
    GetResult,
    GetStatus,
    MessageFilter,
    PutResult,
    PutStatus,
    QueryResult,
    RecoveryReport,
    StoreBatch,
    StoreMessage,
)
from cometmq.store.next_offsets import NextOffsets
from cometmq.store.page_reader import PageReader
from cometmq.store.queue_flush import QueueFlusher
from cometmq.store.queue_scan_cy import ENTRY_SIZE
from cometmq.store.queue_table import QueueTable
from cometmq.store.reader import QueueReader
from cometmq.store.recovery import Recovery
from cometmq.store.retention import Retention
from cometmq.store.tails import apply_tails, log_unchanged, save_tails, still_true, take_tails
from cometmq.store.time_search import TimeSearch
from cometmq.store.watches import Watch, WatchCallback, Watches
from cometmq.store.writer import LogWriter

# Bytes; with SYNC_FLUSH the writer goes on slowly, and more ahead has shown no gain (decision 012).
SYNC_FLUSH_AHEAD_SIZE = 1 << 20
IDLE_SWEEP_MS = 60_000


class MessageStore:
    def __init__(
        self,
        config: StoreConfig,
        *,
        now_ms: Clock = now_ms,
        delay_levels: DelayLevels | None = None,
        ops: FileOps | None = None,
    ) -> None:
        self.config = config
        self.now_ms = now_ms
        self.role = config.broker_role
        self.delay_levels = delay_levels or DelayLevels(config.message_delay_level)
        # Delivers a callback to the loop thread (see ``attach``).
        self.call_soon: Callable[..., Any] = lambda callback, *args: callback(*args)
        self.may_append: Callable[[], bool] | None = None  # asked before each put (replication)
        root = config.store_path_root_dir
        self._directory = StoreDirectory(root)
        raise_descriptor_limit()
        self.open_files = OpenFiles(config.open_files_max, ops)
        self._chores = ThreadPoolExecutor(1, thread_name_prefix="store-chores")
        self.commit_log = CommitLog(config, self.open_files, ahead_size=_ahead_size(config))
        self.table = QueueTable(config, self.open_files, self.delay_levels)
        self.index = self._new_index() if config.message_index_enable else None
        self.checkpoint = Checkpoint(root / "checkpoint")
        self.watches = Watches(self.table)
        self.page_reader = PageReader()
        self.reader = QueueReader(config, self.commit_log, self.table, self.page_reader)
        self._times = TimeSearch(self.commit_log)
        self._keys = KeySearch(self.commit_log, self.index)
        self._flusher = LogFlusher(self.commit_log, config, self.checkpoint, self._call_soon)
        self._queue_flusher = QueueFlusher(self.table, self.index, config, self.checkpoint)
        self.log_cut = LogCut(
            config, self.commit_log, self.table, self.index, self._flusher, self._queue_flusher
        )
        self.dispatch = Dispatch(
            self.commit_log,
            self.table,
            self.watches,
            self.log_cut,
            raw=config.broker_role is BrokerRole.SLAVE,
        )
        # Records up to a position of the reserved space are complete: dispatch them; the new end offset
        self.commit: Callable[[int], int] = self.dispatch.commit
        self._writer = LogWriter(config, self.commit_log, self.table, self.commit, now_ms)
        self.retention = Retention(config, self.commit_log, self._follow_log, started_ms=now_ms())
        self._next_sweep_ms = 0
        self._opened = False

    def _new_index(self) -> Index:
        config = self.config
        return Index(
            config.index_dir,
            hash_slot_count=config.max_hash_slot_num,
            index_count_max=config.max_index_num,
            submit=self._chores.submit,
            now_ms=self.now_ms,
        )

    def _call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.call_soon(callback, *args)

    # Life

    def attach(self, loop: Loop) -> None:
        """Callbacks come on this loop, which is the thread that writes. After ``open``."""
        self.call_soon = loop.call_soon_threadsafe
        self._flusher.attach(loop)

    def open(self, confirmed_offset: int | None = None) -> RecoveryReport:
        """Take the lock, load, recover, dispatch what is behind, start the threads. Raises StoreError.

        A replica says how much of its log is confirmed: only that is in the queues from then on (see ``confirm``).
        """
        began = time.monotonic()
        self._directory.take()
        try:
            report = self._recover()
            self._start()
            if confirmed_offset is not None:
                self._hold_back(
                    confirmed_offset if report.clean else min(confirmed_offset, report.walk_start)
                )
                self.confirm(min(confirmed_offset, self.commit_log.end_offset))
        except BaseException:
            self._let_go()
            raise
        report.duration_ms = int((time.monotonic() - began) * 1000)
        return report

    def _recover(self) -> RecoveryReport:
        report = RecoveryReport(clean=self._directory.left_in_order)
        self.checkpoint = self._load_checkpoint()
        tails = take_tails(self.config.store_path_root_dir)
        self.commit_log.load()
        if self.index is not None:
            self.index.load()
            self.table.index = self.index
        if report.clean and tails is not None and still_true(tails, self.commit_log, self.table):
            apply_tails(tails, self.table)
            self.commit_log.end_at(tails.log_end)
            self.commit_log.last_store_timestamp_ms = tails.last_store_timestamp_ms
            report.tails_trusted = True
        else:
            self.table.load()
            known = (
                tails
                if report.clean and tails is not None and log_unchanged(tails, self.commit_log)
                else None
            )
            Recovery(
                self.config, self.commit_log, self.table, self.index, self.checkpoint, report,
                tails=known, distrust=self._distrust_queues,
            ).run()  # fmt: skip
        self._queue_flusher.sync_all_first = not report.clean
        report.min_physical_offset = self.commit_log.min_offset
        report.max_physical_offset = self.commit_log.end_offset
        report.queue_count = self.table.queue_count
        return report

    def _distrust_queues(self) -> None:
        """Queues are about to be made anew: should this process die meanwhile, the next one dispatches everything."""
        self._directory.mark_in_use(self.open_files.ops)
        self.checkpoint.logics_msg_timestamp_ms = 0
        self.checkpoint.save()

    def _load_checkpoint(self) -> Checkpoint:
        loaded = Checkpoint.load(self.checkpoint.path)
        self._flusher.checkpoint = self._queue_flusher.checkpoint = loaded
        return loaded

    def _start(self) -> None:
        self._directory.mark_in_use(self.open_files.ops)
        end = self.commit_log.end_offset
        self.dispatch.offset = self.reader.own_from = end
        self.commit_log.preparer.start()
        self._flusher.start(end)
        self._queue_flusher.start()
        self._opened = True

    def close(self) -> None:
        """Orderly stop: flush everything, write the checkpoint, remove abort, release the lock."""
        if not self._opened:
            return
        self._opened = False
        self.retention.close()
        self._queue_flusher.stop()
        self._flusher.stop()
        self.commit_log.stop()
        clean = self._flusher.healthy and self._flusher.flush()
        clean = self._queue_flusher.flush_all() and clean
        # A store that cannot vouch for its files keeps the abort file: the next start looks closer.
        if clean and self.dispatch.complete:
            self._leave_clean()
        self._let_go()

    def _leave_clean(self) -> None:
        # Without that file the next start only takes longer, and enters what was not confirmed now.
        with contextlib.suppress(OSError):
            if self.dispatch.offset == self.commit_log.end_offset:
                save_tails(self.config.store_path_root_dir, self.commit_log, self.table)
        self._directory.mark_left_in_order()

    def kill_for_test(self) -> None:
        """Let go of everything as a killed process would: abort stays, nothing is flushed."""
        self._opened = False
        self.retention.close()
        self._queue_flusher.stop()
        self._flusher.stop()
        self._let_go()

    def _let_go(self) -> None:
        self._flusher.close()
        self.page_reader.stop()
        if self.index is not None:
            self.index.abandon()
        self._chores.shutdown()
        self.commit_log.abandon()
        self.open_files.close_all()
        self._directory.release()

    # Writing

    @property
    def writable(self) -> bool:
        return self.put_refusal() is None

    @property
    def readable(self) -> bool:
        return self._opened

    def put_refusal(self) -> PutStatus | None:
        """Why a message would not be taken now."""
        if not self._opened or self.role is BrokerRole.SLAVE or self.retention.disk.full:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if self.dispatch.error is not None or not self._flusher.healthy:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if self.may_append is not None and not self.may_append():
            return PutStatus.SERVICE_NOT_AVAILABLE
        return None

    def put(self, message: StoreMessage) -> PutResult:
        refusal = self.put_refusal()
        return self._writer.put(message) if refusal is None else PutResult(refusal)

    def put_all(self, messages: Sequence[StoreMessage]) -> list[PutResult]:
        """Messages of different queues, all or none."""
        refusal = self.put_refusal()
        return self._writer.put_all(messages) if refusal is None else [PutResult(refusal) for _ in messages]

    def put_batch(self, batch: StoreBatch) -> PutResult:
        refusal = self.put_refusal()
        return self._writer.put_batch(batch) if refusal is None else PutResult(refusal)

    def reserve(self, size: int) -> AppendSpace | None:
        """Room for at least `size` bytes of records, or None (put_refusal() or a disk that gives no space)."""
        if self.put_refusal() is not None or (size > PAGE_SIZE and size > self.config.record_size_max):
            return None
        return self.commit_log.reserve(size)

    def append_raw(self, physical_offset: int, *parts: Buffer) -> int:
        """A replica's append: parts of the master's log, one behind the other from this offset; the new end offset.

        Records may be cut; they are dispatched when they are complete.
        """
        end = self.commit_log.end_offset
        if not self._flusher.healthy:
            raise StoreError("The commit log cannot be synced at present: no more bytes are taken.")
        if end and end != physical_offset:
            raise StoreError(f"The log ends at {end}, but bytes for {physical_offset} came from the master.")
        for part in parts:
            view = memoryview(part)
            while len(view):
                view = view[self.commit_log.write_raw(physical_offset, view) :]
                physical_offset = self.commit_log.end_offset
        self.dispatch.run()
        self._tell_replication()
        return self.commit_log.end_offset

    @property
    def on_append(self) -> Callable[[], None] | None:
        """Called when the log has grown (replication)."""
        return self.dispatch.on_append

    @on_append.setter
    def on_append(self, callback: Callable[[], None] | None) -> None:
        self.dispatch.on_append = callback

    def _tell_replication(self) -> None:
        if self.on_append is not None:
            self.on_append()

    # Replicas: queues follow what is confirmed

    @property
    def confirmed_offset(self) -> int:
        """What may be shown to others: everything, or on a replica what is confirmed."""
        return self.dispatch.end

    def _hold_back(self, confirmed_offset: int) -> None:
        self.dispatch.hold_back(confirmed_offset)
        self._writer.next_offsets = NextOffsets(self.table)

    def confirm(self, physical_offset: int) -> None:
        """Everything below is confirmed: queues, index and held pulls get it."""
        if self.dispatch.confirm(physical_offset):
            self._tell_replication()

    def become_master(self) -> None:
        """Begin to take messages: the free queue offsets come from the queues and the records not yet in them."""
        offsets = self._writer.next_offsets
        assert offsets is not None
        offsets.restart(self.commit_log, self.dispatch.offset)
        self.role = BrokerRole.SYNC_MASTER

    def become_slave(self) -> None:
        self.role = BrokerRole.SLAVE
        self.dispatch.raw = True
        self.table.offsets_epoch += 1

    def truncate(self, physical_offset: int) -> None:
        """Cut the log and all that follows from it; on disk when it returns. Raises StoreError or OSError."""
        self.log_cut.cut_log(physical_offset)
        self.dispatch.go_back(physical_offset)
        self.reader.own_from = min(self.reader.own_from, physical_offset)
        self.reader.ahead.forget()
        self.table.offsets_epoch += 1

    def begin_anew(self, aside: Path) -> None:
        """Empty the store for another log; the old one is kept in the directory `aside`."""
        self.log_cut.move_log(aside)
        self.dispatch.go_back(0)
        self.reader.own_from = 0
        self.reader.ahead.forget()
        self.table.offsets_epoch += 1

    def queue_offsets(self, topic: bytes, count: int = 0) -> memoryview:
        """Next queue offset by queue id, for at least `count` queues (format 'q', writable).

        Who writes records advances what it uses. Valid while `offsets_epoch` stays the same.
        """
        if self._writer.next_offsets is not None:
            return memoryview(self._writer.next_offsets.of(topic, count))
        return self.table.next_offsets(topic, count)

    @property
    def offsets_epoch(self) -> int:
        return self.table.offsets_epoch

    # Durability

    @property
    def flushed_offset(self) -> int:
        return self._flusher.flushed_offset

    @property
    def healthy(self) -> bool:
        """False after a sync that failed, until the log was written again."""
        return self._flusher.healthy

    def flush_waiter(self, end_offset: int, callback: FlushCallback) -> None:
        """callback(ok), through call_soon, when everything below end_offset is on disk, failed or overdue."""
        self._flusher.wait(end_offset, callback)

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        *,
        max_bytes: int | None = None,
        filter: MessageFilter | None = None,
        warmed: bool = False,
    ) -> GetResult:
        """Unless ``warmed``, records on disk are not touched: a ``cold`` result says what to read, then ask again."""
        queue = self.table.find(topic, queue_id)
        result = self.reader.get(queue, queue_offset, max_count, max_bytes, filter, warmed)
        if self.dispatch.confirmed is not None and not result.count:
            self._await_confirmation(result, topic, queue_id, queue_offset)
        if self.role is BrokerRole.SLAVE and not self.config.offset_check_in_slave and not result.count:
            self._keep_offset(result, queue_offset)
        return result

    def _await_confirmation(self, result: GetResult, topic: str, queue_id: int, queue_offset: int) -> None:
        """An offset that is taken but not confirmed yet is one to wait for, and not a wrong one."""
        offsets = self._writer.next_offsets
        if queue_offset <= result.max_offset or offsets is None:
            return
        if self.role is BrokerRole.SLAVE or queue_offset <= offsets.get(topic.encode(), queue_id):
            result.status, result.next_offset = GetStatus.OFFSET_OVERFLOW_ONE, queue_offset

    @staticmethod
    def _keep_offset(result: GetResult, queue_offset: int) -> None:
        """A slave may be behind its master: it does not correct offsets that look wrong to it."""
        if not result.min_offset <= queue_offset < result.max_offset:
            result.next_offset = queue_offset

    def read_record(self, physical_offset: int) -> memoryview | None:
        """The record at an offset, None if there is none."""
        return self.commit_log.read_record(physical_offset)

    def read_log(self, physical_offset: int, size_max: int) -> memoryview | None:
        """Bytes of the log from an offset on, within one file; None if the offset is not in the log."""
        return self.commit_log.read_rest(physical_offset, size_max)

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.table.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.table.find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self.commit_log.end_offset

    @property
    def dispatched_offset(self) -> int:
        """Physical offset up to which queues and index are complete; behind the end while a record is cut."""
        return self.dispatch.offset

    def queue_entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]:
        queue = self.table.find(topic, queue_id)
        if queue is None:
            return []
        entries = (queue.entry(offset) for offset in range(queue_offset, queue_offset + count))
        return [entry for entry in entries if entry is not None]

    def queue_window(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[memoryview, int, int] | None:
        """Entries of a queue in one of its files: the file, where the offset stands in it, where entries end."""
        queue = self.table.find(topic, queue_id)
        return queue.entries_at(queue_offset * ENTRY_SIZE) if queue is not None else None

    def log_window(self, physical_offset: int) -> tuple[memoryview, int, int] | None:
        """The log file with an offset: its bytes, the offset of the first, the offset after the last record."""
        file = self.commit_log.file_at(physical_offset)
        return (
            (file.buffer(), file.start, min(file.end, self.commit_log.end_offset))
            if file is not None
            else None
        )

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        return self._times.offset_by_time(self.table.find(topic, queue_id), timestamp_ms)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return self._times.store_time(self.table.find(topic, queue_id), queue_offset)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        count = min(max_count, self.config.max_msgs_num_batch)
        return self._keys.query(topic, key, count, begin_ms, end_ms)

    def watch(self, topic: str, queue_id: int, callback: WatchCallback) -> Watch:
        """callback(topic, queue_id) runs inside the commit that appended to this queue."""
        return self.watches.add(topic, queue_id, callback)

    # Care

    def topics_on_disk(self) -> list[str]:
        return self.table.topics_on_disk()

    def queue_ids(self, topic: str) -> list[int]:
        return self.table.queue_ids(topic)

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues (its records stay in the log until they expire); how many queues."""
        self.reader.ahead.forget()
        return self.table.remove_topic(topic)

    def clean_expired(self) -> int:
        """Remove queues whose messages have all left the log; how many."""
        self.reader.ahead.forget()
        return self.table.remove_expired(self.commit_log.min_offset)

    def delete_expired_files(self) -> int:
        """Delete expired commit log files now, whatever the hour, and go on in the next rounds; how many."""
        self.retention.request_deletion()
        return self.retention.run_round(self.now_ms())

    def _follow_log(self, min_physical_offset: int) -> list[str]:
        """Queues and index let go of what has left the log; paths of queue files to delete."""
        self.reader.ahead.forget()
        expired = self.table.expire(min_physical_offset)
        if self.index is not None:
            self.index.expire(min_physical_offset)
        return expired

    def tick(self) -> None:
        """Retention, overdue waiters, idle files, a dispatch that failed; call it every second on the loop."""
        now = self.now_ms()
        self._flusher.expire()
        if self.dispatch.error is not None:
            self.dispatch.run()
            self._tell_replication()
        self.retention.tick(now)
        if now >= self._next_sweep_ms:
            self._next_sweep_ms = now + IDLE_SWEEP_MS
            self.open_files.close_idle()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over settings that may change while running; sizes and paths stay."""
        self.config = config
        self._writer.config = self.reader.config = self._flusher.config = self._queue_flusher.config = config
        self.retention.reconfigure(config)

    def runtime_info(self) -> dict[str, str]:
        """Figures for the administrator, under the names of the original where it has them."""
        log_percent, queue_percent = self.retention.disk.percents()
        return {
            "commitLogMinOffset": str(self.min_physical_offset),
            "commitLogMaxOffset": str(self.max_physical_offset),
            "commitLogDiskRatio": str(log_percent / 100),
            "consumeQueueDiskRatio": str(queue_percent / 100),
            "dispatchBehindBytes": str(self.max_physical_offset - self.dispatch.offset),
            "howMuchUnflushed": str(self.max_physical_offset - self.flushed_offset),
            "openFiles": str(len(self.open_files)),
            "queueCount": str(self.table.queue_count),
        }


def _ahead_size(config: StoreConfig) -> int:
    if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return min(config.populate_ahead_size, SYNC_FLUSH_AHEAD_SIZE)
    return config.populate_ahead_size
