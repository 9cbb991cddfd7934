"""MessageStore: the one door to everything under a store directory.

Plain synchronous calls, loop thread only unless a method says otherwise; no asyncio inside. Threads of its own:
commit log flush, queue flush, preparation of log files, chores of the index, deletion of old files.
"""

from __future__ import annotations

import contextlib
import logging
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
from cometmq.store.consume_queue import ConsumeQueue, QueueEntry
from cometmq.store.delay_levels import DelayLevels
from cometmq.store.dispatch_cy import has_key
from cometmq.store.file_ops import FileOps
from cometmq.store.flush import FlushCallback, LogFlusher
from cometmq.store.index import Index
from cometmq.store.lock_file import LockFile
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
from cometmq.store.queue_flush import QueueFlusher
from cometmq.store.queue_scan_cy import ENTRY_SIZE
from cometmq.store.queue_table import WAITING_TOPICS, FilterBitMap, QueueTable
from cometmq.store.reader import QueueReader
from cometmq.store.recovery import Recovery
from cometmq.store.residency import read_in
from cometmq.store.retention import Retention
from cometmq.store.scan_cy import MESSAGE_MAGIC, RECORD_SIZE_MIN, STOP_BAD, scan_records
from cometmq.store.tails import apply_tails, save_tails, still_true, take_tails
from cometmq.store.time_search import TimeSearch
from cometmq.store.watches import Watch, WatchCallback, Watches
from cometmq.store.writer import LogWriter

SYNC_FLUSH_AHEAD_SIZE = (
    1 << 20
)  # bytes; pages made ready ahead are dirty and would be synced with every commit
IDLE_SWEEP_MS = 60_000

