"""Damaged ConsumeQueue entries: found by comparing them with the log, and made anew from it. Loop thread.

The log is the truth. `Expected` is a dispatcher whose queues live in memory; it is fed a range of the log, and what it
would enter is compared with what stands in the files. Recovery does so with all it walks through after a crash, tags
codes included; the index gets the keys of that range on the way, and what the queues do not have yet is noted. A pull
that meets an entry which does not point to its record has the range between the nearest true neighbours looked at
(`mend`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import NamedTuple

from cometmq.protocol.names import SCHEDULE_TOPIC
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ENTRY, ConsumeQueue, QueueEntry
from cometmq.store.consume_queue_ext import is_address
from cometmq.store.dispatch_cy import QueueTail, TopicQueues
from cometmq.store.index import Index
from cometmq.store.mapped_file import OpenFiles
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, ENTRY_SIZE, Home, is_record_of
from cometmq.store.queue_table import QueueTable
from cometmq.store.read_only import QueueName
from cometmq.store.scan_cy import scan_records
from cometmq.store.verify_queues import ExpectedQueue

STEP_SIZE = 32 << 20  # bytes of log per step: bounds the memory for expected entries
NEIGHBOURS_MAX = 1_000  # entries looked at on each side for one that is true
MEND_SIZE_MAX = 2 << 30  # bytes of log that are searched for the record of one entry
SEARCH_SIZE_MAX = 256 << 20  # bytes of log that are searched for the record before a queue's first entry ...
SEARCHES_SIZE_MAX = 2 << 30  # ... and for all such records
HOPELESS_MAX = 10_000  # entries that are remembered, and complained about, as lost

log = logging.getLogger(__name__)


class QueueRepair:
    def __init__(self, config: StoreConfig, commit_log: CommitLog, table: QueueTable) -> None:
        self._config = config
        self._log = commit_log
        self._table = table
        self.mended = 0
        self._search_left = SEARCHES_SIZE_MAX
        self._hopeless: set[tuple[str, int, int]] = set()  # queue and offset of entries that are lost

    # One entry

    def mend(self, queue: ConsumeQueue, queue_offset: int, *, quiet: bool = False) -> bool:
        """An entry does not point to its record: make it anew; True if it can be read now.

        False: the log has no record for it either. Whoever reads must stop before it. `quiet`: it may also be left
        over from a log that was cut, and then nobody needs it.
        """
        if (queue.topic, int(queue.queue_id), queue_offset) in self._hopeless:
            return self.is_true(queue, queue_offset)  # the search takes long, and the log does not change
        found = queue.entry(queue_offset)
        standing = self._dispatched_offset(queue, found) if found is not None else -1
        if standing == queue_offset:
            queue.lenient = True  # an additional queue (multi-dispatch): other queues' records belong here
            return True
        for start, end in self._where_to_look(queue, queue_offset):
            self._compare_range(Expected(self._config, self._table, only=queue), start, end)
            if self.is_true(queue, queue_offset):
                return True
        if standing >= 0 and not quiet:
            # Stores of the original have such entries after a topic was deleted and made again.
            queue.lenient = True
            return True
        if not quiet:
            self._complain(queue, queue_offset, found)
        return False

    def in_log_before(self, queue: ConsumeQueue, queue_offset: int | None, physical_offset: int) -> bool:
        """Does the log have a queue's record of an offset (None: any) before a place? Looks at what is near it."""
        low = max(
            self._log.min_offset, physical_offset - SEARCH_SIZE_MAX, physical_offset - self._search_left
        )
        high = physical_offset
        while low < high and (file := self._log.file_at(high - 1)) is not None:
            sought = Sought(self._config, self._table, queue, queue_offset)
            at, end = 0, high - file.start
            scan = scan_records(file.buffer(), at, end, file.start, False, file.size)
            sought.dispatch(file.buffer(), at, scan.end, file.start)
            self._search_left -= scan.end
            if sought.is_there():
                return True
            high = file.start
        return False

    def is_true(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Does an entry point to its record?"""
        entry = queue.entry(queue_offset)
        file = self._log.file_at(entry.physical_offset) if entry is not None else None
        if entry is None or file is None:
            return False
        end = min(file.end, self._log.end_offset)
        topic = queue.topic.encode("utf-8", "surrogateescape")
        home = Home(file.buffer(), file.start, end, 0, topic, int(queue.queue_id), queue.lenient)
        return is_record_of(home, queue_offset, entry.physical_offset, entry.size)

    def _dispatched_offset(self, queue: ConsumeQueue, entry: QueueEntry) -> int:
        """The queue offset that the record to which an entry points would be given in this queue, -1 without."""
        file = self._log.file_at(entry.physical_offset)
        if file is None or self._log.read(entry.physical_offset, entry.size) is None:
            return -1
        at = entry.physical_offset - file.start
        scan = scan_records(file.buffer(), at, at + entry.size, file.start, False)
        if scan.count != 1 or scan.end != at + entry.size:
            return -1
        expected = Expected(self._config, self._table, only=queue)
        expected.dispatch(file.buffer(), at, scan.end, file.start)
        return next((int(one.file_start) // ENTRY_SIZE for one in expected.queues()), -1)

    def _where_to_look(self, queue: ConsumeQueue, queue_offset: int) -> Iterator[tuple[int, int]]:
        """Ranges of the log that may have the record of an entry: between its true neighbours, later files first."""
        low = max(self._log.min_offset, 0)
        high = self._log.end_offset
        for number in range(queue_offset - 1, max(queue_offset - NEIGHBOURS_MAX, queue.min_offset) - 1, -1):
            entry = queue.entry(number)
            if entry is not None and self.is_true(queue, number):
                low = entry.physical_offset + entry.size
                break
        for number in range(queue_offset + 1, min(queue_offset + NEIGHBOURS_MAX, queue.max_offset)):
            entry = queue.entry(number)
            if entry is not None and self.is_true(queue, number):
                high = entry.physical_offset
                break
        searched = 0
        while low < high and searched < MEND_SIZE_MAX and (file := self._log.file_at(high - 1)) is not None:
            start = max(low, file.start)
            yield start, high
            searched += high - start
            high = start

    def _complain(self, queue: ConsumeQueue, queue_offset: int, entry: QueueEntry | None) -> None:
        where = (queue.topic, int(queue.queue_id), queue_offset)
        if len(self._hopeless) < HOPELESS_MAX:
            self._hopeless.add(where)
            log.error(
                "QUEUE_ENTRY_LOST topic=%s queue=%d offset=%d: its entry %s leads to no record of this queue and the "
                "log has none; consumers stay before it until its offset is reset or the file restored",
                *where, tuple(entry) if entry is not None else None,
            )  # fmt: skip

    # Ranges

    def compare(self, start: int, end: int, index: Index | None) -> Compared:
        """Compare all entries that the records of a range give with the files, and correct those that are wrong.

        The index gets the keys of all of them.
        """
        mended, first_missing = 0, None
        while start < end and (file := self._log.file_at(start)) is not None:
            expected = Expected(self._config, self._table, only=None, index=index)
            walked = self._compare_range(expected, start, min(end, file.end, start + STEP_SIZE))
            start = walked if walked > start else file.end  # nothing more in this file
            mended += expected.mended
            if first_missing is None:
                first_missing = min(expected.missing, default=None)
            if expected.record_count:
                self._table.last_store_timestamp_ms = expected.last_store_timestamp_ms
        return Compared(mended, end if first_missing is None else first_missing)

    def _compare_range(self, expected: Expected, start: int, end: int) -> int:
        """The records of a range within one file; the offset after the last one looked at."""
        file = self._log.file_at(start)
        if file is None:
            return start
        at = start - file.start
        scan = scan_records(file.buffer(), at, end - file.start, file.start, False, file.size)
        expected.dispatch(file.buffer(), at, scan.end, file.start)
        for queue in expected.queues():
            queue.compare_chunk()
        self.mended += expected.mended
        return file.start + scan.end


class Compared(NamedTuple):
    mended: int  # entries
    first_missing: int  # physical offset of the first record that its queue does not have


class Expected(QueueTable):
    """What a range of the log gives the queues; compared with the real ones, which are corrected."""

    def __init__(
        self,
        config: StoreConfig,
        real: QueueTable,
        *,
        only: ConsumeQueue | None,
        index: Index | None = None,
    ) -> None:
        # Without extension units, which would be written: an entry may hold the tags code itself.
        config = dataclasses.replace(
            config, enable_consume_queue_ext=False, enable_multi_dispatch=True, enable_lmq=True
        )
        super().__init__(config, OpenFiles(1), real.delay_levels)
        self.index = index
        self.mended = 0
        self.missing: list[int] = []  # physical offsets of records that are not in their queues
        self._real = real
        self._only = only

    def queues(self) -> list[ExpectedQueue]:
        tails = [tail for topic in self.topics.values() for tail in topic.queues.values()]
        return [tail for tail in tails if isinstance(tail, ExpectedQueue)]

    def new_queue(self, topic_queues: TopicQueues, queue_id: int) -> QueueTail:  # type: ignore[override]
        name = QueueName(topic_queues.topic, queue_id)
        wanted = self._only is None or (self._only.topic, self._only.queue_id) == (name.topic, queue_id)
        queue: QueueTail = ExpectedQueue(name, self._compare) if wanted else _Ignored(queue_id)
        topic_queues.queues[queue_id] = queue
        return queue

    def _compare(self, expected: ExpectedQueue, start: int, entries: memoryview) -> None:
        queue = self._real.find(expected.name.topic, expected.name.queue_id)
        self._note_missing(entries, queue.max_physical_offset if queue is not None else 0)
        if queue is None:
            return
        position = max(start, queue.first_start)
        while queue.first_start >= 0 and position < min(start + len(entries), queue.end):
            found = queue.entries_at(position)
            if found is None:
                return
            view, at, end = found
            size = min(end - at, start + len(entries) - position)
            wanted = entries[position - start : position - start + size]
            if bytes(view[at : at + size]) != bytes(wanted):  # views are compared one number at a time
                self._mend(queue, position // ENTRY_SIZE, view[at : at + size], wanted)
            position += size

    def _note_missing(self, entries: memoryview, known_end: int) -> None:
        """The first of these entries whose record lies behind what its queue knows: dispatch would enter it."""
        physical_offset, size, _ = ENTRY.unpack_from(entries, len(entries) - ENTRY_SIZE)
        if physical_offset + size > known_end:
            unknown = (at for at, size, _ in ENTRY.iter_unpack(entries) if at + size > known_end)
            self.missing.append(next(unknown))

    def _mend(self, queue: ConsumeQueue, queue_offset: int, found: memoryview, wanted: memoryview) -> None:
        pairs = zip(ENTRY.iter_unpack(found), ENTRY.iter_unpack(wanted), strict=True)
        for number, (old, new) in enumerate(pairs, queue_offset):
            if is_wrong(queue, QueueEntry(*old), QueueEntry(*new)):
                queue.rewrite(number, QueueEntry(*new))
                self.mended += 1
                log.warning(
                    "QUEUE_ENTRY_MENDED topic=%s queue=%d offset=%d: was %s, is %s",
                    queue.topic, queue.queue_id, number, old, new,
                )  # fmt: skip
                if not queue.dirty:
                    queue.dirty = True
                    self._real.dirty.append(queue)


class Sought(Expected):
    """Is one entry among what a range of the log gives?"""

    def __init__(
        self, config: StoreConfig, real: QueueTable, queue: ConsumeQueue, queue_offset: int | None
    ) -> None:
        super().__init__(config, real, only=queue)
        self._position = queue_offset * ENTRY_SIZE if queue_offset is not None else None
        self._found = False

    def is_there(self) -> bool:
        for queue in self.queues():
            queue.compare_chunk()
        return self._found

    def _compare(self, expected: ExpectedQueue, start: int, entries: memoryview) -> None:
        sought = start if self._position is None else self._position
        self._found = self._found or start <= sought < start + len(entries)


class _Ignored(QueueTail):
    """A queue that nobody asked about."""

    def append_slowly(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        return False


def is_wrong(queue: ConsumeQueue, found: QueueEntry, wanted: QueueEntry) -> bool:
    if queue.lenient and found.size != BLANK_SIZE_FIELD:
        return False
    if found[:2] != wanted[:2]:
        return True
    # An address of an extension unit stands for the code; delivery times depend on the delay levels of their time.
    different = found.tags_code != wanted.tags_code and not (
        queue.ext is not None and is_address(found.tags_code)
    )
    return different and queue.topic != SCHEDULE_TOPIC
