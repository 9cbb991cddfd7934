"""The registration service, twice: calling its followers itself, and telling the broker instead.

Its own write and the calls are waits of a fixed time; everything else is real.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.demo.plan import CALL_S, FOLLOWERS, REGISTER, TOPIC, WRITE_S
from cometmq.protocol.message import Message

if TYPE_CHECKING:
    from cometmq.client.producer import Producer


class DirectService:
    """Writes, then calls SMS, push and coupon one after the other. A user holds a worker all the time."""

    def __init__(self, workers: int) -> None:
        self._workers = asyncio.Semaphore(workers)

    async def register(self, user: str) -> None:
        async with self._workers:
            await asyncio.sleep(WRITE_S)
            for _follower in FOLLOWERS:
                await asyncio.sleep(CALL_S)


class QueuedService:
    """Writes, then sends one message; whoever wants to follow reads it."""

    def __init__(self, workers: int, producer: Producer) -> None:
        self._workers = asyncio.Semaphore(workers)
        self._producer = producer

    async def register(self, user: str) -> None:
        async with self._workers:
            await asyncio.sleep(WRITE_S)
            await self._producer.send(Message(TOPIC, user.encode(), tag=REGISTER, keys=user))