log = logging.getLogger(__name__)


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
        # Delivers a callback to the loop thread; the broker injects loop.call_soon_threadsafe.
        self.call_soon: Callable[..., Any] = lambda callback, *args: callback(*args)
        self.on_append: Callable[[], None] | None = None  # called when the log has grown (replication)
        self.may_append: Callable[[], bool] | None = None  # asked before each put (replication)
        self._confirmed: int | None = (
            None  # queues know records below this offset only; None: all (no replica)
        )
        root = config.store_path_root_dir
        self._abort = root / "abort"
        self._lock = LockFile(root / "lock")
        raise_descriptor_limit()
        self.open_files = OpenFiles(config.open_files_max, ops)
        self._chores = ThreadPoolExecutor(1, thread_name_prefix="store-chores")
        self.commit_log = CommitLog(config, self.open_files, ahead_size=_ahead_size(config))
        self.table = QueueTable(config, self.open_files, self.delay_levels)
        self.index = self._new_index() if config.message_index_enable else None
        self.checkpoint = Checkpoint(root / "checkpoint")
        self.watches = Watches(self.table)
        self._writer = LogWriter(config, self.commit_log, self.table, self.commit, now_ms)
        self._reader = QueueReader(config, self.commit_log)
        self._times = TimeSearch(self.commit_log)
        self._flusher = LogFlusher(self.commit_log, config, self.checkpoint, self._call_soon)
        self._queue_flusher = QueueFlusher(self.table, self.index, config, self.checkpoint)
        self.log_cut = LogCut(
            config, self.commit_log, self.table, self.index, self._flusher, self._queue_flusher
        )
        self.retention = Retention(config, self.commit_log, self._follow_log, started_ms=now_ms())
        self.dispatch_error: StoreError | None = None
        self._dispatched = 0  # physical offset up to which queues and index are complete
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

    @property
    def filter_bit_map(self) -> FilterBitMap | None:
        """(topic, record) -> bit map of the SQL groups that want it, for the extension of its queue."""
        return self.table.filter_bit_map

    @filter_bit_map.setter
    def filter_bit_map(self, calculate: FilterBitMap | None) -> None:
        self.table.filter_bit_map = calculate

    # Life

    def open(self, confirmed_offset: int | None = None) -> RecoveryReport:
        """Take the lock, load, recover, dispatch what is behind, start the threads. Raises StoreError.

        A replica says how much of its log is confirmed: only that is in the queues from then on (see ``confirm``).
        """
        began = time.monotonic()
        try:
            self.config.store_path_root_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The store directory {self.config.store_path_root_dir} cannot be made ({error.strerror}): "
                "choose another storePathRootDir or give the user of the broker the right to write there."
            ) from error
        self._lock.acquire()
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
        report = RecoveryReport(clean=not self._abort.exists())
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
            Recovery(self.config, self.commit_log, self.table, self.index, self.checkpoint, report).run()
        self._queue_flusher.sync_all_first = not report.clean
        report.min_physical_offset = self.commit_log.min_offset
        report.max_physical_offset = self.commit_log.end_offset
        report.queue_count = self.table.queue_count
        return report

    def _load_checkpoint(self) -> Checkpoint:
        loaded = Checkpoint.load(self.checkpoint.path)
        self._flusher.checkpoint = self._queue_flusher.checkpoint = loaded
        return loaded

    def _start(self) -> None:
        try:
            self._abort.touch()
        except OSError as error:
            raise StoreError(
                f"The file {self._abort} cannot be written ({error.strerror}): "
                "the user of the broker must be able to write to this directory."
            ) from error
        end = self.commit_log.end_offset
        self._dispatched = self._reader.own_from = end
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
        if clean and self._dispatched == self._dispatch_end:
            self._leave_clean()
        self._let_go()

    def _leave_clean(self) -> None:
        # Without that file the next start only takes longer, and enters what was not confirmed now.
        with contextlib.suppress(OSError):
            if self._dispatched == self.commit_log.end_offset:
                save_tails(self.config.store_path_root_dir, self.commit_log, self.table)
        self._abort.unlink(missing_ok=True)

    def kill_for_test(self) -> None:
        """Let go of everything as a killed process would: abort stays, nothing is flushed."""
        self._opened = False
        self.retention.close()
        self._queue_flusher.stop()
        self._flusher.stop()
        self._let_go()

    def _let_go(self) -> None:
        self._flusher.close()
        if self.index is not None:
            self.index.abandon()
        self._chores.shutdown()
        self.commit_log.abandon()
        self.open_files.close_all()
        self._lock.release()

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
        if self.dispatch_error is not None or not self._flusher.healthy:
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

    def commit(self, end_position: int) -> int:
        """Records up to this position of the reserved space are complete: dispatch them; the new end offset."""
        commit_log = self.commit_log
        view, start, base = commit_log.view, commit_log.position, commit_log.base
        end_offset = commit_log.advance(end_position)
        if self._confirmed is not None:
            if self.on_append is not None:
                self.on_append()
            return end_offset
        if self._dispatched != base + start:
            self._dispatch()  # a new file was begun, or queues are behind
            return end_offset
        try:
            self.table.dispatch(view, start, end_position, base)
            self._dispatched = end_offset
        except StoreError as error:
            self._note_failure(error)
        commit_log.last_store_timestamp_ms = self.table.last_store_timestamp_ms
        if self.table.woken:
            self.watches.wake()
        if self.on_append is not None:
            self.on_append()
        return end_offset

    def append_raw(self, physical_offset: int, data: Buffer) -> int:
        """A replica's append: bytes of the master's log at exactly this offset; the new end offset.

        Records may be cut; they are dispatched when they are complete.
        """
        end = self.commit_log.end_offset
        if not self._flusher.healthy:
            raise StoreError("The commit log cannot be synced at present: no more bytes are taken.")
        if end and end != physical_offset:
            raise StoreError(f"The log ends at {end}, but bytes for {physical_offset} came from the master.")
        view = memoryview(data)
        while len(view):
            view = view[self.commit_log.write_raw(physical_offset, view) :]
            physical_offset = self.commit_log.end_offset
        self._dispatch()
        return self.commit_log.end_offset

    def _dispatch(self) -> None:
        """Bring queues and index up to the end of the log; a failure is kept and tried again by tick()."""
        log_end = self._dispatch_end
        try:
            while self._dispatched < log_end and self._dispatch_file(log_end):
                pass
            self.dispatch_error = None
        except StoreError as error:
            self._note_failure(error)
        self._after_dispatch()

    def _note_failure(self, error: StoreError) -> None:
        if self.dispatch_error is None:
            log.error("records cannot be entered in their queues: %s", error)
        self.dispatch_error = error

    def _after_dispatch(self) -> None:
        self.commit_log.last_store_timestamp_ms = self.table.last_store_timestamp_ms
        if self.table.woken:
            self.watches.wake()
        if self.on_append is not None:
            self.on_append()

    def _dispatch_file(self, log_end: int) -> bool:
        """Dispatch what is there of one file; False if it ends in the middle of a record."""
        file = self.commit_log.file_at(self._dispatched)
        if file is None:  # an empty log that begins in the middle (replica)
            self._dispatched = self.commit_log.min_offset
            return self.commit_log.min_offset >= 0 and self._dispatched < log_end
        view, start, end = file.buffer(), self._dispatched - file.start, min(log_end, file.end) - file.start
        whole = self.role is not BrokerRole.SLAVE or self._confirmed is not None
        if end < file.size and whole:
            self.table.dispatch(view, start, end, file.start)  # records known to be complete
            self._dispatched = file.start + end
            return True
        scan = scan_records(view, start, end, file.start, False, file.size)
        self.table.dispatch(view, start, scan.end, file.start)
        self._dispatched = file.start + scan.end
        if end == file.size:
            if scan.stop == STOP_BAD:
                log.error("damaged record path=%s position=%d: %s", file.path, scan.end, scan.reason)
            self._dispatched = file.end
            return True
        return False

    # Replicas: queues follow what is confirmed

    @property
    def confirmed_offset(self) -> int:
        """What may be shown to others: everything, or on a replica what is confirmed."""
        return self._dispatch_end

    @property
    def _dispatch_end(self) -> int:
        end = self.commit_log.end_offset
        return end if self._confirmed is None else min(self._confirmed, end)

    def _hold_back(self, confirmed_offset: int) -> None:
        """Take out of the queues what recovery entered beyond this offset; from now on ``confirm`` enters it."""
        self._confirmed = min(confirmed_offset, self.commit_log.end_offset)
        self._writer.next_offsets = NextOffsets(self.table)
        if self._confirmed < self._dispatched:
            self.log_cut.cut_queues(self._confirmed)
            self._dispatched = max(self._confirmed, self.commit_log.min_offset)

    def confirm(self, physical_offset: int) -> None:
        """Everything below is confirmed: queues, index and held pulls get it."""
        if self._confirmed is not None and physical_offset > self._confirmed:
            self._confirmed = physical_offset
            self._dispatch()

    def become_master(self) -> None:
        """Begin to take messages: the free queue offsets come from the queues and the records not yet in them."""
        offsets = self._writer.next_offsets
        assert offsets is not None
        offsets.clear()
        at, end = self._dispatched, self.commit_log.end_offset
        while at < end and (file := self.commit_log.file_at(at)) is not None:
            offsets.count_records(file.buffer(), at - file.start, min(end - file.start, file.size))
            at = file.end
        self.role = BrokerRole.SYNC_MASTER

    def become_slave(self) -> None:
        self.role = BrokerRole.SLAVE
        self.table.offsets_epoch += 1

    def truncate(self, physical_offset: int) -> None:
        """Cut the log and all that follows from it; on disk when it returns. Raises StoreError or OSError."""
        self.log_cut.cut_log(physical_offset)
        self._dispatched = min(self._dispatched, physical_offset)
        if self._confirmed is not None:
            self._confirmed = min(self._confirmed, physical_offset)
        self._reader.own_from = min(self._reader.own_from, physical_offset)
        self.table.offsets_epoch += 1

    def begin_anew(self, aside: Path) -> None:
        """Empty the store for another log; the old one is kept in the directory `aside`."""
        self.log_cut.move_log(aside)
        self._dispatched = self._reader.own_from = 0
        if self._confirmed is not None:
            self._confirmed = 0
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
    ) -> GetResult:
        queue = self.table.find(topic, queue_id)
        result = self._reader.get(queue, queue_offset, max_count, max_bytes, filter)
        if self._confirmed is not None and not result.count:
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

    def warm(self, result: GetResult) -> None:
        """Read the pages of a cold result into memory; for a thread."""
        for part in result.cold_parts:
            read_in(part)

    def read_record(self, physical_offset: int, size: int = 0) -> memoryview | None:
        """The record at an offset (its own length unless `size` is given), None if there is none."""
        if size == 0:
            head = self.commit_log.read(physical_offset, 8)
            if head is None or int.from_bytes(head[4:], "big") != MESSAGE_MAGIC:
                return None
            size = int.from_bytes(head[:4], "big")
        return self.commit_log.read(physical_offset, size) if size >= RECORD_SIZE_MIN else None

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
        return self._dispatched

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
        if self.index is None:
            return QueryResult([], [])
        records: dict[int, memoryview] = {}

        def accept(physical_offset: int) -> bool:
            record = self.read_record(physical_offset)
            if record is None or not has_key(record, topic, key, begin_ms, end_ms):
                return False
            records[physical_offset] = record
            return True

        count = min(max_count, self.config.max_msgs_num_batch)
        found = self.index.query(topic, key, count, begin_ms, end_ms, accept)
        return QueryResult(
            found.offsets,
            [records[offset] for offset in found.offsets],
            found.last_update_timestamp_ms,
            found.last_update_physical_offset,
        )

    def watch(self, topic: str, queue_id: int, callback: WatchCallback) -> Watch:
        """callback(topic, queue_id) runs inside the commit that appended to this queue."""
        return self.watches.add(topic, queue_id, callback)

    # Care

    def topics_on_disk(self) -> list[str]:
        return sorted(queues.topic for queues in self.table.topics.values() if _has_files(queues.queues))

    def queue_ids(self, topic: str) -> list[int]:
        queues = self.table.topics.get(topic.encode())
        return sorted(queues.queues) if queues is not None else []

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues (its records stay in the log until they expire); how many queues."""
        return self.table.remove_topic(topic)

    def clean_expired(self) -> int:
        """Remove queues whose messages have all left the log; how many."""
        expired = [queue for queue in self.table.all() if self._is_expired(queue)]
        for queue in expired:
            self.table.remove_queue(queue)
        return len(expired)

    def _is_expired(self, queue: ConsumeQueue) -> bool:
        last = queue.last_entry() if queue.topic not in WAITING_TOPICS else None
        return last is not None and last.physical_offset < self.commit_log.min_offset

    def delete_expired_files(self) -> int:
        """Delete expired commit log files now, whatever the hour, and go on in the next rounds; how many."""
        self.retention.request_deletion()
        return self.retention.run_round(self.now_ms())

    def _follow_log(self, min_physical_offset: int) -> list[str]:
        """Queues and index let go of what has left the log; paths of queue files to delete."""
        expired: list[str] = []
        for queue in self.table.all():
            expired += queue.expire(min_physical_offset)
        if self.index is not None:
            self.index.expire(min_physical_offset)
        return expired

    def tick(self) -> None:
        """Retention, overdue waiters, idle files, a dispatch that failed; call it every second on the loop."""
        now = self.now_ms()
        self._flusher.expire()
        if self.dispatch_error is not None:
            self._dispatch()
        self.retention.tick(now)
        if now >= self._next_sweep_ms:
            self._next_sweep_ms = now + IDLE_SWEEP_MS
            self.open_files.close_idle()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over settings that may change while running; sizes and paths stay."""
        self.config = config
        self._writer.config = self._reader.config = self._flusher.config = self._queue_flusher.config = config
        self.retention.reconfigure(config)

    def runtime_info(self) -> dict[str, str]:
        """Figures for the administrator, under the names of the original where it has them."""
        log_percent, queue_percent = self.retention.disk.percents()
        return {
            "commitLogMinOffset": str(self.min_physical_offset),
            "commitLogMaxOffset": str(self.max_physical_offset),
            "commitLogDiskRatio": str(log_percent / 100),
            "consumeQueueDiskRatio": str(queue_percent / 100),
            "dispatchBehindBytes": str(self.max_physical_offset - self._dispatched),
            "howMuchUnflushed": str(self.max_physical_offset - self.flushed_offset),
            "openFiles": str(len(self.open_files)),
            "queueCount": str(self.table.queue_count),
        }


def _ahead_size(config: StoreConfig) -> int:
    if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return min(config.populate_ahead_size, SYNC_FLUSH_AHEAD_SIZE)
    return config.populate_ahead_size


def _has_files(queues: dict[int, ConsumeQueue]) -> bool:
    return any(queue.last_start >= 0 for queue in queues.values())
