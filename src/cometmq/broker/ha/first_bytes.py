"""The first bytes of a connection to the replication port say which protocol it is: v1 of 4.9 slaves, or v2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.slave_link import SlaveLink
from cometmq.broker.ha.wire2 import PREAMBLE


class FirstBytes(asyncio.Protocol):
    """Reads eight bytes and hands the connection over. Loop thread only."""

    def __init__(
        self,
        slave: Callable[[], SlaveLink],
        replica: Callable[[], PeerLink],
        undecided: set[FirstBytes],
    ) -> None:
        """``undecided`` holds it until it is handed over or lost."""
        self._slave = slave
        self._replica = replica
        self._undecided = undecided
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self.since_s = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._undecided.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._undecided.discard(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        if len(self._data) < len(PREAMBLE):
            return
        self._undecided.discard(self)
        transport = self._transport
        if self._data.startswith(PREAMBLE):
            self._replica().adopt(transport, self._data[len(PREAMBLE) :])
            return
        link = self._slave()
        transport.set_protocol(link)
        link.connection_made(transport)
        link.data_received(self._data)
