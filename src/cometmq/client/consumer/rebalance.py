"""Rebalance: keep the queues this member holds equal to those its share says.

Theory of operation
-------------------
Every member computes the allocation alone, from the sorted queues of a topic and the sorted client ids the
broker lists. It does so every 20 seconds, and at once when the broker says that the members changed, when a
route changed, and at start. While something could not be done (no route yet, a queue could not be locked, a
broker did not say an offset) it tries again after a second.

A new queue is locked first if consumption is ordered, then its start offset is computed, then it is pulled. A
queue to give up is marked dropped, so that results of its running handlers are ignored, its offset is stored,
and, if ordered, it is unlocked once no handler runs: until then it stays in the table and the next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client.background import Wake
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.pull_loop import PullLoop
from cometmq.client.consumer.start_offset import start_offset
from cometmq.client.queue import Queue
from cometmq.client.settings import seconds
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.client.consumer.member import Member

log = logging.getLogger(__name__)

AGAIN_SOON_S = 1.0
PULL_IDLE_MAX_MS = 120_000


class Rebalance:
    """Assignment of one push consumer."""

    def __init__(self, consumer: Member) -> None:
        self._consumer = consumer
        self._instance = consumer.instance
        self._wake = Wake()
        self._unfinished = False
        self._lock = asyncio.Lock()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        interval_s = seconds(self._instance.settings.rebalance_interval)
        while True:
            await self._wake.wait(AGAIN_SOON_S if self._unfinished else interval_s)
            try:
                await self.round()
            except CometMQError as error:
                self._unfinished = True
                log.warning("group=%s rebalance failed: %s", self._consumer.group, error)

    async def round(self) -> None:
        """Bring the assignment of every topic up to date once."""
        consumer = self._consumer
        if consumer.paused:
            return
        async with self._lock:
            self._unfinished = False
            changed = False
            for topic in consumer.subscriptions.topics():
                mine = await self._mine(topic)
                if mine is not None:
                    changed |= await self._apply(topic, mine)
            changed |= await self._drop_unsubscribed()
            if changed:
                consumer.limits.share(len(consumer.queues))
                await self._instance.heartbeat()
                self._start_pulls()

    async def _mine(self, topic: str) -> set[Queue] | None:
        """The queues of a topic that are this member's, None when it cannot be known now."""
        consumer = self._consumer
        route = await self._route(topic)
        if route is None:
            # The retry topic of a new group appears with the first heartbeat; others may be created later.
            self._unfinished = True
            return None
        queues = sorted(route)
        if consumer.broadcast:
            return set(queues)
        members = await self._members(topic)
        if not queues or not members:
            self._unfinished = True
            return None
        strategy = consumer.allocation
        return set(strategy.allocate(consumer.group, self._instance.client_id, queues, members))

    async def _route(self, topic: str) -> list[Queue] | None:
        try:
            route = await self._instance.routes.for_reading(topic)
        except CometMQError as error:
            log.warning("group=%s no route for topic=%s: %s", self._consumer.group, topic, error)
            return None
        return None if route is None else route.read_queues

    async def _members(self, topic: str) -> list[str]:
        """Client ids of the group, sorted. If the broker does not list us yet, it hears from us first."""
        address = self._instance.routes.any_address(topic)
        if address is None:
            return []
        group, own = self._consumer.group, self._instance.client_id
        try:
            members = await self._instance.brokers.consumer_ids(address, group)
            if own not in members:
                await self._instance.heartbeat()
                members = await self._instance.brokers.consumer_ids(address, group)
        except CometMQError as error:
            log.warning("group=%s members are not known: %s", group, error)
            return []
        return sorted(set(members))

    async def _apply(self, topic: str, mine: set[Queue]) -> bool:
        consumer = self._consumer
        now_ms = self._instance.now_ms()
        changed = False
        for queue, held in list(consumer.queues.items()):
            if queue.topic != topic:
                continue
            stuck = now_ms - held.last_pull_ms > PULL_IDLE_MAX_MS and not consumer.limits.full(held)
            if queue not in mine or held.dropped or stuck:
                changed |= await self.give_up(queue)
        fresh = [queue for queue in sorted(mine) if queue not in consumer.queues]
        added = await asyncio.gather(*(self._add(queue) for queue in fresh))
        if changed or any(added):
            consumer.subscriptions.renew(topic)
            log.info("group=%s topic=%s holds %s", consumer.group, topic, _numbers(consumer.queues, topic))
            return True
        return False

    async def _drop_unsubscribed(self) -> bool:
        consumer = self._consumer
        changed = False
        for queue in list(consumer.queues):
            if consumer.subscriptions.get(queue.topic) is None:
                changed |= await self.give_up(queue)
        return changed

    # --- one queue ---

    async def _add(self, queue: Queue) -> bool:
        consumer = self._consumer
        try:
            if consumer.locks is not None and not await consumer.locks.lock(queue):
                self._unfinished = True
                return False
            consumer.offsets.forget(queue)
            offset = await start_offset(self._instance, consumer.offsets, queue, consumer.start_from)
        except CometMQError as error:
            self._unfinished = True
            log.warning("group=%s queue %s cannot be begun yet: %s", consumer.group, queue, error)
            return False
        if offset < 0:
            self._unfinished = True
            return False
        held = ProcessQueue(queue, offset, self._instance.now_ms())
        held.locked = consumer.locks is not None
        consumer.queues[queue] = held
        return True

    def _start_pulls(self) -> None:
        """After the heartbeat, so that the broker knows the subscription the pulls name."""
        for held in self._consumer.queues.values():
            if held.pull_task is None and not held.dropped:
                loop = PullLoop(self._consumer, held)
                held.pull_task = self._consumer.background.spawn(loop.run(), f"pull {held.queue}")

    async def give_up(self, queue: Queue) -> bool:
        """Let a queue go; False when a handler still runs and it has to wait."""
        consumer = self._consumer
        held = consumer.queues[queue]
        held.dropped = True
        if held.pull_task is not None:
            held.pull_task.cancel()
        # Ordered: the next owner must find the offset when it gets the lock.
        await consumer.offsets.persist([queue], confirmed=consumer.locks is not None)
        if consumer.locks is not None:
            if held.busy:
                held.unlock_tries += 1
                self._unfinished = True
                return False
            await consumer.locks.unlock(queue)
        del consumer.queues[queue]
        consumer.offsets.forget(queue)
        return True


def _numbers(queues: dict[Queue, ProcessQueue], topic: str) -> str:
    return ",".join(
        f"{queue.broker_name}/{queue.queue_id}" for queue in sorted(queues) if queue.topic == topic
    )
