"""NextOffsets: the queue offset that the next message of each queue gets, where queues are behind the log.

A replica enters records into queues only when they are confirmed, so the end of a queue does not say which offset is
free. Here the writers keep count themselves. A new master begins with the queues as they are plus the records that
are not in them yet. Loop thread only.
"""

from __future__ import annotations

import array
import struct

from cometmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from cometmq.store.commit_log import CommitLog
from cometmq.store.dispatch_cy import properties_of_interest, record_parts
from cometmq.store.queue_table import OFFSETS_MAX, OFFSETS_MIN, QueueTable, has_other_queues, is_queue_name
from cometmq.store.scan_cy import MESSAGE_MAGIC

_HEAD = struct.Struct(">IIIiiqqi")


class NextOffsets:
    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._topics: dict[bytes, array.array[int]] = {}
        self._far: dict[tuple[bytes, int], int] = {}  # queue ids that no table has room for

    def restart(self, commit_log: CommitLog, physical_offset: int) -> None:
        """Begin anew: queues as they are, which end at an offset of the log, and the records behind it.

        Who holds a table must ask again.
        """
        self._topics.clear()
        self._far.clear()
        self._table.offsets_epoch += 1
        end = commit_log.end_offset
        while physical_offset < end and (file := commit_log.file_at(physical_offset)) is not None:
            self.count_records(file.buffer(), physical_offset - file.start, min(end - file.start, file.size))
            physical_offset = file.end

    def get(self, topic: bytes, queue_id: int) -> int:
        if queue_id >= OFFSETS_MAX:
            queue = self._table.find(topic.decode(), queue_id)
            return self._far.get((topic, queue_id), queue.max_offset if queue is not None else 0)
        return self.of(topic, queue_id + 1)[queue_id]

    def set(self, topic: bytes, queue_id: int, queue_offset: int) -> None:
        if queue_id >= OFFSETS_MAX:
            self._far[(topic, queue_id)] = queue_offset
        else:
            self.of(topic, queue_id + 1)[queue_id] = queue_offset

    def of(self, topic: bytes, count: int) -> array.array[int]:
        """The table of a topic with room for `count` queues; a table that has to grow is a new object."""
        known = self._topics.get(topic)
        if known is not None and len(known) >= min(count, OFFSETS_MAX):
            return known
        queues = self._table.topic_queues(topic).queues
        highest = max((queue_id for queue_id in queues if queue_id < OFFSETS_MAX), default=0)
        needed = min(max(count, highest + 1, OFFSETS_MIN), OFFSETS_MAX)
        offsets = array.array("q", bytes(8 * (1 << (needed - 1).bit_length())))
        for queue_id, queue in queues.items():
            if 0 <= queue_id < len(offsets):
                offsets[queue_id] = queue.max_offset
        if known is not None:
            offsets[: len(known)] = known
            self._table.offsets_epoch += 1
        self._topics[topic] = offsets
        return offsets

    def count_records(self, view: memoryview, start: int, end: int) -> int:
        """Take over records that no queue has yet; position after the last one (a blank record ends a file)."""
        while end - start >= _HEAD.size:
            size, magic, _, queue_id, _, queue_offset, _, sys_flag = _HEAD.unpack_from(view, start)
            if magic != MESSAGE_MAGIC:
                break
            if sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT):
                self._count(view[start : start + size], queue_id, queue_offset, sys_flag)
            start += size
        return start

    def _count(self, record: memoryview, queue_id: int, queue_offset: int, sys_flag: int) -> None:
        topic, properties, _ = record_parts(record, sys_flag)
        self.set(topic, queue_id, queue_offset + 1)
        if not self._table.multi_dispatch or not has_other_queues(topic.decode("utf-8", "replace")):
            return
        others = self._table.other_queues(properties_of_interest(properties), queue_id)
        for (name, other_id), other_offset in others.items():
            if (name, other_id) != (topic, queue_id) and is_queue_name(name):
                self.set(name, other_id, other_offset + 1)
