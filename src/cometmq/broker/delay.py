"""Delayed messages: the 18 levels of SCHEDULE_TOPIC_XXXX, one DelayQueue each, and ``delayOffset.json``.

A message with DELAY=n is stored in queue n-1; its queue entry carries the delivery time. When that has come, the
message is stored once more, at its real target. The copy still shows DELAY, REAL_TOPIC and REAL_QID: clients of
RocketMQ see them, so we keep it so. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.copies import copy_of, real_target, send_elsewhere
from cometmq.broker.delay_queue import DelayQueue, DelayQueues, Due
from cometmq.broker.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from cometmq.protocol import properties as names
from cometmq.protocol.message import MessageExt
from cometmq.store.model import StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

DELAY_OFFSET_FILE = "delayOffset.json"


class ScheduledMessages(DelayQueues):
    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._levels = broker.store.delay_levels
        self.early = 0  # entries that claimed a later time than their level allows: the clock was turned back

    def start(self) -> None:
        self.run({level: self._queue(level) for level in range(1, self._levels.level_max + 1)})

    def _queue(self, level: int) -> DelayQueue:
        return DelayQueue(
            self._broker, SCHEDULE_TOPIC, level - 1, due=self._due_of(level), deliver=self._deliver
        )

    # -- into the queue -------------------------------------------------------------------------------------------

    def divert(self, message: StoreMessage, properties: dict[str, str]) -> bool:
        """Redirect a message that asks for a delay level; False when it does not."""
        text = properties.get(names.PROPERTY_DELAY, "")
        level = int(text) if text.isdecimal() and len(text) < 10 else 0
        if level <= 0:
            return False
        level = min(level, self._levels.level_max)
        properties[names.PROPERTY_DELAY] = str(level)
        send_elsewhere(message, properties, SCHEDULE_TOPIC, level - 1)
        return True

    # -- and out again --------------------------------------------------------------------------------------------

    def _due_of(self, level: int) -> Due:
        delay_ms = self._levels.delay_ms(level)

        def due(message: MessageExt, tags_code: int | None) -> int:
            now = self._broker.now_ms()
            due_ms = message.store_timestamp_ms + delay_ms if tags_code is None else tags_code
            if due_ms > now + delay_ms:  # the clock was turned back, or the level was shortened
                self.early += 1
                return now
            return due_ms

        return due

    def _deliver(self, message: MessageExt) -> bool:
        target = real_target(message)
        if target is None or target[0] == TRANS_HALF_TOPIC:
            return True  # nowhere to go; half messages are never delayed
        topic, queue_id = target
        result = self._broker.store.put(copy_of(message, topic=topic, queue_id=queue_id))
        if result.ok:
            self._broker.stats.count_put(topic, queue_id, 1, result.size)
        return result.ok

    def runtime_info(self) -> dict[str, str]:
        """Per level: how far delivery is, and where the queue ends."""
        store = self._broker.store
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self.offsets().items()
        }
