"""The door between delay queues and the compiled loop that copies what is due (``redelivery_cy``).

It finds entries, records and space in the store, knows the topics that took messages before, commits what was
written, and hands the counts to the statistics. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.redelivery_cy import (
    ENTRY_SIZE,
    RECORD_SIZE_MIN,
    UNUSUAL,
    Plan,
    Redelivered,
    Target,
    redeliver,
)

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

TARGETS_MAX = 10_000  # topics known at a time

NOTHING = Redelivered(0, 0, UNUSUAL, 0)


class Redelivery:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._targets: dict[bytes, Target] = {}
        self._epoch = -1

    def admit(self, topic: str) -> None:
        """A message was delivered to this topic the slow way: the next ones may go fast."""
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        name = topic.encode()
        self._targets[name] = Target(self._store.queue_offsets(name))

    def deliver(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int, plan: Plan
    ) -> Redelivered:
        """Copy what is due of a queue from an offset on, at most so many messages."""
        store = self._store
        if store.offsets_epoch != self._epoch:
            self._targets.clear()
            self._epoch = store.offsets_epoch
        window = store.queue_window(topic, queue_id, queue_offset)
        if window is None:
            return NOTHING
        entries, start, end = window
        log = store.log_window(int.from_bytes(entries[start : start + 8], "big"))
        space = store.reserve(RECORD_SIZE_MIN)
        if log is None or space is None:
            return NOTHING
        done: Redelivered = redeliver(
            entries, start, min(end, start + count_max * ENTRY_SIZE), *log,
            space.buffer, space.position, space.limit, space.physical_base, self._broker.now_ms(), plan, self._targets,
        )  # fmt: skip
        if done.count:
            store.commit(done.position)
            self._count(plan)
        return done

    def _count(self, plan: Plan) -> None:
        for name, target in self._targets.items():
            messages, size = target.take_counts()
            if messages and name != plan.timer_topic:
                self._broker.stats.count_put(name.decode(), 0, messages, size)
