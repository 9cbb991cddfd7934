"""What the network tests share: a clock to turn, a server in a with statement, and a peer that sends any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from cometmq.net.server import RemotingServer
from cometmq.protocol.command import RemotingCommand, decode_frame

ECHO = 900  # answers with the same body
LARGE = 901  # answers with a large body


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


async def eventually(condition: Callable[[], Any], seconds: float = 5) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.002)


def echo(_connection: Any, command: RemotingCommand) -> RemotingCommand:
    return command.response(0, body=command.body)


def large(_connection: Any, command: RemotingCommand) -> RemotingCommand:
    return command.response(0, body=bytes(1_000_000))


@contextlib.asynccontextmanager
async def serving(handlers: dict[int, Any] | None = None, **options: Any) -> AsyncIterator[RemotingServer]:
    server = RemotingServer({ECHO: echo, LARGE: large, **(handlers or {})}, **options)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(grace_ms=200)


class RawPeer:
    """A client of bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, **options: Any) -> RawPeer:
        return cls(*await asyncio.open_connection("127.0.0.1", port, **options))

    def send(self, *commands: RemotingCommand) -> None:
        self.writer.write(b"".join(command.encode() for command in commands))

    async def frame(self) -> RemotingCommand:
        length = await self.reader.readexactly(4)
        return decode_frame(length + await self.reader.readexactly(int.from_bytes(length, "big")))

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        return await asyncio.wait_for(self.frame(), 5)

    async def ended(self) -> bool:
        """True when the server closed the connection without sending anything more."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def peer_of(server: RemotingServer, **options: Any) -> AsyncIterator[RawPeer]:
    peer = await RawPeer.connect(server.port, **options)
    try:
        yield peer
    finally:
        await peer.close()


def request(code: int = ECHO, opaque: int = 1, body: bytes = b"", *, oneway: bool = False) -> RemotingCommand:
    command = RemotingCommand.request(code, body=body, oneway=oneway)
    command.opaque = opaque
    return command
