"""Masters and slaves in this process, and raw peers of the replication port, for tests."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from wire_client import WireClient, broker_config, until

from cometmq.broker.broker import Broker
from cometmq.broker.ha.stream import FRAME_HEAD, REPORT, FrameReader
from cometmq.store.store import MessageStore

LOG_FILE_SIZE = 256 * 1024
QUICK = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "max_message_size": 65536,
    "ha_send_heartbeat_interval": 100,
    "ha_housekeeping_interval": 2_000,
}


def group_config(directory: Path, role: str, broker_id: int, **settings: Any) -> Any:
    values = {"broker_role": role, "broker_id": broker_id, **QUICK, **settings}
    return broker_config(directory / f"{role.lower()}-{broker_id}", **values)


@asynccontextmanager
async def master(
    directory: Path, role: str = "ASYNC_MASTER", **settings: Any
) -> AsyncIterator[tuple[Broker, WireClient]]:
    async with started(group_config(directory, role, 0, **settings)) as found:
        yield found


@asynccontextmanager
async def slave(
    directory: Path, of: Broker | None = None, broker_id: int = 1, **settings: Any
) -> AsyncIterator[tuple[Broker, WireClient]]:
    """A slave that is told its master's replication address, or finds it through a NameServer."""
    if of is not None:
        settings["ha_master_address"] = of.ha_address
    async with started(group_config(directory, "SLAVE", broker_id, **settings)) as found:
        yield found


@asynccontextmanager
async def started(config: Any) -> AsyncIterator[tuple[Broker, WireClient]]:
    broker = Broker(config)
    await broker.start()
    client = WireClient(broker.address)
    try:
        yield broker, client
    finally:
        await client.close()
        await broker.stop()


def digest(store: MessageStore, begin: int = 0, end: int | None = None) -> str:
    """SHA-256 of a range of the log."""
    seen = hashlib.sha256()
    end = store.max_physical_offset if end is None else end
    while begin < end:
        part = store.read_log(begin, end - begin)
        assert part, f"no bytes at {begin}"
        seen.update(part)
        begin += len(part)
    return seen.hexdigest()


async def caught_up(one: Broker, other: Broker, begin: int = 0, limit_s: float = 20) -> None:
    """Wait until the two logs end at the same place; then they must be the same."""
    await until(lambda: one.store.max_physical_offset == other.store.max_physical_offset, limit_s=limit_s)
    assert digest(one.store, begin) == digest(other.store, begin)


async def send_many(client: WireClient, topic: str, count: int, size: int = 100, **fields: Any) -> list[int]:
    """Response codes of ``count`` sends, all in flight at once."""
    bodies = [bytes([number % 251]) * size for number in range(count)]
    answers = await asyncio.gather(*(client.send(topic, body, **fields) for body in bodies))
    return [answer.code for answer in answers]


async def fill_files(client: WireClient, broker: Broker, files: int, topic: str = "T") -> None:
    """Write until the log has at least this many files."""
    while broker.store.max_physical_offset <= LOG_FILE_SIZE * (files - 1):
        assert set(await send_many(client, topic, 20, 8192)) <= {0, 11}


class RawSlave:
    """A peer of the replication port that says what it is told to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader()
        self.data = bytearray()
        self.first_offset = -1
        self.heartbeats: list[int] = []

    @classmethod
    async def connect(cls, broker: Broker, *reports: int) -> RawSlave:
        found = cls(*await asyncio.open_connection("127.0.0.1", broker.config.ha_listen_port))
        found.report(*reports)
        return found

    def report(self, *reports: int) -> None:
        for offset in reports:
            self.writer.write(REPORT.pack(offset))

    async def receive(self, limit: int = 65536) -> bool:
        """Take one read of the socket; False when the master has closed."""
        try:
            data = await asyncio.wait_for(self.reader.read(limit), 20)
        except ConnectionError:
            return False
        for piece in self.frames.feed(memoryview(data)):
            if self.first_offset < 0:
                self.first_offset = piece.physical_offset
            if not piece.data:
                self.heartbeats.append(piece.physical_offset)
            self.data += piece.data
        return bool(data)

    async def receive_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert await self.receive(), "the master closed the connection"

    async def closed(self) -> bool:
        """Read until the master closes."""
        while await self.receive():
            pass
        return True

    def close(self) -> None:
        self.writer.close()


class RawMaster:
    """A replication port that sends what it is told to send to whoever connects."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.reports: list[int] = []
        self.connections = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while data := await reader.readexactly(REPORT.size):
                self.reports.append(REPORT.unpack(data)[0])
                if len(self.reports) == 1 or not self.parts:
                    for part in self.parts:
                        writer.write(part)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def frame(physical_offset: int, body: bytes) -> bytes:
    return FRAME_HEAD.pack(physical_offset, len(body)) + body


def free_port_pair() -> int:
    """A port whose neighbours at -2 and +1 are free as well, for a broker that must come back at the same place."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if all(_is_free(port + distance) for distance in (-2, 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
