"""QueueTable: all ConsumeQueues of a store by topic and queue id, and how the dispatcher reaches them.

Besides ordinary entries it knows the special ones: the delivery time of delayed messages, additional queues
(multi-dispatch, light queues `%LMQ%...`), and the address of an extension unit. Loop thread only.
"""

from __future__ import annotations

import array
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cometmq.errors import StoreError
from cometmq.protocol.names import (
    DLQ_PREFIX,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.consume_queue_ext import ConsumeQueueExt, ExtUnit
from cometmq.store.delay_levels import DelayLevels
from cometmq.store.dispatch_cy import Dispatcher, TopicQueues, properties_of_interest
from cometmq.store.file_ops import FILE_NAME_DIGITS
from cometmq.store.mapped_file import OpenFiles, check_length, remove_unborn

# Messages wait here for their time or for their end; whoever delivers them keeps offsets of its own.
WAITING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC))
MULTI_DISPATCH_SEPARATOR = ","
QUEUE_NAME_SIZE_MAX = 127  # bytes, as of a topic
OFFSETS_MIN = 16  # slots of a topic's table of next offsets; it doubles when a queue id does not fit
OFFSETS_MAX = 65_536  # queue ids beyond are served too, but not through that table

log = logging.getLogger(__name__)

# (topic, record) -> bit map of the SQL groups that want it, for the extension of its queue
FilterBitMap = Callable[[str, memoryview], bytes | None]


