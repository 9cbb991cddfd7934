"""Broker locks of an ordered consumer: only one member of a group may read a queue, even while members disagree.

A lock lives 60 seconds at the broker and is renewed every 20; this side trusts it for 30. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping

from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.instance import Instance
from cometmq.client.queue import Queue
from cometmq.errors import CometMQError

log = logging.getLogger(__name__)

RENEW_INTERVAL_S = 20.0


class QueueLocks:
    """The locks of one group in this client."""

    def __init__(self, instance: Instance, group: str, held: Mapping[Queue, ProcessQueue]) -> None:
        self._instance = instance
        self._group = group
        self._held = held

    async def lock(self, queue: Queue) -> bool:
        """Try to get one queue; the process queue, if there is one, learns the outcome."""
        address = await self._instance.routes.master_of(queue.broker_name, queue.topic)
        got = await self._instance.brokers.lock(address, self._group, self._instance.client_id, [queue])
        self._mark(queue, queue in got)
        return queue in got

    async def renew(self) -> None:
        """Renew every lock, one request per broker. An error changes nothing; a refusal unlocks."""
        by_broker: dict[str, list[Queue]] = defaultdict(list)
        for queue, held in self._held.items():
            if not held.dropped:
                by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*(self._renew(queues) for queues in by_broker.values()))

    async def _renew(self, queues: list[Queue]) -> None:
        try:
            address = await self._instance.routes.master_of(queues[0].broker_name, queues[0].topic)
            got = await self._instance.brokers.lock(address, self._group, self._instance.client_id, queues)
        except CometMQError as error:
            log.warning("group=%s locks were not renewed: %s", self._group, error)
            return
        for queue in queues:
            self._mark(queue, queue in got)

    def _mark(self, queue: Queue, locked: bool) -> None:
        held = self._held.get(queue)
        if held is not None:
            held.locked = locked
            if locked:
                held.last_lock_ms = self._instance.now_ms()

    async def unlock(self, queue: Queue) -> None:
        await self.unlock_all([queue])

    async def unlock_all(self, queues: Iterable[Queue], *, confirmed: bool = False) -> None:
        """Give queues back; a failure is logged, the broker forgets after a minute."""
        by_broker: dict[str, list[Queue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        for listed in by_broker.values():
            try:
                address = await self._instance.routes.master_of(listed[0].broker_name, listed[0].topic)
                await self._instance.brokers.unlock(
                    address, self._group, self._instance.client_id, listed, confirmed=confirmed
                )
            except CometMQError as error:
                log.info("group=%s %s not unlocked: %s", self._group, listed, error)
