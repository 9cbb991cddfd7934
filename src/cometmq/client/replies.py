"""Requests of a client that wait for their reply. Loop thread only."""

from __future__ import annotations

import asyncio

from cometmq.client.message import ReceivedMessage
from cometmq.protocol.properties import PROPERTY_CORRELATION_ID


class Replies:
    """Requests of a client that wait for their reply."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        future = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def arrived(self, reply: ReceivedMessage) -> bool:
        future = self._waiting.get(reply.properties.get(PROPERTY_CORRELATION_ID, ""))
        if future is None or future.done():
            return False
        future.set_result(reply)
        return True
