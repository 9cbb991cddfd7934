"""Queue offset by store time.

The original picks a ConsumeQueue file by its modification time, which a mapped file does not keep well; here the
file is chosen by the store times of its own entries. The rules at the boundaries are the original's: before the
first message the first, after the last message the last, between two the closer one and the earlier on a tie.
Of several messages with the wanted time the first one is meant. Loop thread.
"""

from __future__ import annotations

import struct

from cometmq.store.commit_log import CommitLog
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.queue_scan_cy import ENTRY_SIZE
from cometmq.store.scan_cy import record_store_timestamp

_HEAD = struct.Struct(">qi")


class TimeSearch:
    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log

    def store_time(self, queue: ConsumeQueue | None, queue_offset: int) -> int:
        """Store time of a message, -1 if it is not there."""
        if queue is None:
            return -1
        entry = queue.entry(queue_offset)
        if entry is None:
            return -1
        record = self._log.read(entry.physical_offset, entry.size)
        return -1 if record is None else record_store_timestamp(record, 0, len(record))

    def offset_by_time(self, queue: ConsumeQueue | None, timestamp_ms: int) -> int:
        if queue is None or queue.last_start < 0 or queue.max_offset == 0:
            return 0
        low = max(queue.min_offset, queue.first_start // ENTRY_SIZE)
        right = self._first_not_before(queue, low, queue.max_offset, timestamp_ms)
        right_ms = self.store_time(queue, right) if right < queue.max_offset else -1
        if right_ms == timestamp_ms:
            return right
        left = right - 1
        left_ms = self.store_time(queue, left) if left >= low else -1
        if left_ms < 0:
            return right if right_ms >= 0 else low
        if right_ms < 0:
            return left
        return left if timestamp_ms - left_ms <= right_ms - timestamp_ms else right

    def _first_not_before(self, queue: ConsumeQueue, low: int, high: int, timestamp_ms: int) -> int:
        """First queue offset in [low, high) whose message is not older; messages that are gone count as older."""
        while low < high:
            middle = (low + high) // 2
            if self.store_time(queue, middle) >= timestamp_ms:
                high = middle
            else:
                low = middle + 1
        return low