class QueueTable(Dispatcher):
    def __init__(self, config: StoreConfig, open_files: OpenFiles, delay_levels: DelayLevels) -> None:
        super().__init__()
        self.config = config
        self.directory = config.consume_queue_dir
        self.file_size = config.consume_queue_file_size
        self.open_files = open_files
        self.delay_levels = delay_levels
        self.multi_dispatch = config.enable_multi_dispatch
        self.filter_bit_map: FilterBitMap | None = None
        self.offsets_epoch = 0
        self.queue_count = 0
        # Starts of files found by load() that cannot be used: behind a missing one, or of a wrong length
        self.useless: dict[ConsumeQueue, list[int]] = {}
        self._unusable: set[bytes] = set()

    # Finding

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        topic_queues = self.topics.get(topic.encode())
        return topic_queues.queues.get(queue_id) if topic_queues is not None else None

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """An unknown queue begins as an object in memory; files come with its first entry."""
        topic_queues = self.topic_queues(topic.encode())
        queue: ConsumeQueue = topic_queues.queues.get(queue_id) or self.new_queue(topic_queues, queue_id)
        return queue

    def topic_queues(self, name: bytes) -> TopicQueues:
        return self.topics.get(name) or self.new_topic(name)

    def all(self) -> Iterator[ConsumeQueue]:
        for topic_queues in list(self.topics.values()):
            yield from list(topic_queues.queues.values())

    def queue_ids(self, topic: str) -> list[int]:
        topic_queues = self.topics.get(topic.encode())
        return sorted(topic_queues.queues) if topic_queues is not None else []

    def topics_on_disk(self) -> list[str]:
        return sorted({queue.topic for queue in self.all() if queue.last_start >= 0})

    def next_offsets(self, name: bytes, count: int) -> memoryview:
        """Next queue offset by queue id, kept up to date by dispatch; the same object until offsets_epoch changes."""
        topic_queues = self.topic_queues(name)
        highest = max((queue_id for queue_id in topic_queues.queues if queue_id < OFFSETS_MAX), default=0)
        needed = min(max(count, highest + 1, OFFSETS_MIN), OFFSETS_MAX)
        if topic_queues.offsets is None or len(topic_queues.offsets) < needed:
            offsets = array.array("q", bytes(8 * (1 << (needed - 1).bit_length())))
            for queue_id, queue in topic_queues.queues.items():
                if 0 <= queue_id < len(offsets):
                    offsets[queue_id] = queue.max_offset
            if topic_queues.offsets is not None:
                self.offsets_epoch += 1
            topic_queues.set_offsets(offsets)
        return memoryview(topic_queues.offsets)

    # Dispatcher

    def new_topic(self, name: bytes) -> TopicQueues:
        usable = _is_directory_name(name)
        if not usable:
            self._unusable.add(name)
            log.warning("records of a topic that cannot be a directory get no queue topic=%r", name)
        special = not usable or name == SCHEDULE_TOPIC.encode() or self.config.enable_consume_queue_ext
        topic_queues = TopicQueues(name, special)
        self.topics[name] = topic_queues
        return topic_queues

    def new_queue(self, topic_queues: TopicQueues, queue_id: int) -> ConsumeQueue:
        directory = f"{self.directory}/{topic_queues.topic}/{queue_id}"
        queue = ConsumeQueue(topic_queues.topic, queue_id, directory, self.file_size, self.open_files)
        if self.config.enable_consume_queue_ext:
            queue.ext = self._new_ext(topic_queues.topic, queue_id)
        topic_queues.queues[queue_id] = queue
        self.queue_count += 1
        return queue

    def append_specially(
        self,
        topic_queues: TopicQueues,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        properties: bytes,
        record: memoryview,
    ) -> None:
        if topic_queues.name in self._unusable:
            return
        found = properties_of_interest(properties)
        entry_code = tags_code
        if topic_queues.topic == SCHEDULE_TOPIC:
            entry_code = self._delivery_time(found.get(b"DELAY"), store_timestamp_ms, tags_code)
        if self.config.enable_consume_queue_ext:
            queue = topic_queues.queues.get(queue_id) or self.new_queue(topic_queues, queue_id)
            if physical_offset + size <= queue.max_physical_offset:
                entry_code = 0  # known already: _append() will pass over it
            else:
                entry_code = self._extended(queue, entry_code, store_timestamp_ms, record)
        self.append(topic_queues, queue_id, queue_offset, physical_offset, size, entry_code)
        if self.multi_dispatch and has_other_queues(topic_queues.topic):
            own = topic_queues.name, queue_id
            self._append_to_others(found, own, physical_offset, size, tags_code)

    def _delivery_time(self, level: bytes | None, store_timestamp_ms: int, tags_code: int) -> int:
        with contextlib.suppress(ValueError):
            if level is not None and int(level) > 0:
                return self.delay_levels.delivery_time_ms(int(level), store_timestamp_ms)
        return tags_code

    def _append_to_others(
        self,
        found: dict[bytes, bytes],
        own: tuple[bytes, int],
        physical_offset: int,
        size: int,
        tags_code: int,
    ) -> None:
        for (name, queue_id), queue_offset in self.other_queues(found, own[1]).items():
            if (name, queue_id) != own and is_queue_name(name):
                self.append(self.topic_queues(name), queue_id, queue_offset, physical_offset, size, tags_code)

    def other_queues(self, found: dict[bytes, bytes], queue_id: int) -> dict[tuple[bytes, int], int]:
        """The additional queues of a message, each once, with its offset there."""
        names = found.get(b"INNER_MULTI_DISPATCH", b"").split(MULTI_DISPATCH_SEPARATOR.encode())
        offsets = found.get(b"INNER_MULTI_QUEUE_OFFSET", b"").split(MULTI_DISPATCH_SEPARATOR.encode())
        if len(names) != len(offsets):
            return {}
        try:
            return {
                (name, self.multi_queue_id(name.decode(), queue_id)): int(offset)
                for name, offset in zip(names, offsets, strict=True)
            }
        except ValueError:
            log.warning("multi-dispatch properties cannot be read names=%r offsets=%r", names, offsets)
            return {}

    @property
    def light_queue_count(self) -> int:
        return sum(topic.startswith(LMQ_PREFIX.encode()) for topic in self.topics)

    def multi_queue_id(self, name: str, queue_id: int) -> int:
        """Light queues have queue 0 only; other names use the message's own queue id."""
        return 0 if self.config.enable_lmq and name.startswith(LMQ_PREFIX) else queue_id

    # Life

    def load(self) -> None:
        """Find all queue directories; the ends are found by recover(). Raises StoreError.

        Files that are missing or too short are no reason to refuse (they can be made anew from the log), unless none
        has the length that it should have: then it is the setting that is wrong.
        """
        if not self.directory.exists():
            return
        if not self.directory.is_dir():
            raise StoreError(
                f"{self.directory} is a file: move it away, the queues are made anew from the log."
            )
        with os.scandir(self.directory) as topics:
            for topic in topics:
                if topic.is_dir():
                    self.load_topic(topic.name)
        if self.useless and all(queue.last_start < 0 for queue in self.all()):
            queue, starts = next(iter(self.useless.items()))
            path = queue.path_of(starts[0])
            check_length(path, os.stat(path).st_size, self.file_size)

    def load_topic(self, topic: str) -> None:
        topic_queues = self.topic_queues(topic.encode("utf-8", "surrogateescape"))
        with os.scandir(f"{self.directory}/{topic}") as queues:
            for queue in queues:
                if queue.name.isdecimal() and queue.is_dir():
                    sizes = queue_files(queue.path)
                    self._load_queue(self.new_queue(topic_queues, int(queue.name)), sizes)

    def _load_queue(self, queue: ConsumeQueue, sizes: dict[int, int]) -> None:
        whole = sorted(start for start, size in sizes.items() if size == self.file_size)
        usable = [start for number, start in enumerate(whole) if start == whole[0] + number * self.file_size]
        queue.load(usable)
        useless = sorted(set(sizes).difference(usable))
        if useless:
            self.useless[queue] = useless

    # Queue extension

    def _new_ext(self, topic: str, queue_id: int) -> ConsumeQueueExt:
        ext = ConsumeQueueExt(
            self.config.consume_queue_ext_dir / topic / str(queue_id),
            self.config.mapped_file_size_consume_queue_ext,
            self.open_files,
        )
        ext.load()
        return ext

    def _extended(
        self, queue: ConsumeQueue, tags_code: int, store_timestamp_ms: int, record: memoryview
    ) -> int:
        """Address of a new unit for a record; without room for one the tags code itself."""
        bit_map = self.filter_bit_map(queue.topic, record) if self.filter_bit_map is not None else None
        assert queue.ext is not None
        address = queue.ext.put(ExtUnit(tags_code, store_timestamp_ms, bit_map or b""))
        return tags_code if address is None else address

    # Removal

    def remove_topic(self, topic: str) -> int:
        """Delete a topic's queues from memory and disk; how many."""
        topic_queues = self.topics.pop(topic.encode(), None)
        if topic_queues is None:
            return 0
        for queue in topic_queues.queues.values():
            self._destroy(queue)
        with contextlib.suppress(OSError):
            os.rmdir(f"{self.directory}/{topic}")
        self.offsets_epoch += 1
        return len(topic_queues.queues)

    def remove_queue(self, queue: ConsumeQueue) -> None:
        topic_queues = self.topics[queue.topic.encode()]
        del topic_queues.queues[queue.queue_id]
        self._destroy(queue)
        topic_queues.set_offsets(None)
        if not topic_queues.queues:
            del self.topics[topic_queues.name]
            with contextlib.suppress(OSError):
                os.rmdir(f"{self.directory}/{queue.topic}")
        self.offsets_epoch += 1

    def remove_expired(self, min_physical_offset: int) -> int:
        """Remove queues whose messages have all left the log; how many."""
        expired = [queue for queue in self.all() if _is_expired(queue, min_physical_offset)]
        for queue in expired:
            self.remove_queue(queue)
        return len(expired)

    def expire(self, min_physical_offset: int) -> list[str]:
        """Queues let go of what has left the log; paths of files to delete."""
        return [path for queue in self.all() for path in queue.expire(min_physical_offset)]

    def remove_all(self) -> None:
        for topic_queues in list(self.topics.values()):
            self.remove_topic(topic_queues.topic)

    def _destroy(self, queue: ConsumeQueue) -> None:
        queue.destroy()
        self.queue_count -= 1


def has_other_queues(topic: str) -> bool:
    """May messages of a topic be in additional queues? Those that are retried or wait are in one queue only."""
    return topic not in WAITING_TOPICS and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_queue_name(name: bytes) -> bool:
    return len(name) <= QUEUE_NAME_SIZE_MAX and _is_directory_name(name)


def queue_files(directory: str | Path) -> dict[int, int]:
    """Starts and lengths of a queue's files. Raises StoreError for anything else in the directory."""
    sizes = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if remove_unborn(entry):
                continue
            if len(entry.name) != FILE_NAME_DIGITS or not entry.name.isdecimal():
                raise StoreError(
                    f"{entry.path} is not a ConsumeQueue file: move it out of the directory and start again."
                )
            sizes[int(entry.name)] = entry.stat().st_size
    return sizes


def _is_expired(queue: ConsumeQueue, min_physical_offset: int) -> bool:
    last = queue.last_entry() if queue.topic not in WAITING_TOPICS else None
    return last is not None and last.physical_offset < min_physical_offset


def _is_directory_name(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return bool(name) and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
