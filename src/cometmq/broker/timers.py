"""Messages with a delivery time of their own, as in RocketMQ 5: TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC.

Theory of operation. There is no timer wheel to keep on disk. A waiting message sits in one of a few queues with a
constant delay (25 ms, 50 ms, 100 ms, ... hours), in the longest that is not too long. When it comes out there, it
goes into the longest queue that fits the rest, and so on; when less than the shortest is left, it waits there for its
exact time (behind others that come out at most those 25 ms later). So a message is stored about once per binary digit
of its delay, plus once per longest delay, and each queue's only state is one offset, kept in ``timerOffset.json``.

The log is never cut below a waiting message: before a log file goes, what waits in it is stored anew (``rescue``).
Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.config import BrokerConfig
from cometmq.broker.copies import copy_of, deliver_copy, real_target, send_elsewhere
from cometmq.broker.delay_queue import DelayQueue, DelayQueues, Waiting
from cometmq.broker.redelivery import Redelivery
from cometmq.broker.redelivery_cy import Plan
from cometmq.protocol.message import MessageExt
from cometmq.protocol.names import TIMER_TOPIC
from cometmq.store.model import StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

TIMER_OFFSET_FILE = "timerOffset.json"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_NAMES = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
TIMER_OUT_MS = "TIMER_OUT_MS"  # the delivery time that a waiting message carries

DELAY_MS_MAX = 30 * 86_400_000
HOP_MS_MIN = 25
HOPS_MS = tuple(HOP_MS_MIN << level for level in range(22))  # the longest is 14.5 hours
NUMBER_LENGTH_MAX = 18  # digits

NOT_A_NUMBER = (
    "the delivery time of a timer message is a number of milliseconds (TIMER_DELIVER_MS, TIMER_DELAY_MS)"
)
TOO_FAR = f"timer message illegal, the delay time should not be bigger than the max delay {DELAY_MS_MAX}ms"


class HopQueue(DelayQueue):
    """The messages that wait at least one hop more."""

    def __init__(self, broker: Broker, level: int, redelivery: Redelivery) -> None:
        super().__init__(broker, TIMER_TOPIC, level, redelivery)
        self._hop_ms = HOPS_MS[level]

    def due_ms(self, waiting: Waiting) -> int:
        now = self._broker.now_ms()
        # Not later than a hop from now, in case that the clock was turned back.
        return min(
            waiting.message.store_timestamp_ms + self._hop_ms, out_ms(waiting.message), now + self._hop_ms
        )

    def out_ms(self, waiting: Waiting) -> int:
        return out_ms(waiting.message)

    def deliver(self, message: MessageExt) -> bool:
        target = real_target(message)
        if target is None:
            return True
        if out_ms(message) > self._broker.now_ms():
            done, topic = self._broker.timers.keep_waiting(message, out_ms(message)), TIMER_TOPIC
        else:
            done, topic = deliver_copy(self._broker, message, *target), target[0]
        if done:
            self._redelivery.admit(topic)
        return done

    def plan(self) -> Plan:
        return waiting_plan(self._broker.config, self._hop_ms, timed=True)


class TimedMessages(DelayQueues):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)

    def start(self) -> None:
        self.run({level: HopQueue(self._broker, level, self._redelivery) for level in range(len(HOPS_MS))})

    def problem(self, properties: dict[str, str]) -> str | None:
        """Why a message cannot wait for its time, or None."""
        now = self._broker.now_ms()
        due_ms = delivery_time_ms(properties, now)
        if due_ms is None or 0 <= due_ms <= now + DELAY_MS_MAX:
            return None
        return TOO_FAR if due_ms > 0 else NOT_A_NUMBER

    def divert(self, message: StoreMessage, properties: dict[str, str]) -> bool:
        """Redirect a message whose time is in the future; False when it can go where it wants now."""
        now = self._broker.now_ms()
        due_ms = delivery_time_ms(properties, now)
        if due_ms is None or due_ms <= now:
            return False
        properties[TIMER_OUT_MS] = str(due_ms)
        send_elsewhere(message, properties, TIMER_TOPIC, hop_level(due_ms - now))
        return True

    def keep_waiting(self, message: MessageExt, until_ms: int) -> bool:
        """Store a waiting message (or one of a delay level) anew, to be delivered at a time; False: try again."""
        properties = None
        if message.properties.get(TIMER_OUT_MS) != str(until_ms):
            properties = {**message.properties, TIMER_OUT_MS: str(until_ms)}
        level = hop_level(until_ms - self._broker.now_ms())
        copy = copy_of(message, topic=TIMER_TOPIC, queue_id=level, properties=properties)
        return self._broker.store.put(copy).ok


def waiting_plan(config: BrokerConfig, delay_ms: int, *, timed: bool) -> Plan:
    return Plan(
        delay_ms=delay_ms,
        timed=timed,
        timer_topic=TIMER_TOPIC.encode(),
        hop_ms_min=HOP_MS_MIN,
        hop_count=len(HOPS_MS),
        body_size_max=config.max_message_size,
        multi_dispatch=config.enable_multi_dispatch,
    )


def hop_level(rest_ms: int) -> int:
    """The longest hop that is not longer than the rest."""
    return min(max((rest_ms // HOP_MS_MIN).bit_length() - 1, 0), len(HOPS_MS) - 1)


def delivery_time_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """When a message wants to be delivered; None: it has no time of its own; -1: not a number."""
    for name, unit_ms, base_ms in (
        (TIMER_DELIVER_MS, 1, 0),
        (TIMER_DELAY_MS, 1, now_ms),
        (TIMER_DELAY_SEC, 1000, now_ms),
    ):
        text = properties.get(name)
        if text is not None:
            return base_ms + int(text) * unit_ms if _is_number(text) else -1
    return None


def out_ms(message: MessageExt) -> int:
    text = message.properties.get(TIMER_OUT_MS, "")
    return int(text) if _is_number(text) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= NUMBER_LENGTH_MAX
