"""A NameServer and a broker in this process, on a loop thread of their own: real parts, empty store, free ports.

Everything public may be called from any thread; methods named ``wait_for`` are awaited on the caller's loop.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cometmq.client.client import Client
from cometmq.client.isolation import hop
from cometmq.client.loop_thread import LoopThread
from cometmq.client.message import ReceivedMessage
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records
from cometmq.testing.clock import ClockedLoop, VirtualClock
from cometmq.testing.faults import FOREVER, Fault, Faults, codes_of
from cometmq.testing.proxy import Proxy

MIB = 1024 * 1024
READ_BYTES = 4 * MIB
READ_COUNT = 1024
CHECK_INTERVAL_S = 0.01
HOST = "127.0.0.1"
# Whatever else is on the disk of the machine: a test does not fail because it is fuller than a server's should be.
ANY_DISK = {
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
}
# Small files: a test writes little, and creating a gigabyte file costs time. Checks come soon.
SETTINGS = ANY_DISK | {
    "mappedFileSizeCommitLog": str(8 * MIB),
    "mappedFileSizeConsumeQueue": str(6000 * 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "enablePropertyFilter": "true",
    "flushDiskType": "ASYNC_FLUSH",
}


class LocalBroker:
    """A whole cluster of one broker. Use as ``with`` or ``async with``, or ``start()`` and ``stop()``.

    ``settings`` are keys of broker.conf. With ``proxied=True`` clients reach the broker through ``broker.proxy``.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        directory: str | Path | None = None,
        proxied: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        self.proxy: Proxy | None = None
        self._settings = {**SETTINGS, **(settings or {})}
        self._own_directory = directory is None
        self._directory = (
            Path(tempfile.mkdtemp(prefix="cometmq-test-")) if directory is None else Path(directory)
        )
        self._proxied = proxied
        self._thread: LoopThread | None = None
        self._name_server: Any = None
        self._broker: Any = None
        self._faults: Faults | None = None
        self._ports = (0, 0)

    # --- life ---

    def start(self) -> Self:
        """Start NameServer and broker; returns when they serve."""
        if self._thread is None:
            self._thread = LoopThread("cometmq-test-broker", lambda: ClockedLoop(self.clock))
            try:
                self._thread.run(self._start())
            except BaseException:
                self._thread.close()
                raise
        return self

    def stop(self) -> None:
        """Stop everything and delete the store (unless the directory was given)."""
        if self._thread is not None:
            self._thread.run(self._stop())
            self._thread.close()
            self._thread = None
        if self._own_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    async def _start(self) -> None:
        from cometmq.nameserver.config import NameServerConfig
        from cometmq.nameserver.server import NameServer

        self._directory.mkdir(parents=True, exist_ok=True)
        self._name_server = NameServer(
            NameServerConfig(
                listen_port=self._ports[0],
                bind_address=HOST,
                kv_config_path=str(self._directory / "namesrv" / "kvConfig.json"),
                config_store_path=str(self._directory / "namesrv" / "namesrv.properties"),
            )
        )
        await self._name_server.start()
        await self._start_broker()

    async def _start_broker(self) -> None:
        from cometmq.broker.broker import Broker
        from cometmq.broker.config import BrokerConfig
        from cometmq.broker.files import ConfigFiles
        from cometmq.store.store import MessageStore
        from cometmq.testing.unsynced import UnsyncedFileOps

        config = BrokerConfig.from_properties(self._settings)
        config.broker_name = config.broker_name or "broker-a"
        config.broker_ip1 = config.bind_address = HOST
        config.listen_port = self._ports[1]
        config.namesrv_addr = "" if self._proxied else self._name_server.address
        config.store_path_root_dir = str(self._directory)
        config = config.resolve()
        store_config = replace(config.store_config(), populate_ahead_size=0)
        self._broker = Broker(
            config,
            now_ms=self.clock,
            store=MessageStore(store_config, now_ms=self.clock, ops=UnsyncedFileOps()),
            files=ConfigFiles(Path(config.config_dir), synced=False),
        )
        await self._broker.start()
        self._ports = (self._name_server.port, config.listen_port)
        self._faults = Faults(self._broker)
        if self._proxied:
            await self._start_proxy()

    async def _start_proxy(self) -> None:
        """Stand between clients and the broker: the broker registers under the proxy's port."""
        if self.proxy is None:
            self.proxy = Proxy("")
            await self.proxy.start()
        self.proxy.target = f"{HOST}:{self._ports[1]}"
        config = self._broker.config
        config.listen_port = int(self.proxy.address.rpartition(":")[2])
        config.namesrv_addr = self._name_server.address
        await self._broker.registration.register_all()

    async def _stop(self) -> None:
        if self.proxy is not None:
            await self.proxy.stop()
        if self._broker is not None:
            await self._broker.stop()
        await self._name_server.stop()

    def _run(self, work: Any) -> Any:
        assert self._thread is not None, "the broker is not started"
        return self._thread.run(work)

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run a function on the broker's loop."""
        assert self._thread is not None, "the broker is not started"
        return self._thread.call(function, *arguments)

    # --- where it is ---

    @property
    def name_servers(self) -> str:
        """What clients are given."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def broker_address(self) -> str:
        """Where clients reach the broker; that of the proxy if there is one."""
        if self.proxy is not None:
            return self.proxy.address
        return f"{HOST}:{self._ports[1]}"

    @property
    def broker(self) -> Any:
        """The broker object itself; touch it only through ``call``."""
        return self._broker

    def client(self, **options: Any) -> Client:
        """A client of this broker, not started: ``async with broker.client() as mq``."""
        return Client(self.name_servers, **options)

    # --- restarts ---

    def stop_broker(self) -> None:
        """Stop the broker in order; the NameServer goes on and the store stays."""
        self._run(self._broker.stop())

    def kill_broker(self) -> None:
        """End the broker as a crash would: no farewell, connections reset."""
        self._run(self._kill())

    async def _kill(self) -> None:
        broker = self._broker
        for server in (broker.server, broker.fast_server):
            for connection in list(server.connections):
                connection.abort()
        await broker.stop()

    def start_broker(self) -> None:
        """Start it again on the same store and the same port."""
        self._run(self._start_broker())

    def stop_name_server(self) -> None:
        """Stop the NameServer; the broker goes on."""
        self._run(self._name_server.stop())

    # --- what it holds ---

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Everything stored in a topic, by queue and offset."""
        records: list[MessageExt] = self.call(self._read, topic)
        return [ReceivedMessage(record) for record in records]

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        assert self._thread is not None, "the broker is not started"
        return self._thread.loop

    async def _read_there(self, topic: str) -> list[MessageExt]:
        return self._read(topic)

    def _read(self, topic: str) -> list[MessageExt]:
        store = self._broker.store
        config = self._broker.topics.find(topic)
        if config is None:
            return []
        found: list[MessageExt] = []
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            offset = store.min_offset(topic, queue_id)
            end = store.max_offset(topic, queue_id)
            while offset < end:
                result = store.get(topic, queue_id, offset, READ_COUNT, max_bytes=READ_BYTES, warmed=True)
                if not result.count:
                    break
                for piece in result.slices:
                    found += decode_records(bytes(piece))
                offset = result.next_offset
        for record in found:
            record.broker_name = self._broker.config.broker_name
        return found

    def wait(self, topic: str, count: int = 1, timeout: float = 5.0) -> list[ReceivedMessage]:
        """Block until a topic holds ``count`` messages; AssertionError when it does not in time."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.messages(topic)
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"topic {topic!r} holds {len(found)} of {count} messages after {timeout} s"
                )
            time.sleep(CHECK_INTERVAL_S)

    async def wait_for(self, topic: str, count: int = 1, timeout: float = 5.0) -> list[ReceivedMessage]:
        """As ``wait``, without blocking the caller's loop."""
        deadline = time.monotonic() + timeout
        while True:
            found = [ReceivedMessage(record) for record in await hop(self._loop, self._read_there(topic))]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"topic {topic!r} holds {len(found)} of {count} messages after {timeout} s"
                )
            await asyncio.sleep(CHECK_INTERVAL_S)

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Turn the broker's clock forward: delayed messages, retries and checks that are due happen now.

        Clients count as alive in the time that is skipped.
        """
        self.call(self._advance, seconds)

    def _advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        now_ms = self.clock.now_ms()
        broker = self._broker
        for server in (broker.server, broker.fast_server):
            for connection in server.connections:
                connection.last_active_ms = now_ms
        for connection in broker.client.connections:
            connection.last_active_ms = now_ms
        for group in broker.producers.groups().values():
            for info in group.values():
                info.last_update_ms = now_ms
        for consumers in broker.consumers:
            for info in consumers.members.values():
                info.last_update_ms = now_ms
        for locks in broker.locks._groups.values():
            for lock in locks.values():
                lock.renewed_ms = now_ms

    # --- faults ---

    @contextmanager
    def fault(
        self,
        request: str | int,
        *,
        drop: bool = False,
        delay: float = 0.0,
        error: int | None = None,
        close: bool = False,
        remark: str = "injected fault",
        times: int = FOREVER,
    ) -> Iterator[Fault]:
        """While inside: requests of a kind (``"send"``, ``"pull"``, a code) are dropped, late, or refused."""
        made = Fault(
            tuple(codes_of(request)),
            drop=drop,
            delay_s=delay,
            error=error,
            remark=remark,
            times=times,
            close=close,
        )
        assert self._faults is not None
        faults = self._faults
        self.call(faults.add, made)
        try:
            yield made
        finally:
            self.call(faults.remove, made)
