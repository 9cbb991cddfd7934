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

    def __init__(self, slave: Callable[[], SlaveLink], replica: Callable[[], PeerLink]) -> None:
        self._slave = slave
        self._replica = replica
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        if len(self._data) < len(PREAMBLE):
            return
        transport = self._transport
        if self._data.startswith(PREAMBLE):
            self._replica().adopt(transport, self._data[len(PREAMBLE) :])
            return
        link = self._slave()
        transport.set_protocol(link)
        link.connection_made(transport)
        link.data_received(self._data)
