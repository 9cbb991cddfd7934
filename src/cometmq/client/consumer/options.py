"""Options of a consumer, checked once, and where a group without a stored offset begins."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import ClassVar

from cometmq.client.consumer.allocation import Allocation, Average
from cometmq.client.settings import Duration, seconds
from cometmq.errors import ClientError
from cometmq.protocol.bodies.heartbeat import (
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_FROM_TIMESTAMP,
)

RETRIES_DEFAULT = 16
UNLIMITED = -1
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StartFrom:
    """Where a group begins in a queue it has no stored offset for. A stored offset always wins.

    ``StartFrom.FIRST`` reads everything that is there, ``StartFrom.LAST`` only what comes from now on, and
    ``StartFrom.time(...)`` what was stored since a moment. As with every RocketMQ client, LAST on a topic
    whose first message is still in the broker's memory begins at the first message: the broker decides so.
    """

    wire_name: str
    timestamp_ms: int = 0

    FIRST: ClassVar[StartFrom]
    LAST: ClassVar[StartFrom]

    @classmethod
    def time(cls, moment: dt.datetime | float) -> StartFrom:
        """
        >>> StartFrom.time(1.5).timestamp_ms
        1500
        """
        at_s = moment.timestamp() if isinstance(moment, dt.datetime) else moment
        return cls(CONSUME_FROM_TIMESTAMP, round(at_s * 1000))


StartFrom.FIRST = StartFrom(CONSUME_FROM_FIRST_OFFSET)
StartFrom.LAST = StartFrom(CONSUME_FROM_LAST_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What a push consumer may be told.

    concurrency             handlers running at a time
    batch                   messages a handler gets at a time (1: one message instead of a list)
    max_retries             deliveries after the first before the dead-letter topic; None: 16, unlimited if ordered
    ordered                 one handler per queue at a time, in order; a failure stops its queue for suspend_time
    broadcast               every member reads everything; offsets are kept in a local file, nothing is retried
    pull_batch              messages asked for in one pull
    queue_messages_max      messages of one queue held unfinished before pulling stops
    queue_bytes_max         the same in bytes
    topic_messages_max      if set, divided by the number of queues held, instead of queue_messages_max
    span_max                largest distance of offsets held of one queue (not if ordered)
    consume_timeout         a message that is in its handler for longer is sent back
    """

    start: StartFrom = StartFrom.LAST
    concurrency: int = 20
    batch: int = 1
    max_retries: int | None = None
    ordered: bool = False
    broadcast: bool = False
    allocation: Allocation = field(default_factory=Average)
    pull_batch: int = 32
    pull_interval: Duration = 0.0
    queue_messages_max: int = 1000
    queue_bytes_max: int = 100 * MIB
    topic_messages_max: int | None = None
    topic_bytes_max: int | None = None
    span_max: int = 2000
    suspend_time: Duration = 1.0
    consume_timeout: Duration = 15 * 60.0
    post_subscription: bool = False

    def __post_init__(self) -> None:
        _between("concurrency", self.concurrency, 1, 1000)
        _between("batch", self.batch, 1, 1024)
        _between("pull_batch", self.pull_batch, 1, 1024)
        _between("queue_messages_max", self.queue_messages_max, 1, 65535)
        _between("queue_bytes_max", self.queue_bytes_max, 1, 1024 * MIB)
        _between("span_max", self.span_max, 1, 65535)
        if self.topic_messages_max is not None:
            _between("topic_messages_max", self.topic_messages_max, 1, 6_553_500)

    @property
    def retries(self) -> int:
        """The limit as numbers say it: UNLIMITED, or how many."""
        if self.max_retries is not None:
            return self.max_retries
        return UNLIMITED if self.ordered else RETRIES_DEFAULT

    @property
    def suspend_s(self) -> float:
        """How long a queue pauses after a failure, within the limits of the Java client."""
        return clamp_suspend(seconds(self.suspend_time))


def clamp_suspend(value_s: float) -> float:
    """An ordered queue pauses between 10 ms and 30 s."""
    return min(30.0, max(0.01, value_s))


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ClientError(f"{name} must be between {least} and {most}, not {value}")
