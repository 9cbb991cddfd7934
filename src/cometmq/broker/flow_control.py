"""When a broker says "busy" to a send, in the words that clients match on.

The original queues sends for a thread pool and throws out what waited too long. Here the loop *is* the
queue: a turn of the loop first learns which sockets are readable, then serves them one after the other. So
a send that is served when its turn is already old has waited that long, whoever held the turn (a stalled
append, a slow disk). The first send of a turn notes the time; the loop's next turn clears the note. Nothing
runs while nothing is sent.

One slow turn is forgiven: what waited is served in microseconds, and an error would only make clients send
again. When the turns stay slow the broker does not keep up, and says so.

Answers that wait for the disk or a replica count as queue, too: sendThreadPoolQueueCapacity bounds them.
Event loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cometmq.broker.config import BrokerConfig

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
REJECT_REQUEST = "[REJECTREQUEST]system busy, start flow control for a while"
TIMEOUT_CLEAN_QUEUE = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {waited_ms}ms, size of queue: {size}"
)


SLOW_TURNS_APART_NS_MAX = (
    1_000_000_000  # slow turns further apart than this have nothing to do with each other
)


class FlowControl:
    """Admission of sends."""

    def __init__(self, config: BrokerConfig, *, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._config = config
        self._monotonic_ns = monotonic_ns
        self._turn_began_ns = 0
        self._slow_turn_ended_ns = -SLOW_TURNS_APART_NS_MAX
        self.waiting = 0  # answers that wait for durability
        self.refused = 0  # sends answered so

    def refusal(self) -> str | None:
        """The remark of a SYSTEM_BUSY answer, or None when the send may go on."""
        if self.waiting >= self._config.send_thread_pool_queue_capacity:
            return OVERLOAD
        waited_ms = self._waited_ms()
        if waited_ms >= self._config.wait_time_mills_in_send_queue and self._is_slow_again():
            return TIMEOUT_CLEAN_QUEUE.format(waited_ms=waited_ms, size=self.waiting)
        return None

    def _waited_ms(self) -> int:
        now = self._monotonic_ns()
        if self._turn_began_ns:
            return (now - self._turn_began_ns) // 1_000_000
        self._turn_began_ns = now
        asyncio.get_running_loop().call_soon(self._end_turn)
        return 0

    def _is_slow_again(self) -> bool:
        """Another slow turn ended shortly before this one began."""
        apart_ns = self._turn_began_ns - self._slow_turn_ended_ns
        return self._config.broker_fast_failure_enable and apart_ns < SLOW_TURNS_APART_NS_MAX

    def _end_turn(self) -> None:
        now = self._monotonic_ns()
        if now - self._turn_began_ns >= self._config.wait_time_mills_in_send_queue * 1_000_000:
            self._slow_turn_ended_ns = now
        self._turn_began_ns = 0
