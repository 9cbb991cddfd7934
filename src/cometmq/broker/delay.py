"""Delayed messages: the levels of SCHEDULE_TOPIC_XXXX, one DelayQueue each, and ``delayOffset.json``.

A message with DELAY=n is stored in queue n-1; its queue entry carries the delivery time. When that has come, the
message is stored once more, at its real target. The copy still shows DELAY, REAL_TOPIC and REAL_QID: clients of
RocketMQ see them, so we keep it so. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.copies import deliver_copy, real_target, send_elsewhere
from cometmq.broker.delay_queue import DelayQueue, DelayQueues, Waiting
from cometmq.broker.redelivery import Redelivery
from cometmq.broker.redelivery_cy import Plan
from cometmq.broker.timers import DELAY_MS_MAX, waiting_plan
from cometmq.protocol import properties as names
from cometmq.protocol.message import MessageExt
from cometmq.protocol.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from cometmq.store.consume_queue_ext import is_address
from cometmq.store.model import StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

DELAY_OFFSET_FILE = "delayOffset.json"
LEVEL_DIGITS_MAX = 9


class LevelQueue(DelayQueue):
    """The messages of one delay level."""

    def __init__(self, broker: Broker, level: int, redelivery: Redelivery) -> None:
        super().__init__(broker, SCHEDULE_TOPIC, level - 1, redelivery)
        levels = broker.store.delay_levels
        self._delay_ms = levels.delay_ms(level)
        # A level that messageDelayLevel has lost keeps its promises, but how long its delay was nobody knows.
        self._known = level <= levels.level_max

    def due_ms(self, waiting: Waiting) -> int:
        due_ms, now = self.out_ms(waiting), self._broker.now_ms()
        if self._known and due_ms > now + self._delay_ms:
            return now  # the clock was turned back, or the level was shortened
        return due_ms

    def out_ms(self, waiting: Waiting) -> int:
        if is_address(waiting.tags_code):  # its unit in the queue's extension is gone
            return waiting.message.store_timestamp_ms + self._delay_ms
        return waiting.tags_code

    def deliver(self, message: MessageExt) -> bool:
        target = real_target(message)
        if target is None or target[0] == TRANS_HALF_TOPIC:
            return True  # nowhere to go; half messages are never delayed
        if not deliver_copy(self._broker, message, *target):
            return False
        self._redelivery.admit(target[0])
        return True

    def plan(self) -> Plan:
        return waiting_plan(self._broker.config, self._delay_ms if self._known else DELAY_MS_MAX, timed=False)


class ScheduledMessages(DelayQueues):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._levels = broker.store.delay_levels

    def start(self) -> None:
        left_over = {queue_id + 1 for queue_id in self._broker.store.queue_ids(SCHEDULE_TOPIC)}
        levels = sorted({*range(1, self._levels.level_max + 1), *left_over})
        self.run({level: LevelQueue(self._broker, level, self._redelivery) for level in levels})

    def divert(self, message: StoreMessage, properties: dict[str, str]) -> bool:
        """Redirect a message that asks for a delay level; False when it does not."""
        text = properties.get(names.PROPERTY_DELAY, "")
        level = int(text) if text.isdecimal() and len(text) <= LEVEL_DIGITS_MAX else 0
        if level <= 0:
            return False
        level = min(level, self._levels.level_max)
        properties[names.PROPERTY_DELAY] = str(level)
        send_elsewhere(message, properties, SCHEDULE_TOPIC, level - 1)
        return True

    def runtime_info(self) -> dict[str, str]:
        """Per level: how far delivery is, and where the queue ends."""
        store = self._broker.store
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self.offsets().items()
        }
