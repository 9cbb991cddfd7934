"""The part of verify that makes queue entries anew from the log and compares them with the files.

`ExpectedQueues` is the dispatcher of a broker whose queues live in memory: each collects the entries that a
stretch of log gives it and compares them with its files when the stretch is over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cometmq.protocol.names import SCHEDULE_TOPIC
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ENTRY
from cometmq.store.consume_queue_ext import ADDRESS_BASE, ExtUnit, is_address, read_unit
from cometmq.store.delay_levels import DelayLevels
from cometmq.store.dispatch_cy import QueueTail, TopicQueues
from cometmq.store.log_walk import Piece
from cometmq.store.mapped_file import OpenFiles
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, ENTRY_SIZE
from cometmq.store.queue_table import QueueTable
from cometmq.store.read_only import QueueName, Segment, StoreFiles, Stream
from cometmq.store.verify_index import IndexMerge

CHUNK_ENTRIES_MIN = 64
CHUNK_ENTRIES_MAX = 65_536

# repaired by a start of the broker, path, position, text
Note = Callable[[bool, Path | str, int | None, str], None]


class ExpectedQueue(QueueTail):
    """Entries that the log gives a queue, in chunks of adjacent ones; a full chunk is compared and forgotten."""

    __slots__ = ("_chunk", "_size", "compare", "last_end", "name")

    def __init__(self, name: QueueName, compare: Callable[[ExpectedQueue, int, memoryview], None]) -> None:
        super().__init__(name.queue_id)
        self.name = name
        self.compare = compare
        self.last_end = -1  # stream position after the last entry that was compared
        self._chunk = memoryview(b"")
        self._size = CHUNK_ENTRIES_MIN

    def append_slowly(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        self.compare_chunk()
        position = queue_offset * ENTRY_SIZE
        self._chunk = memoryview(bytearray(self._size * ENTRY_SIZE))
        self._size = min(self._size * 2, CHUNK_ENTRIES_MAX)
        self.attach(self._chunk, position, position + len(self._chunk))
        ENTRY.pack_into(self._chunk, 0, physical_offset, size, tags_code)
        self.end = position + ENTRY_SIZE
        self.max_physical_offset = physical_offset + size
        return True

    def compare_chunk(self) -> None:
        """Hand over what was collected and begin anew."""
        if self.view is not None:
            start, end = self.file_start, self.end
            self.detach()
            self.compare(self, start, self._chunk[: end - start])
            self.last_end = max(self.last_end, end)
        self.end = -1


class ExpectedQueues(QueueTable):
    """Dispatches good stretches of the log and compares."""

    def __init__(self, files: StoreFiles, ends: dict[QueueName, int], index: IndexMerge, note: Note) -> None:
        config = StoreConfig(store_path_root_dir=files.root, enable_multi_dispatch=True, enable_lmq=True)
        super().__init__(config, OpenFiles(1), DelayLevels(config.message_delay_level))
        self.index = index
        self.entry_count = 0
        self._files = files
        self._ends = ends
        self._note = note
        self._views: dict[Segment, memoryview] = {}
        self._without_queue: dict[str, int] = {}
        self._missing: dict[QueueName, tuple[int, int]] = {}  # first queue offset not in the files, count

    def dispatch_piece(self, piece: Piece, end: int) -> None:
        """Good records up to position ``end`` of their file."""
        self.dispatch(piece.view, piece.start, end, piece.segment.start)
        for queue in self._expected():
            queue.compare_chunk()
        self.dirty = []
        self._views.clear()

    def finish(self, tail_is_repaired: bool) -> None:
        """All of the log was seen: what the files have besides, what they lack."""
        seen = {queue.name: queue.last_end for queue in self._expected()}
        for name, stream in self._files.queues.items():
            start = max(seen.get(name, -1), stream.start)
            self._check_between(stream, start, self._ends[name] * ENTRY_SIZE, tail_is_repaired)
        for name, (queue_offset, count) in self._missing.items():
            text = f"{entries(count)} missing from queue offset {queue_offset} on"
            self._note(tail_is_repaired, self._files.queues[name].directory, None, text)
        for topic, count in self._without_queue.items():
            text = f"no queue for its records in the log, {entries(count)} (was the topic deleted?)"
            self._note(True, self._files.root / "consumequeue" / topic, None, text)

    # Dispatcher

    def new_queue(self, topic_queues: TopicQueues, queue_id: int) -> ExpectedQueue:  # type: ignore[override]
        queue = ExpectedQueue(QueueName(topic_queues.topic, queue_id), self._compare)
        topic_queues.queues[queue_id] = queue
        return queue

    def _expected(self) -> list[ExpectedQueue]:
        return [queue for topic in self.topics.values() for queue in topic.queues.values()]

    # Comparison

    def _compare(self, queue: ExpectedQueue, start: int, expected: memoryview) -> None:
        """Entries from a stream position on against the files."""
        self.entry_count += len(expected) // ENTRY_SIZE
        stream = self._files.queues.get(queue.name)
        if stream is None or not stream.segments:
            count = self._without_queue.get(queue.name.topic, 0)
            self._without_queue[queue.name.topic] = count + len(expected) // ENTRY_SIZE
            return
        end = self._ends[queue.name] * ENTRY_SIZE
        if start > queue.last_end:
            self._check_between(stream, max(queue.last_end, stream.start), min(start, end), False)
        position = max(start, stream.start)  # below it the queue's files were deleted, as they may be
        while position < min(start + len(expected), end):
            segment = stream.at(position)
            if segment is None:
                self._note(False, stream.directory, position, "no file has this position of the queue")
                return
            stop = min(start + len(expected), end, segment.end)
            self._compare_in(queue, segment, position, expected[position - start : stop - start])
            position = stop
        if position < start + len(expected):
            self._count_missing(queue.name, position, (start + len(expected) - position) // ENTRY_SIZE)

    def _compare_in(
        self, queue: ExpectedQueue, segment: Segment, position: int, expected: memoryview
    ) -> None:
        view = self._view(segment)
        at = position - segment.start
        if view[at : at + len(expected)] == expected:
            return
        pairs = zip(
            ENTRY.iter_unpack(view[at : at + len(expected)]), ENTRY.iter_unpack(expected), strict=False
        )
        for number, (found, wanted) in enumerate(pairs):
            problem = self._difference(queue.name, found, wanted)
            if problem:
                queue_offset = position // ENTRY_SIZE + number
                text = f"the entry of queue offset {queue_offset} {problem}"
                self._note(False, segment.path, at + number * ENTRY_SIZE, text)

    def _difference(self, name: QueueName, found: tuple[int, int, int], wanted: tuple[int, int, int]) -> str:
        if found[:2] != wanted[:2]:
            if found[1] == BLANK_SIZE_FIELD:
                return f"is blank, but the log has a record for it at {wanted[0]}"
            return (
                f"points to {found[0]} (size {found[1]}), its record stands at {wanted[0]} (size {wanted[1]})"
            )
        tags_code = found[2]
        if is_address(tags_code):
            unit = self._unit(name, tags_code)
            if unit is None:
                return "points to an extension unit that is not there"
            tags_code = unit.tags_code
        # Delivery times depend on the delay levels that were configured when the entry was made.
        if tags_code != wanted[2] and name.topic != SCHEDULE_TOPIC:
            return f"has the tags code {tags_code}, its record {wanted[2]}"
        return ""

    def _check_between(self, stream: Stream, start: int, end: int, repaired: bool) -> None:
        """Entries for which the log has no record: they must be blank or older than the log."""
        count, first, position = 0, -1, start
        while position < end and (segment := stream.at(position)) is not None:
            stop = min(end, segment.end)
            fields = ENTRY.iter_unpack(segment.view()[position - segment.start : stop - segment.start])
            for number, (offset, size, _tags_code) in enumerate(fields):
                if offset >= self._files.log.start and size != BLANK_SIZE_FIELD:
                    count += 1
                    first = first if first >= 0 else position // ENTRY_SIZE + number
            position = stop
        if count:
            text = f"{entries(count)} from queue offset {first} on without a record of this queue in the log"
            self._note(repaired, stream.directory, None, text)

    def _count_missing(self, name: QueueName, position: int, count: int) -> None:
        first, before = self._missing.get(name, (position // ENTRY_SIZE, 0))
        self._missing[name] = (first, before + count)

    def _view(self, segment: Segment) -> memoryview:
        view = self._views.get(segment)
        if view is None:
            view = self._views[segment] = segment.view()
        return view

    def _unit(self, name: QueueName, address: int) -> ExtUnit | None:
        stream = self._files.exts.get(name)
        position = address - ADDRESS_BASE
        segment = stream.at(position) if stream is not None else None
        return None if segment is None else read_unit(self._view(segment), position - segment.start)


def entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
