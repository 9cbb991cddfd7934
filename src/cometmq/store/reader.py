"""QueueReader: pulls by queue offset, as slices of the mapped log. Loop thread.

Long runs of adjacent records are slices of the map, nothing is copied. Short runs (many queues are written at the
same time) are copied together when they are surely in memory: a slice costs more than copying a few kilobytes
(docs/decisions/003-short-runs-are-copied.md).

Every record is compared with the entry that leads to it before anybody gets it: a damaged ConsumeQueue entry is
made anew from the log (`queue_repair`), and a record that belongs elsewhere is never handed out. What is on disk
is read in by a thread first, so such a result is only a list of what to read (`read_ahead`); ask again when that is
done.

Statuses and next offsets are those of the original, with one improvement: a scan goes on into the next
ConsumeQueue file, so that a request near the end of a file is not cut short.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from cometmq.store.commit_log import CommitLog
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ENTRY, ConsumeQueue, QueueEntry
from cometmq.store.consume_queue_ext import is_address
from cometmq.store.mapped_file import MappedFile
from cometmq.store.model import GetResult, GetStatus, MessageFilter
from cometmq.store.page_reader import PageReader
from cometmq.store.queue_repair import QueueRepair
from cometmq.store.queue_scan_cy import (
    BLANK_SIZE_FIELD,
    ENTRY_SIZE,
    Collected,
    Home,
    Limits,
    batch_full,
    collect,
    gather,
    is_record_of,
)
from cometmq.store.queue_table import QueueTable
from cometmq.store.read_ahead import ReadAhead
from cometmq.store.residency_cy import is_resident
from cometmq.store.settings import UNLIMITED
from cometmq.store.window import ENDLESS, Window

GATHER_RUN_SIZE_MAX = 16_384  # bytes; shorter runs on average are copied together
# Bytes; records this close to each other are read from disk with what lies between them
COLD_SPAN_MAX = 4 << 20
FILTER_ENTRIES_MAX = 800  # entries looked at for one request, unless more messages are wanted


class AtHand(NamedTuple):
    entries: memoryview  # a file of a queue
    entries_start: int  # stream position of its first byte
    file: MappedFile  # of the log
    first: int  # physical offset of the first record


class QueueReader:
    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, table: QueueTable, page_reader: PageReader
    ) -> None:
        self.config = config
        self._log = commit_log
        self._repair = QueueRepair(config, commit_log, table)
        self.ahead = ReadAhead(commit_log, page_reader.read)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._memory_size = memory * config.access_message_in_memory_max_ratio // 100
        self.own_from = 0  # what was appended by this process lies behind this physical offset

    def get(
        self,
        queue: ConsumeQueue | None,
        queue_offset: int,
        max_count: int,
        max_bytes: int | None,
        message_filter: MessageFilter | None,
        warmed: bool = False,
    ) -> GetResult:
        """Unless ``warmed``, what is not in memory is not touched: the result is ``cold`` and has no slices."""
        high = queue.max_offset if queue is not None else 0
        if queue is None or high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low = queue.min_offset
        if queue_offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if queue_offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
        if queue_offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        limits = self._limits(max_count, max_bytes)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, queue_offset, low, high)
        memory_from = self.memory_from
        has_old = memory_from > limits.log_min
        if has_old and not warmed:
            self._find_cold(queue, queue_offset, limits, message_filter, memory_from, result)
            if result.cold:
                return result
        first = queue.entry(queue_offset) if has_old else None
        runs = self._scan(queue, queue_offset, limits, message_filter, result, self._log_file(first))
        if result.count and not self._gather(result, runs):
            self._add_slices(result, runs)
        return result

    @property
    def memory_from(self) -> int:
        """What lies behind this physical offset is surely in memory."""
        recent = self.disk_below
        return recent if recent > self.own_from else self.own_from

    def at_hand(
        self, queue: ConsumeQueue, queue_offset: int, count: int, window: Window | None = None
    ) -> AtHand | None:
        """Where a pull finds its messages, if it is known that all it may look at is in memory; None: get() decides.

        ``window`` is what was found out for the pull before it, and is moved on.
        """
        position = queue_offset * ENTRY_SIZE
        end = position + count * ENTRY_SIZE
        if end > queue.end:
            end = queue.end
        if queue_offset < queue.min_offset or position >= end:
            return None
        known = window is not None and window.has_entries(position, end)
        if not known and self._has_old and self.ahead.missing_entries(queue, position, end):
            return None
        found = queue.entries_at(position)
        if found is None or found[1] + end - position > found[2]:  # the next file has some of them
            return None
        view, at, _ = found
        first = ENTRY.unpack_from(view, at)[0]
        last, size, _ = ENTRY.unpack_from(view, at + end - position - ENTRY_SIZE)
        file = self._log.file_at(first)
        if file is None:
            return None
        if known and window is not None and window.start <= first < last + size <= window.end:
            return AtHand(view, position - at, file, first)
        if not self._records_at_hand(queue, position, end, first, last + size, window):
            return None
        return AtHand(view, position - at, file, first)

    def _records_at_hand(
        self, queue: ConsumeQueue, position: int, end: int, start: int, stop: int, window: Window | None
    ) -> bool:
        """Are records between these physical offsets in memory? If they are old, the next ones are read ahead."""
        old_below = self.memory_from
        if start >= old_below:
            if window is not None and not self._has_old:
                window.move(position, ENDLESS, old_below, ENDLESS)
            return True
        log_end, ahead = self._log.end_offset, self.ahead
        if start < self.disk_below and self._has_disk_limits:
            return False
        if not start < stop <= min(log_end, start + COLD_SPAN_MAX):
            return False
        if ahead.missing_records(start, stop):
            return False
        expected = ahead.expect_records(stop, old_below)
        if ahead.expect_entries(queue, position) and expected and window is not None:
            window.move(
                position,
                ahead.entries_known_to(queue, end - ENTRY_SIZE),
                start,
                ahead.records_known_to(stop - 1),
            )
        return True

    @property
    def disk_below(self) -> int:
        """What lies before this physical offset is probably on disk, by a rule of the original."""
        return self._log.end_offset - self._memory_size

    @property
    def _has_disk_limits(self) -> bool:
        """Does a pull of messages on disk get fewer than others?"""
        config = self.config
        return (
            config.max_transfer_count_on_message_in_disk < UNLIMITED
            or config.max_transfer_bytes_on_message_in_disk < UNLIMITED
        )

    @property
    def _has_old(self) -> bool:
        """Is anything in the log that may have left memory?"""
        old_below = self.memory_from
        return old_below > 0 and old_below > self._log.min_offset

    def _find_cold(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        limits: Limits,
        message_filter: MessageFilter | None,
        memory_from: int,
        result: GetResult,
    ) -> None:
        """Find what must be read from disk before a pull can be served, and have read what the next ones will want."""
        ahead, position = self.ahead, queue_offset * ENTRY_SIZE
        count = limits.count if message_filter is None else max(FILTER_ENTRIES_MAX, limits.count)
        result.cold_parts = ahead.missing_entries(queue, position, position + count * ENTRY_SIZE)
        if result.cold:
            return
        first = queue.entry(queue_offset)
        if first is None or first.physical_offset >= memory_from:
            return
        last = queue.entry(min(queue_offset + count, queue.max_offset) - 1)
        start, end = first.physical_offset, last.physical_offset + last.size if last is not None else 0
        if not limits.log_min <= start < end <= min(limits.log_end, start + COLD_SPAN_MAX):
            result.cold_parts = self._cold_runs(queue, queue_offset, limits, message_filter)
            return
        result.cold_parts = ahead.missing_records(start, end)
        ahead.expect_records(end, memory_from)
        ahead.expect_entries(queue, position)

    def _cold_runs(
        self, queue: ConsumeQueue, queue_offset: int, limits: Limits, message_filter: MessageFilter | None
    ) -> list[memoryview]:
        """The records are far apart, or the entries are not what they should be: look at them one by one."""
        found = GetResult(GetStatus.NO_MATCHED_MESSAGE, queue_offset, 0, 0)
        runs = self._scan(queue, queue_offset, limits, message_filter, found, None)
        return [part for part in self._spans(runs) if not is_resident(part)] if runs else []

    def _limits(self, max_count: int, max_bytes: int | None) -> Limits:
        config = self.config
        bytes_max = config.max_transfer_bytes_on_message_in_memory if max_bytes is None else max_bytes
        count_max = config.max_transfer_count_on_message_in_memory
        return Limits(
            max_count,
            bytes_max,
            count_max,
            min(bytes_max, config.max_transfer_bytes_on_message_in_disk),
            min(count_max, config.max_transfer_count_on_message_in_disk),
            max(self._log.min_offset, 0),
            self._log.end_offset,
            self.disk_below,
        )

    def _scan(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        limits: Limits,
        message_filter: MessageFilter | None,
        result: GetResult,
        file: MappedFile | None,
    ) -> list[tuple[int, int]]:
        """Fill in a result, all but the slices; the runs of records that it is made of.

        With `file`, the log file of the first record, every entry is checked.
        """
        position = queue_offset * ENTRY_SIZE
        stop = position + max(FILTER_ENTRIES_MAX, limits.count) * ENTRY_SIZE
        skip_to, last = 0, -1
        runs: list[tuple[int, int]] = []
        while position < min(stop, queue.end):
            found = queue.entries_at(position)
            if found is None:
                # A file is missing: step over it, at once if there is something to return already.
                position = position - position % queue.file_size + queue.file_size
                if result.count == 0:
                    result.status = GetStatus.OFFSET_FOUND_NULL
                break
            view, at, end = found
            end = min(end, at + stop - position)
            home = self._home(queue, file, position - at) if file is not None else None
            part = self._part(queue, view, at, end, limits, result, skip_to, message_filter, home)
            position += part.position - at
            result.count, result.size, skip_to = part.count, part.size, part.skip_to
            last = part.last_physical_offset
            _join(runs, part.runs)
            if part.full:
                break
            if part.doubtful:
                other = self._log_file(queue.entry(position // ENTRY_SIZE))
                if other is not None and other is not file:
                    file = other
                elif removed_to := self._removed_to(queue, position):
                    skip_to = removed_to
                elif not self._repair.mend(queue, position // ENTRY_SIZE):
                    if result.count == 0:
                        result.status = GetStatus.OFFSET_FOUND_NULL
                    break
        result.next_offset = position // ENTRY_SIZE
        if result.count:
            result.status = GetStatus.FOUND
        elif skip_to and result.status is GetStatus.NO_MATCHED_MESSAGE:
            result.status = GetStatus.MESSAGE_WAS_REMOVING
        result.suggest_slave = 0 <= last < limits.disk_below
        return runs

    def _log_file(self, entry: QueueEntry | None) -> MappedFile | None:
        """The log file to which an entry points; if to none, the last one: most pulls want what came lately."""
        found = self._log.file_at(entry.physical_offset) if entry is not None else None
        return found or (self._log.files[-1] if self._log.files else None)

    def _home(self, queue: ConsumeQueue, file: MappedFile, queue_start: int) -> Home:
        log_end = min(file.end, self._log.end_offset)
        topic = queue.topic.encode("utf-8", "surrogateescape")
        return Home(
            file.buffer(), file.start, log_end, queue_start, topic, int(queue.queue_id), queue.lenient
        )

    def _removed_to(self, queue: ConsumeQueue, position: int) -> int:
        """Has the record of an entry left the log with its neighbours? Where its file ended, or 0."""
        number, log_min = position // ENTRY_SIZE, max(self._log.min_offset, 0)
        near = [
            queue.entry(n) for n in (number, number + 1 if position + ENTRY_SIZE < queue.end else number - 1)
        ]
        if all(entry is not None and 0 <= entry.physical_offset < log_min for entry in near):
            assert near[0] is not None
            file_size = self._log.file_size
            return near[0].physical_offset - near[0].physical_offset % file_size + file_size
        return 0

    def _spans(self, runs: list[tuple[int, int]]) -> list[memoryview]:
        """What may have to be read from disk: everything from the first record to the last where they lie close."""
        first, (last, last_size) = runs[0][0], runs[-1]
        close = last + last_size - first <= COLD_SPAN_MAX
        wanted = [(first, last + last_size - first)] if close else runs
        parts = [self._log.read(physical_offset, size) for physical_offset, size in wanted]
        if None in parts and close:  # the span leaves its file
            parts = [self._log.read(physical_offset, size) for physical_offset, size in runs]
        return [part for part in parts if part is not None]

    def _gather(self, result: GetResult, runs: list[tuple[int, int]]) -> bool:
        """Copy many short runs of one file into one piece; False when slices are the better way."""
        if len(runs) == 1 or result.size > len(runs) * GATHER_RUN_SIZE_MAX:
            return False
        file = self._log.file_at(runs[0][0])
        if file is None or runs[-1][0] >= file.end:
            return False
        result.slices.append(memoryview(gather(file.buffer(), file.start, runs, result.size)))
        return True

    def _add_slices(self, result: GetResult, runs: list[tuple[int, int]]) -> None:
        for physical_offset, size in runs:
            data = self._log.read(physical_offset, size)
            if data is not None:
                result.slices.append(data)

    def _part(
        self,
        queue: ConsumeQueue,
        view: memoryview,
        at: int,
        end: int,
        limits: Limits,
        result: GetResult,
        skip_to: int,
        message_filter: MessageFilter | None,
        home: Home | None,
    ) -> Collected:
        """Entries of one ConsumeQueue file whose records are in one log file."""
        codes = getattr(message_filter, "tags_codes", None)
        if message_filter is None or (
            codes is not None and not message_filter.needs_record and queue.ext is None
        ):
            return collect(
                view, at, end, limits, result.count, result.size, skip_to, codes, self._log.file_size, home
            )
        return self._collect_filtered(queue, view, at, end, limits, result, skip_to, message_filter, home)

    def _collect_filtered(
        self,
        queue: ConsumeQueue,
        view: memoryview,
        at: int,
        end: int,
        limits: Limits,
        result: GetResult,
        skip_to: int,
        message_filter: MessageFilter,
        home: Home | None,
    ) -> Collected:
        """collect() with questions to the filter."""
        count, size, last, full, doubtful = result.count, result.size, -1, False, False
        chosen: list[tuple[int, int]] = []
        while at < end:
            physical_offset, record_size, tags_code = ENTRY.unpack_from(view, at)
            passed = physical_offset < skip_to and (home is None or physical_offset >= 0)
            if not passed and (record_size != BLANK_SIZE_FIELD or (home is not None and physical_offset)):
                last = physical_offset
                if batch_full(limits, count, size, physical_offset, record_size):
                    full = True
                    break
                if home is not None and not is_record_of(
                    home, (home.queue_start + at) // ENTRY_SIZE, physical_offset, record_size
                ):
                    doubtful = True
                    break
                if self._entry_matches(queue, tags_code, message_filter):
                    record = self._log.read(physical_offset, record_size)
                    if record is None:
                        skip_to = (
                            physical_offset - physical_offset % self._log.file_size + self._log.file_size
                        )
                    elif not message_filter.needs_record or message_filter.matches_record(record):
                        chosen.append((physical_offset, record_size))
                        count += 1
                        size += record_size
            at += ENTRY_SIZE
        return Collected(at, count, size, full, skip_to, last, list(_merged(chosen)), doubtful)

    @staticmethod
    def _entry_matches(queue: ConsumeQueue, tags_code: int, message_filter: MessageFilter) -> bool:
        if is_address(tags_code):
            unit = queue.ext.get(tags_code) if queue.ext is not None else None
            if unit is None:
                return True  # nothing is known: let the record decide
            matches_ext = getattr(message_filter, "matches_ext", None)
            if matches_ext is not None:
                return bool(matches_ext(unit.tags_code, unit.store_timestamp_ms, unit.bit_map))
            tags_code = unit.tags_code
        return message_filter.matches_tags_code(tags_code)


def _join(runs: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    """Add runs; the first of them may go on where the last one ended."""
    if runs and more and sum(runs[-1]) == more[0][0]:
        start, size = runs.pop()
        more = [(start, size + more[0][1]), *more[1:]]
    runs += more


def _merged(chosen: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Adjacent records as one run."""
    start = end = -1
    for physical_offset, size in chosen:
        if physical_offset != end:
            if end >= 0:
                yield start, end - start
            start = physical_offset
        end = physical_offset + size
    if end >= 0:
        yield start, end - start
