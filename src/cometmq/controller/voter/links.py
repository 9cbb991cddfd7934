"""The connections of a voter to the others: messages go out in order, and are dropped where nobody takes them.

Raft repeats what matters, so nothing is kept for a voter that cannot be reached. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from cometmq.controller.wire import ControllerCode
from cometmq.errors import ConnectionLost, Timeout
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.protocol.command import RemotingCommand

WAITING_MAX = 64  # messages to one voter while its connection is being opened
CONNECT_MS = 300
SILENT_MS = 2_000  # a voter behind a cut cable is tried anew after this


class VoterLinks:
    def __init__(self, address_of: Callable[[int], str]) -> None:
        self._address_of = address_of
        self._client = RemotingClient(config=NetConfig(connect_timeout_millis=CONNECT_MS))
        self._waiting: dict[int, deque[bytes]] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self.dropped = 0

    def send(self, to: int, body: bytes) -> None:
        """Leaves now when the connection is open, else as soon as it is."""
        address = self._address_of(to)
        if not address:
            self.dropped += 1
            return
        connection = self._client.open_connections().get(address)
        if connection is not None:
            command = RemotingCommand.request(ControllerCode.RAFT, body=body, oneway=True)
            command.opaque = connection.next_opaque()
            connection.send(command)
            return
        waiting = self._waiting.setdefault(to, deque(maxlen=WAITING_MAX))
        self.dropped += len(waiting) == WAITING_MAX
        waiting.append(body)
        if to not in self._opening:
            self._opening[to] = asyncio.create_task(self._open(to, address))

    async def ask(self, address: str, body: bytes, timeout_ms: int) -> RemotingCommand:
        return await self._client.invoke(
            address, RemotingCommand.request(ControllerCode.RAFT, body=body), timeout_ms
        )

    async def _open(self, to: int, address: str) -> None:
        try:
            with contextlib.suppress(ConnectionLost, Timeout):
                (await self._client.connection(address, CONNECT_MS)).give_up_after(SILENT_MS)
        finally:
            del self._opening[to]
            waiting = self._waiting.pop(to, deque())
        if address in self._client.open_connections():
            for body in waiting:
                self.send(to, body)
        else:
            self.dropped += len(waiting)

    async def close(self) -> None:
        for task in list(self._opening.values()):
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await self._client.close(grace_ms=100)
