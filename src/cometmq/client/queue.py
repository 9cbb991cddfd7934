"""One message queue of a topic: what producers choose and consumers share out."""

from __future__ import annotations

from typing import NamedTuple


class Queue(NamedTuple):
    """A queue of a topic at a broker. Sorts as RocketMQ sorts: by topic, broker name, number.

    >>> sorted([Queue("T", "b", 1), Queue("T", "a", 2)])[0].broker_name
    'a'
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"
