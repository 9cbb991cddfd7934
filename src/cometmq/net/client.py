"""RemotingClient: one connection per address, opened when needed; requests matched to responses by opaque.

Plain asyncio, nothing that only Linux has. Loop thread only; a forked child must make its own client.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping

from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.errors import ConnectionLost, Timeout
from cometmq.net.addresses import parse_address
from cometmq.net.config import NetConfig
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Endpoint, Handler
from cometmq.net.metrics import CloseReason, NetMetrics
from cometmq.net.tls import TlsConfig, client_context
from cometmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 3_000


class RemotingClient(Endpoint):
    """Talks to any number of servers. ``handlers`` serve the requests that servers send to us."""

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        fallback: Handler | None = None,
        config: NetConfig | None = None,
        now_ms: Clock = wall_clock,
        metrics: NetMetrics | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        config = config or NetConfig()
        super().__init__(
            handlers,
            fallback=fallback,
            config=config,
            now_ms=now_ms,
            metrics=metrics,
            idle_ms=config.client_idle_ms,
        )
        self.tls = tls or TlsConfig()
        self._ssl_context: ssl.SSLContext | None = None
        self._by_address: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._open = False
        self._closed = False

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> RemotingCommand:
        """Send a request and return its response, whatever its code. The timeout includes connecting."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = await self.connection(address, timeout_ms)
        left_ms = int((deadline - self.loop.time()) * 1000)
        if left_ms <= 0:
            raise Timeout(f"Connecting to {address} took the whole {timeout_ms} ms of the request.")
        try:
            return await connection.begin(command, left_ms)
        except Timeout:
            if self.config.client_close_socket_if_timeout:
                connection.close(CloseReason.REQUEST_TIMEOUT)
            raise

    async def invoke_oneway(
        self, address: str, command: RemotingCommand, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> None:
        """Send without waiting for an answer; the command must carry the one-way flag."""
        connection = await self.connection(address, timeout_ms)
        command.opaque = connection.next_opaque()
        connection.send(command)

    async def connection(self, address: str, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Connection:
        """The open connection to ``address``; opens one if there is none. Callers share one attempt."""
        connection = self._by_address.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise ConnectionLost("This client is closed.")
        if not self._open:
            self._open = True
            self.open_endpoint()
        task = self._opening.get(address)
        if task is None:
            task = self.loop.create_task(self._connect(address))
            self._opening[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        try:
            # Not wait_for: that of Python 3.11 loses a cancellation that comes with the result.
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)
        except TimeoutError:
            raise Timeout(f"No connection to {address} within {timeout_ms} ms.") from None

    async def _connect(self, address: str) -> Connection:
        host, port = parse_address(address)
        if self.tls.enable and self._ssl_context is None:
            self._ssl_context = await asyncio.to_thread(client_context, self.tls)
        try:
            async with asyncio.timeout(self.config.connect_timeout_millis / 1000):
                _, connection = await self.loop.create_connection(
                    lambda: Connection(self, tls=self.tls.enable),
                    host,
                    port,
                    ssl=self._ssl_context,
                    server_hostname=host if self._ssl_context else None,
                )
        except TimeoutError:
            raise ConnectionLost(
                f"No connection to {address} within {self.config.connect_timeout_millis} ms."
            ) from None
        except (OSError, ssl.SSLError) as error:
            raise ConnectionLost(f"Cannot connect to {address}: {_reason(error)}.") from error
        return connection

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if task.cancelled() or task.exception() is not None:
            return
        connection = task.result()
        if self._closed:
            connection.close(CloseReason.STOPPED)
            return
        self._by_address[address] = connection
        connection.on_close.append(lambda closed: self._forget(address, closed))

    def _forget(self, address: str, connection: Connection) -> None:
        if self._by_address.get(address) is connection:
            del self._by_address[address]

    def open_connections(self) -> dict[str, Connection]:
        """Address -> connection of those that are open now."""
        return {address: c for address, c in self._by_address.items() if not c.closed}

    def close_connection(self, address: str, reason: str = CloseReason.LOCAL) -> None:
        connection = self._by_address.get(address)
        if connection is not None:
            connection.close(reason)

    async def close(self, grace_ms: int = 1_000) -> None:
        """Close every connection; later calls raise ConnectionLost. Idempotent."""
        if self._closed:
            return
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        if self._open:
            await self.close_endpoint(grace_ms)


def _reason(error: OSError) -> str:
    """The usual mistake in plain words: asyncio names the call and the number of the error."""
    return "nobody listens there" if isinstance(error, ConnectionRefusedError) else str(error)
