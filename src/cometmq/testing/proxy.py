"""A TCP proxy that misbehaves on demand: cuts connections, stops forwarding, cuts in the middle of a frame.

Runs on the loop it was started on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

CHUNK_SIZE = 64 * 1024


class Proxy:
    """Forwards to ``host:port``; ``address`` is where clients connect."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.forwarded_bytes = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._cut_after: int | None = None
        self.refusing = False
        self.connections = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; the address to give to clients."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    async def stop(self) -> None:
        """Cut every connection and listen no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._server is not None:
            await self._server.wait_closed()

    def cut(self) -> None:
        """Reset every connection now."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Forward nothing any more and tell nobody, like a firewall that forgot a connection."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let bytes flow again after ``stall()``."""
        self._flowing.set()

    def cut_after(self, byte_count: int) -> None:
        """Cut once so many more bytes went to the target: somewhere inside a frame."""
        self._cut_after = byte_count

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        host, _, port = self.target.rpartition(":")
        try:
            out_reader, out_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, out_writer}
        try:
            up = self._spawn(self._pump(reader, out_writer, counted=True))
            down = self._spawn(self._pump(out_reader, writer, counted=False))
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, out_writer):
                self._writers.discard(end)
                with contextlib.suppress(Exception):
                    end.transport.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_SIZE):
                await self._flowing.wait()
                if counted and self._cut_after is not None:
                    allowed, self._cut_after = self._cut_after, self._cut_after - len(data)
                    if allowed < len(data):
                        writer.write(data[:allowed])
                        self._cut_after = None
                        return
                self.forwarded_bytes += len(data)
                writer.write(data)
                await writer.drain()
