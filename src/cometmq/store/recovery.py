"""Recovery: from the files on disk to a log, queues and index that agree with each other.

Theory of operation. The commit log is the truth; queues and index follow from it.

1. Every queue finds its end: the first invalid entry in its last three files. Q is the end of the last record
   that any queue knows. Queues that have lost entries are noticed (see queue_losses) and cut there.
2. The log is walked record by record until something is not a good record (see scan_cy): from the third-last
   file after an orderly stop; after a crash from the last file that the checkpoint proves to be dispatched and
   on disk before its first record, and at the latest from where the queues (Q) and the index end.
3. The log ends at the last good record. Everything behind is zeroed or deleted, in the log and in the queues:
   the original only moves positions and can find the old bytes valid again after a later stop.
4. The last entry of every queue must point to a record of that queue; a damaged one is made anew, entries left
   over by such a cut of the original are dropped here.
5. After a crash, what the queues have is compared with what the walked part of the log gives them, and corrected; the
   index gets the keys of that part.
6. What the queues do not have is dispatched: from Q on after an orderly stop, from the first record that was missing in
   the comparison after a crash, in any case from the first entry that a queue has lost. Queues and index know what
   they have, so dispatching more than needed is harmless.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable

from cometmq.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ConsumeQueue, QueueEntry
from cometmq.store.dispatch_cy import properties_of_interest, record_parts
from cometmq.store.flush import clear_failed_sync, failed_sync_offset, rewrite_range
from cometmq.store.index import Index
from cometmq.store.mapped_file import MappedFile
from cometmq.store.model import RecoveryReport
from cometmq.store.queue_losses import QueueLosses
from cometmq.store.queue_repair import QueueRepair
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD
from cometmq.store.queue_table import MULTI_DISPATCH_SEPARATOR, QueueTable
from cometmq.store.scan_cy import (
    LENGTH,
    MAGIC,
    MESSAGE_MAGIC,
    POSITION,
    REASONS,
    STOP_BAD,
    STOP_BLANK,
    STOP_END,
    STOP_ZERO,
    Scan,
    record_store_timestamp,
    scan_records,
)
from cometmq.store.tails import Tails

RECOVERED_FILES = 3  # files that are checked after an orderly stop
INDEX_FILES_BACK_MAX = 3  # files that recovery goes back further for the sake of the index
# Last entries that are looked for in the log: many wrong ones are left over, not damaged
MENDED_TAILS_MAX = 100

FOREIGN_REASONS = frozenset(REASONS[number] for number in (MAGIC, LENGTH, POSITION))

log = logging.getLogger(__name__)

SEARCH_STEP = 1 << 20  # bytes
MAGIC_POSITION = 4  # in a record
SYS_FLAG_POSITION = 36
PHYSICAL_OFFSET_FIELD = 6  # of _HEAD

_HEAD = struct.Struct(">IIIiiqqi")


class Recovery:
    """One run over the parts of a store that is being opened. Loop thread."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        table: QueueTable,
        index: Index | None,
        checkpoint: Checkpoint,
        report: RecoveryReport,
        *,
        tails: Tails | None,
        distrust: Callable[[], None],
    ) -> None:
        """`tails`: where the last orderly stop left the queues, if that is sure. `distrust` has the next start know
        that the queues are not complete, should this one not come to its end."""
        self.config = config
        self.log = commit_log
        self.table = table
        self.index = index
        self.checkpoint = checkpoint
        self.report = report
        self._repair = QueueRepair(config, commit_log, table)
        self._tails = tails
        self._losses = QueueLosses(commit_log, table, checkpoint, self._repair, distrust, self._note)
        self._tails_left = MENDED_TAILS_MAX

    def run(self) -> None:
        self._losses.find(self._tails)
        if not self.log.files:
            self._begin_anew()
            return
        queues_end = max((queue.max_physical_offset for queue in self.table.all()), default=0)
        first = self._first_file(queues_end)
        end = self._find_end(first)
        self.report.walk_start = self.log.files[first].start
        self.report.damaged = self.report.damaged or queues_end > end
        self._losses.discard()
        self._cut(end, queues_end)
        self._rewrite_doubtful()
        self._sync_log(first)
        walk_start = self.report.walk_start
        some_cut = self._check_tails() > 0
        if not self.report.clean:
            dispatch_from = self._compare_queues(walk_start, end)
        else:
            dispatch_from = walk_start if some_cut else max(queues_end, self.log.min_offset)
        self.dispatch(min(self._losses.dispatch_from(dispatch_from), end))
        if self.config.rebuild_queues_from_log and (again_from := self._losses.late()) is not None:
            self.dispatch(again_from)
        self.correct_min_offsets()

    def _begin_anew(self) -> None:
        if self.table.queue_count:
            self.report.notes.append("the commit log is empty: all queues were removed")
        self.table.remove_all()
        if self.index is not None:
            self.index.destroy()
        self.log.truncate(0)

    # Where to begin

    def _first_file(self, queues_end: int) -> int:
        """Number of the file at which the walk begins."""
        if self.report.clean:
            return max(0, len(self.log.files) - RECOVERED_FILES)
        first = self._checkpoint_file()
        if self.config.rebuild_queues_from_log:
            first = min(first, self._file_number(queues_end))
        if self.index is not None:
            index_first = self._file_number(self.index.recover(self.checkpoint.index_msg_timestamp_ms))
            if self.config.message_index_safe or index_first >= first - INDEX_FILES_BACK_MAX:
                first = min(first, index_first)
        return first

    def _checkpoint_file(self) -> int:
        """The last file whose first record was on disk, queue entries included, when the checkpoint was written."""
        trusted_ms = self.checkpoint.min_timestamp_ms
        if self.config.message_index_safe:
            trusted_ms = min(trusted_ms, self.checkpoint.index_msg_timestamp_ms)
        for number in range(len(self.log.files) - 1, 0, -1):
            timestamp_ms = record_store_timestamp(self.log.files[number].buffer(), 0, self.log.file_size)
            if 0 < timestamp_ms <= trusted_ms:
                return number
        return 0

    def _file_number(self, physical_offset: int) -> int:
        number = (physical_offset - self.log.files[0].start) // self.log.file_size
        return max(0, min(number, len(self.log.files) - 1))

    # Where it ends

    def _find_end(self, first: int) -> int:
        """Walk the files from number `first`; physical offset after the last good record."""
        end = self.log.files[first].start
        for file in self.log.files[first:]:
            scan = scan_records(
                file.buffer(), 0, file.size, file.start, self.config.check_crc_on_recover, file.size
            )
            self.report.records_scanned += scan.count
            end = file.start + scan.end
            if scan.stop == STOP_BAD:
                self._refuse_foreign(file, scan)
                self.report.cut_offset = end
                self.report.damaged = self._records_behind(file, scan.end)
                self._note(f"{file.path} is good up to physical offset {end} only: {scan.reason}")
            if scan.stop == STOP_ZERO and scan.count and (torn := _torn_record(file, scan.end)) >= 0:
                end = self.report.cut_offset = file.start + torn
                self._note(
                    f"{file.path} is good up to physical offset {end} only: the last properties are cut short"
                )
            if scan.stop not in (STOP_BLANK, STOP_END):
                return end
            if file is not self.log.files[-1]:
                end = file.end
        return end

    def _records_behind(self, file: MappedFile, position: int) -> bool:
        """Is there more behind bytes that are no record? Then no crash has made them so."""
        later = self.log.files[self.log.files.index(file) + 1 :]
        return _record_follows(file, position) or any(
            record_store_timestamp(one.buffer(), 0, one.size) >= 0 for one in later
        )

    def _refuse_foreign(self, file: MappedFile, scan: Scan) -> None:
        """A file that does not even begin like a log was not made so by a crash: cutting would erase it."""
        if self.report.clean and scan.count == 0 and scan.reason in FOREIGN_REASONS:
            raise StoreError(
                f"The commit log file {file.path} does not begin with a record of its own ({scan.reason}): "
                "restore it from a copy, or move it and all later files out of the directory."
            )

    def _cut(self, end: int, queues_end: int) -> None:
        self.log.truncate(end)
        if queues_end > end:
            for queue in self.table.all():
                if queue.max_physical_offset > end and not self._mend_tail(queue) and queue.truncate(end):
                    self._note(f"queue {queue.topic}/{queue.queue_id} was cut to {queue.max_offset}")
        if self.index is not None:
            self.index.truncate(end)

    def _rewrite_doubtful(self) -> None:
        """The last run met a failed sync: write that part again before anybody trusts it."""
        doubtful = failed_sync_offset(self.config.store_path_root_dir)
        if doubtful is None:
            return
        for file in self.log.files:
            start, end = max(doubtful - file.start, 0), min(self.log.end_offset - file.start, file.size)
            if start < end:
                self._rewrite(file, start, end)
        clear_failed_sync(self.config.store_path_root_dir)
        self._note(f"the log was written to disk again from physical offset {doubtful} on")

    def _rewrite(self, file: MappedFile, start: int, end: int) -> None:
        ops = file.open_files.ops
        descriptor = ops.open(file.path)
        try:
            rewrite_range(descriptor, start, end, file.start)
            ops.sync(descriptor)
        finally:
            os.close(descriptor)

    def _sync_log(self, first: int) -> None:
        """After a crash of the process alone the last records may be in memory only.

        They count as flushed from now on, and messages that are acknowledged later stand behind them.
        """
        if self.report.clean:
            return
        for file in self.log.files[first:]:
            try:
                file.sync()
            except OSError as error:
                raise StoreError(
                    f"The commit log file {file.path} cannot be synced ({error.strerror}): check its disk."
                ) from error

    # Queues

    def _check_tails(self) -> int:
        """Cut entries at the ends of queues that lead elsewhere; how many."""
        total = 0
        for queue in self.table.all():
            cut = 0
            while (entry := queue.recovered_entry) is not None and not self._belongs(queue, entry):
                if self._mend_tail(queue):
                    break
                queue.cut_last_entry()
                cut += 1
            queue.recover_ext()
            if cut:
                self._losses.add(queue)
                self._note(
                    f"queue {queue.topic}/{queue.queue_id} was cut to {queue.max_offset}: "
                    f"{cut} entries did not point to its records"
                )
            total += cut
        return total

    def _compare_queues(self, start: int, end: int) -> int:
        """Correct what the queues have; the physical offset of the first record that they do not have."""
        compared = self._repair.compare(start, end, self.index)
        if compared.mended:
            self._note(f"{compared.mended} damaged queue entries were made anew from the log")
        return compared.first_missing

    def _mend_tail(self, queue: ConsumeQueue) -> bool:
        """Was the last entry of a queue damaged, rather than left over? Then it is as it should be again."""
        if self._tails_left <= 0 or not queue.max_offset:
            return False
        mended = self._repair.mend(queue, queue.max_offset - 1, quiet=True)
        self._tails_left -= not mended
        queue.note_last()
        return mended

    def _belongs(self, queue: ConsumeQueue, entry: QueueEntry) -> bool:
        """Does an entry point to a record of its queue? Records that have left the log get the benefit of doubt."""
        if 0 <= entry.physical_offset < self.log.min_offset or entry.size == BLANK_SIZE_FIELD:
            return True
        record = self.log.read(entry.physical_offset, entry.size)
        if record is None:
            return False
        scan = scan_records(record, 0, len(record), entry.physical_offset, False)
        if scan.count != 1 or scan.end != len(record):
            return False
        _, _, _, queue_id, _, queue_offset, _, sys_flag = _HEAD.unpack_from(record)
        topic, properties, _ = record_parts(record, sys_flag)
        if topic != queue.topic.encode():
            names = properties_of_interest(properties).get(b"INNER_MULTI_DISPATCH", b"")
            return queue.topic.encode() in names.split(MULTI_DISPATCH_SEPARATOR.encode())
        if queue_id != queue.queue_id:
            return False
        earlier = queue.entry(queue_offset) if queue_offset != queue.max_offset - 1 else None
        return earlier is None or earlier.physical_offset != entry.physical_offset

    def dispatch(self, physical_offset: int) -> None:
        """Bring queues and index up to the end of the log. Raises StoreError."""
        end = self.log.end_offset
        before = self.table.record_count
        for file in self.log.files[self._file_number(physical_offset) :]:
            start = max(physical_offset - file.start, 0)
            stop = min(end - file.start, file.size)
            if start < stop:
                self._dispatch_file(file, start, stop)
        self.report.records_dispatched += self.table.record_count - before
        self.log.last_store_timestamp_ms = self.table.last_store_timestamp_ms

    def _dispatch_file(self, file: MappedFile, start: int, stop: int) -> None:
        scan = scan_records(file.buffer(), start, stop, file.start, False, file.size)
        if scan.stop == STOP_BAD and scan.count == 0 and start > 0:
            start = 0  # not at a record: go through the whole file
            scan = scan_records(file.buffer(), start, stop, file.start, False, file.size)
        if scan.stop == STOP_BAD:
            self._note(f"{file.path} is damaged at physical offset {file.start + scan.end}: {scan.reason}")
        self.table.dispatch(file.buffer(), start, scan.end, file.start)

    def correct_min_offsets(self) -> None:
        for queue in self.table.all():
            queue.correct_min_offset(self.log.min_offset)

    def _note(self, text: str) -> None:
        log.warning("recovery: %s", text)
        self.report.notes.append(text)


