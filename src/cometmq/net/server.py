"""RemotingServer: a listening port, the connections it accepted, and the table that serves them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.errors import ConfigError
from cometmq.net.config import NetConfig
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Endpoint, FastPath, Handler, Lane
from cometmq.net.listener import Listener, bind
from cometmq.net.metrics import CloseReason, NetMetrics
from cometmq.net.pump_cy import pump_class
from cometmq.net.tls import CertificateWatch, TlsConfig, TlsMode, server_context

__all__ = ["Connection", "FastPath", "Handler", "Lane", "RemotingServer"]

log = logging.getLogger(__name__)

Pump = pump_class()  # None where a system has no epoll

TLS_HANDSHAKE_SECONDS = 10


class RemotingServer(Endpoint):
    """Serves ``handlers`` on one port; ``fallback`` gets unknown codes, ``fast_path`` is set before start."""

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
        self._ssl_context: asyncio.Future[ssl.SSLContext] | None = None
        self._certificates: CertificateWatch | None = None
        self._listener: Listener | None = None
        self._plain_server: asyncio.AbstractServer | None = None
        self._pump: Any = None
        self._opening: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str = "", port: int = 0) -> int:
        """Listen; returns the port, which is a free one when 0 was asked for."""
        sock = bind(host, port, self.config)
        self.open_endpoint()
        if self.tls.mode is TlsMode.ENFORCING or not self.tls.test_mode_enable:
            try:
                await self._context()  # a certificate that cannot be used is found at the start
            except BaseException:
                sock.close()
                self._stop_scan()
                raise
        self.port = int(sock.getsockname()[1])
        if Pump is not None:
            self._pump = Pump(self, self.loop)
        try:
            self._listener = Listener(
                sock, self._on_socket, mode=self.tls.mode, metrics=self.metrics, now_ms=self.now_ms
            )
        except NotImplementedError:
            await self._listen_without_peeking(sock)
        return self.port

    async def _listen_without_peeking(self, sock: socket.socket) -> None:
        """The loop of Windows cannot watch a socket for us, so a port is either plain or TLS there."""
        tls = self.tls.mode is TlsMode.ENFORCING
        context = await self._context() if tls else None
        self._plain_server = await self.loop.create_server(
            lambda: Connection(self, tls=tls), sock=sock, ssl=context
        )

    def configure(self, config: NetConfig) -> None:
        """Use other limits from now on; what belongs to the listening socket changes with the next start."""
        self.config = config
        self._idle_ms = config.server_idle_ms

    async def stop(self, grace_ms: int = 1_000) -> None:
        """Stop listening, give running requests ``grace_ms`` to answer, close all connections. Idempotent."""
        listener = self._listener or self._plain_server
        if listener is None:
            return
        listener.close()
        self._listener = self._plain_server = None
        for task in list(self._opening):
            task.cancel()
        await self.close_endpoint(grace_ms)
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    def _on_socket(self, sock: socket.socket, tls: bool) -> None:
        if len(self.connections) + len(self._opening) >= self.config.connections_max:
            self._not_opened(sock, CloseReason.TOO_MANY)
            return
        if self._pump is not None and not tls:
            try:
                self._pump.add(sock, Connection(self))
            except OSError:
                self._not_opened(sock, CloseReason.RESET)
            return
        task = self.loop.create_task(self._open(sock, tls))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, sock: socket.socket, tls: bool) -> None:
        try:
            context = await self._context() if tls else None
            await self.loop.connect_accepted_socket(
                lambda: Connection(self, tls=tls),
                sock,
                ssl=context,
                ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS if tls else None,
            )
            self.metrics.tls_connections += tls
        except ConfigError as error:
            log.error("port=%s refuses TLS: %s", self.port, error)
            self._not_opened(sock, CloseReason.TLS_REFUSED)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            log.info("port=%s tls=%s connection not opened: %s", self.port, tls, error)
            self._not_opened(sock, CloseReason.TLS_FAILED if tls else CloseReason.RESET)
        except asyncio.CancelledError:
            self._not_opened(sock, CloseReason.STOPPED)
            raise

    def _not_opened(self, sock: socket.socket, reason: CloseReason) -> None:
        sock.close()
        self.metrics.connections_opened += 1
        self.metrics.connections_closed[reason] += 1

    async def _context(self) -> ssl.SSLContext:
        """The TLS context, made by the first who needs it (self-signed) or at the start (configured)."""
        if self._ssl_context is None:
            self._ssl_context = asyncio.ensure_future(asyncio.to_thread(server_context, self.tls))
            if not self.tls.test_mode_enable:
                self._certificates = CertificateWatch(self.tls)
        return await asyncio.shield(self._ssl_context)

    def scan_extra(self) -> None:
        if self._listener is not None:
            self._listener.expire_silent(self.config.server_idle_ms)
        if self._certificates is not None and self._certificates.changed():
            self._reload_certificates()

    def _reload_certificates(self) -> None:
        """New connections use the new files; when those cannot be loaded the old ones stay."""
        new = asyncio.ensure_future(asyncio.to_thread(server_context, self.tls))

        def loaded(context: asyncio.Future[ssl.SSLContext]) -> None:
            error = None if context.cancelled() else context.exception()
            if context.cancelled() or error is not None:
                log.error("port=%s keeps its old certificate: %s", self.port, error)
            else:
                self._ssl_context = context
                log.info("port=%s uses the new certificate", self.port)

        new.add_done_callback(loaded)
