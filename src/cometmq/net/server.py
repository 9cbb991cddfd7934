"""RemotingServer: a listening port, the connections it accepted, and the table that serves them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping

from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.net.config import NetConfig
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Endpoint, FastPath, Handler, Lane
from cometmq.net.listener import Listener, bind
from cometmq.net.metrics import CloseReason, NetMetrics
from cometmq.net.tls import TlsConfig, TlsMode, server_context

__all__ = ["Connection", "FastPath", "Handler", "Lane", "RemotingServer"]

log = logging.getLogger(__name__)

TLS_HANDSHAKE_SECONDS = 10


class RemotingServer(Endpoint):
    """Serves ``handlers`` on one port. ``fast_path`` may be set before start; ``fallback`` gets unknown codes."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        fallback: Handler | None = None,
        config: NetConfig | None = None,
        now_ms: Clock = wall_clock,
        metrics: NetMetrics | None = None,
        lanes: Mapping[int, Lane] | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        config = config or NetConfig()
        super().__init__(
            handlers,
            fallback=fallback,
            config=config,
            now_ms=now_ms,
            metrics=metrics,
            lanes=lanes,
            idle_ms=config.server_idle_ms,
        )
        self.tls = tls or TlsConfig()
        self._ssl_context: ssl.SSLContext | None = None
        self._listener: Listener | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str = "", port: int = 0) -> int:
        """Listen; returns the port, which is a free one when 0 was asked for."""
        sock = bind(host, port, self.config)
        try:
            self._ssl_context = await server_context(self.tls)
        except BaseException:
            sock.close()
            raise
        self.open_endpoint()
        self._listener = Listener(
            sock,
            self._on_socket,
            mode=self.tls.mode,
            tls_ready=self._ssl_context is not None,
            metrics=self.metrics,
            now_ms=self.now_ms,
        )
        self.port = self._listener.port
        return self.port

    async def stop(self, grace_ms: int = 1_000) -> None:
        """Stop listening, let running requests answer for ``grace_ms``, close every connection. Idempotent."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        for task in list(self._opening):
            task.cancel()
        await self.close_endpoint(grace_ms)

    def _on_socket(self, sock: socket.socket, tls: bool) -> None:
        if len(self.connections) + len(self._opening) >= self.config.connections_max:
            sock.close()
            self.metrics.connections_opened += 1
            self.metrics.connections_closed[CloseReason.TOO_MANY] += 1
            return
        task = self.loop.create_task(self._open(sock, tls))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, sock: socket.socket, tls: bool) -> None:
        context = self._ssl_context if tls else None
        try:
            await self.loop.connect_accepted_socket(
                lambda: Connection(self, tls=tls),
                sock,
                ssl=context,
                ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS if tls else None,
            )
            self.metrics.tls_connections += tls
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.info("port=%s tls=%s connection not opened: %s", self.port, tls, error)
            self.metrics.connections_opened += 1
            self.metrics.connections_closed[CloseReason.TLS_FAILED if tls else CloseReason.RESET] += 1
            sock.close()

    def scan_extra(self) -> None:
        if self._listener is not None:
            self._listener.expire_silent(self.config.server_idle_ms)