def _torn_record(file: MappedFile, end: int) -> int:
    """Position of the record that ends here, if zeros stand where its last properties should be; else -1.

    No checksum covers properties. They are text, so a zero at their end was never written.
    """
    buffer = file.buffer()
    if buffer[end - 1]:
        return -1
    start = scan_records(buffer, 0, end - 1, file.start, False).end  # the last record does not fit any more
    record = memoryview(buffer)[start:end]
    sys_flag = int.from_bytes(record[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4], "big")
    return start if record_parts(record, sys_flag)[1] else -1


def _record_follows(file: MappedFile, position: int) -> bool:
    """Does a record that knows its own place stand somewhere behind a position?"""
    magic = MESSAGE_MAGIC.to_bytes(4, "big")
    data = file.buffer()
    for start in range(position + 1, file.size, SEARCH_STEP):
        part = bytes(data[start : min(start + SEARCH_STEP + _HEAD.size, file.size)])
        at = part.find(magic)
        while at >= 0:
            begin = start + at - MAGIC_POSITION
            if begin > position and begin + _HEAD.size <= file.size:
                head = _HEAD.unpack_from(data, begin)
                if head[PHYSICAL_OFFSET_FIELD] == file.start + begin:
                    return True
            at = part.find(magic, at + 1)
    return False
