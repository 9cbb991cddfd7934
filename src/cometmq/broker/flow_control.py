"""When a broker says "busy" to a send, in the words that clients match on.

The original queues sends for a thread pool and throws out what waited too long. Here the loop *is* the
queue: a turn of the loop first learns which sockets are readable, then serves them one after the other.
When one send holds the turn for waitTimeMillsInSendQueue or longer (the append path stalls: disk, page
cache), those that are served later in the same turn have waited at least that long. Many sends that each
take their time are no stall.

One stalled turn is forgiven: what waited is served in microseconds, and an error would only make clients send
again. When the next turn stalls as well the broker does not keep up, and says so.

Answers that wait for the disk or a replica count as queue, too: sendThreadPoolQueueCapacity bounds them.
Event loop only; nothing runs while nothing is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cometmq.broker.config import BrokerConfig

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
TIMEOUT_CLEAN_QUEUE = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {waited_ms}ms, size of queue: {size}"
)


STALLS_APART_NS_MAX = 1_000_000_000  # stalls further apart than this have nothing to do with each other


class FlowControl:
    """Admission of sends."""

    def __init__(self, config: BrokerConfig, *, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._config = config
        self._monotonic_ns = monotonic_ns
        self._stall_began_ns = 0  # of the send that stalled this turn of the loop; 0: none did
        self._stall_ended_ns = -STALLS_APART_NS_MAX  # in a turn before this one
        self.waiting = 0  # answers that wait for durability
        self.refused = 0  # sends answered so

    def refusal(self) -> str | None:
        """The remark of a SYSTEM_BUSY answer, or None when the send may go on. Asked before each send."""
        if self.waiting >= self._config.send_thread_pool_queue_capacity:
            return OVERLOAD
        if self._stall_began_ns and self._is_second_stall():
            waited_ms = (self._monotonic_ns() - self._stall_began_ns) // 1_000_000
            return TIMEOUT_CLEAN_QUEUE.format(waited_ms=waited_ms, size=self.waiting)
        return None

    def took(self, elapsed_ns: int) -> None:
        """A send held the turn of the loop for so long. Told after each append."""
        if elapsed_ns >= self._config.wait_time_mills_in_send_queue * 1_000_000 and not self._stall_began_ns:
            self._stall_began_ns = self._monotonic_ns() - elapsed_ns
            loop = asyncio.get_running_loop()
            # Not in the next turn, in the one after: a connection that stalled handles its other frames in the next.
            loop.call_soon(loop.call_soon, self._end_turn)

    def _is_second_stall(self) -> bool:
        apart_ns = self._stall_began_ns - self._stall_ended_ns
        return self._config.broker_fast_failure_enable and apart_ns < STALLS_APART_NS_MAX

    def _end_turn(self) -> None:
        self._stall_ended_ns = self._monotonic_ns()
        self._stall_began_ns = 0
