"""Messages with a delivery time of their own, as in RocketMQ 5: TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC.

Theory of operation. There is no timer wheel to keep on disk. A waiting message sits in one of a few queues with a
constant delay (100 ms, 200 ms, 400 ms, ... hours), in the longest that is not too long. When it comes out there, it
goes into the longest queue that fits the rest, and so on; when less than the shortest is left, it waits there for its
exact time. Every hop stores the message anew, at the latest after ``HOP_MS_MAX``, so retention never reaches a waiting
message, however far its time is. A message hops about ten times plus once per longest delay.

Each queue is a DelayQueue: the only state is one offset each, kept in ``timerOffset.json``. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.copies import copy_of, real_target, send_elsewhere
from cometmq.broker.delay_queue import DelayQueue, DelayQueues, Due
from cometmq.protocol.message import MessageExt
from cometmq.store.model import StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

TIMER_OFFSET_FILE = "timerOffset.json"
TIMER_TOPIC = "rmq_sys_timer_levels"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_OUT_MS = "TIMER_OUT_MS"  # the delivery time that a waiting message carries
TIMER_PREFIX = "TIMER_"

DELAY_MS_MAX = 30 * 86_400_000
HOP_MS_MIN = 100
HOP_COUNT_MAX = 20  # the longest hop is then about 14.6 hours
DELAY_TEXT_LENGTH_MAX = 18


class TimedMessages(DelayQueues):
    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        retention_ms = broker.config.file_reserved_time * 3_600_000
        hops = [HOP_MS_MIN << i for i in range(HOP_COUNT_MAX)]
        # At most a third of the retention time in one place, so that a waiting message is moved on in time.
        self.hops_ms = [hop for hop in hops if hop * 3 <= max(retention_ms, HOP_MS_MIN * 3)]

    def start(self) -> None:
        self.run({level: self._queue(level) for level in range(len(self.hops_ms))})

    def _queue(self, level: int) -> DelayQueue:
        return DelayQueue(self._broker, TIMER_TOPIC, level, due=self._due_of(level), deliver=self._move_on)

    # -- into the queues ------------------------------------------------------------------------------------------

    def divert(self, message: StoreMessage, properties: dict[str, str]) -> str | None:
        """Redirect a message that names its delivery time; why it cannot be taken, or None."""
        now = self._broker.now_ms()
        due_ms = delivery_time_ms(properties, now)
        if due_ms is None:
            return None
        if due_ms < 0:
            return "the delivery time of a timer message is a number of milliseconds (TIMER_DELIVER_MS, TIMER_DELAY_MS)"
        if due_ms > now + DELAY_MS_MAX:
            return f"timer message illegal, the delay time should not be bigger than the max delay {DELAY_MS_MAX}ms"
        if due_ms > now:
            properties[TIMER_OUT_MS] = str(due_ms)
            send_elsewhere(message, properties, TIMER_TOPIC, self._level(due_ms - now))
        return None

    def _level(self, rest_ms: int) -> int:
        """The longest delay that is not longer than the rest."""
        return max((level for level, hop in enumerate(self.hops_ms) if hop <= rest_ms), default=0)

    # -- and on ---------------------------------------------------------------------------------------------------

    def _due_of(self, level: int) -> Due:
        hop_ms = self.hops_ms[level]

        def due(message: MessageExt, tags_code: int | None) -> int:
            now = self._broker.now_ms()
            moved_on_ms = message.store_timestamp_ms + hop_ms
            return min(moved_on_ms, _out_ms(message), now + hop_ms)

        return due

    def _move_on(self, message: MessageExt) -> bool:
        target = real_target(message)
        if target is None:
            return True
        rest_ms = _out_ms(message) - self._broker.now_ms()
        if rest_ms > 0:
            hop = copy_of(message, topic=TIMER_TOPIC, queue_id=self._level(rest_ms))
            return self._broker.store.put(hop).ok
        topic, queue_id = target
        result = self._broker.store.put(copy_of(message, topic=topic, queue_id=queue_id))
        if result.ok:
            self._broker.stats.count_put(topic, queue_id, 1, result.size)
        return result.ok


def delivery_time_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """When a message wants to be delivered; None: it has no time of its own; -1: not a number."""
    for name, unit_ms, base_ms in (
        (TIMER_DELIVER_MS, 1, 0),
        (TIMER_DELAY_MS, 1, now_ms),
        (TIMER_DELAY_SEC, 1000, now_ms),
    ):
        text = properties.get(name)
        if text is not None:
            number = text.isascii() and text.isdigit() and len(text) <= DELAY_TEXT_LENGTH_MAX
            return base_ms + int(text) * unit_ms if number else -1
    return None


def _out_ms(message: MessageExt) -> int:
    text = message.properties.get(TIMER_OUT_MS, "")
    return int(text) if text.isdigit() else 0
