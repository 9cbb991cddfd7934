"""One connection between two replicas (HA v2), from either side. What it brings goes to its owner.

Frames that one turn of the loop makes go out together. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol, cast

from cometmq.broker.ha.frames import Ack
from cometmq.broker.ha.wire2 import PREAMBLE, FrameBuffer, FrameType, WireFrame, encode_head
from cometmq.errors import RemoteProtocolError

log = logging.getLogger(__name__)

UNSENT_SIZE_MAX = 32 << 20  # bytes; more than a window of data and a snapshot of the metadata


class LinkOwner(Protocol):
    def frame_received(self, link: PeerLink, frame: WireFrame) -> None: ...

    def frames_received(self, link: PeerLink) -> None:
        """Everything that came together was handed over."""

    def link_opened(self, link: PeerLink) -> None: ...

    def link_closed(self, link: PeerLink) -> None: ...


class PeerLink(asyncio.BufferedProtocol):
    def __init__(self, owner: LinkOwner, *, session: int = 0, replica_id: int = 0) -> None:
        """``session`` and ``replica_id`` are known from the start where we connect, and after HELLO elsewhere."""
        self._owner = owner
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes | memoryview] = []
        self.session = session
        self.replica_id = replica_id
        self.welcomed = False  # the handshake is done
        self.ack: Ack | None = None  # that has not been looked at yet
        self.peer = ""
        self.bytes_sent = 0
        self.bytes_received = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    # -- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._transport.set_write_buffer_limits(high=UNSENT_SIZE_MAX)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._owner.link_opened(self)

    def adopt(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection whose first bytes somebody else has read."""
        self.connection_made(transport)
        transport.set_protocol(self)
        while data and self.is_open:
            room = self._buffer.room()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.buffer_updated(size)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._parts.clear()
        self._owner.link_closed(self)

    def close(self, reason: str = "") -> None:
        if self._transport is not None:
            if reason:
                log.info("replica link closed peer=%s replica=%d: %s", self.peer, self.replica_id, reason)
            self.flush()
            self._transport.abort()

    # -- receiving ------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, size: int) -> None:
        self.bytes_received += size
        try:
            for frame in self._buffer.received(size):
                self._owner.frame_received(self, frame)
                if not self.is_open:
                    break
        except RemoteProtocolError as error:
            log.warning("replica link dropped peer=%s: %s", self.peer, error)
            self.close()
        self._owner.frames_received(self)

    def eof_received(self) -> None:
        return None

    # -- sending --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first bytes of the side that connects."""
        self._parts.append(PREAMBLE)

    def send(
        self, kind: FrameType, epoch: int, offset: int = 0, confirm: int = 0, body: bytes | memoryview = b""
    ) -> None:
        """Goes out with ``flush``."""
        if self._transport is None:
            return
        self._parts.append(encode_head(kind, epoch, offset, confirm, body))
        if body:
            self._parts.append(body)

    def flush(self) -> None:
        if self._parts and self._transport is not None:
            parts, self._parts = self._parts, []
            self.bytes_sent += sum(map(len, parts))
            self._transport.writelines(parts)
