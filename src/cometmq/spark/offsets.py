"""Offsets of many queues: the JSON that Spark writes into its checkpoint, and ranges between two of them.

``{"<topic>": {"<broker>": {"<queue>": next offset}}}`` with sorted keys and plain numbers: Spark compares the text, so
the same offsets must always give the same text. Ends are exclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cometmq.protocol.message import MessageQueue

QueueOffsets = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages [start, end) of one queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue} [{self.start}, {self.end})"


def to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Nested dictionaries, every level sorted. Queue ids sort as numbers."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = int(offsets[queue])
    return nested


def from_json(value: Mapping[str, Any]) -> QueueOffsets:
    return {
        MessageQueue(topic, broker, int(queue)): int(offset)
        for topic, brokers in value.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    }


def ranges_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """What lies between two offsets, in the order of the queues. A queue that is in one only has no range."""
    return [
        QueueRange(queue, start[queue], end[queue])
        for queue in sorted(end)
        if queue in start and end[queue] > start[queue]
    ]


def total(ranges: Iterable[QueueRange]) -> int:
    return sum(item.count for item in ranges)
