"""A tiny HTTP server for scrapers and probes: ``/metrics``, ``/healthz`` (alive) and ``/readyz`` (serving).

One request per connection, GET only, everything else is refused. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from cometmq.errors import ConfigError
from cometmq.metrics.exposition import CONTENT_TYPE, Family, render

log = logging.getLogger(__name__)

REQUEST_SIZE_MAX = 8 * 1024  # bytes of request line and header lines
REQUEST_TIMEOUT_S = 5.0
PLAIN = "text/plain; charset=utf-8"

Answer = tuple[int, str, str]  # status, content type, text
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class MetricsServer:
    """``collect`` gives the metrics; ``problem`` says why the server is not ready, or None."""

    def __init__(
        self, collect: Callable[[], Iterable[Family]], problem: Callable[[], str | None] = lambda: None
    ) -> None:
        self._collect = collect
        self._problem = problem
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        try:
            self._server = await asyncio.start_server(
                self._serve, host or None, port, limit=REQUEST_SIZE_MAX, reuse_address=True
            )
        except OSError as error:
            raise ConfigError(
                f"Metrics cannot be served at {host or '*'}:{port} ({error.strerror or error}); "
                "choose another --metrics-port or --metrics-host."
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_TIMEOUT_S)
            writer.write(encode(self.answer(request.split(b"\r\n", 1)[0])))
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # a probe that went away, or no HTTP at all
        finally:
            writer.close()

    def answer(self, request_line: bytes) -> Answer:
        method, _, rest = request_line.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return 405, PLAIN, "only GET\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE, render(self._collect())
        if path == "/healthz":
            return 200, PLAIN, "ok\n"
        if path == "/readyz":
            problem = self._problem()
            return (200, PLAIN, "ready\n") if problem is None else (503, PLAIN, problem + "\n")
        return 404, PLAIN, "there are /metrics, /healthz and /readyz\n"


def encode(answer: Answer) -> bytes:
    status, content_type, text = answer
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
