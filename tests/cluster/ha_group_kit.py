"""Three replicas that elect their master, in this process: real stores, real connections, controllers in threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ha_kit import digest
from wire_client import WireClient, broker_config, until

from cometmq import Client, Message
from cometmq.broker.broker import Broker
from cometmq.client.producer import Producer
from cometmq.client.results import SendResult
from cometmq.errors import CometMQError
from cometmq.store.config import StoreConfig
from cometmq.store.model import StoreMessage
from cometmq.store.store import MessageStore
from cometmq.testing.group_processes import GroupProcesses, free_ports

LOG_FILE_SIZE = 256 * 1024
VOTERS = 3
QUICK = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "max_message_size": 65536,
    "controller_election_timeout_ms": "300..600",
    "controller_heartbeat_ms": 50,
    "ha_session_heartbeat_ms": 100,
    "ha_heartbeat_ms": 50,
    "ha_meta_interval_ms": 50,
}


class Group:
    """The replicas of one group; ``start`` and ``stop`` single ones at will."""

    def __init__(self, directory: Path, replicas: int = 3, **settings: Any) -> None:
        self.directory = directory
        self.settings = settings
        self.ids = list(range(1, replicas + 1))
        self.brokers: dict[int, Broker] = {}
        self._clients: list[WireClient] = []
        ports = free_ports(VOTERS)
        self.peers = ";".join(f"{number}-127.0.0.1:{port}" for number, port in enumerate(ports, 1))

    async def start(self, number: int, **settings: Any) -> Broker:
        values = {
            "broker_name": "G", "broker_id": number, "enable_controller_mode": True,
            "controller_peers": self.peers, "controller_self_id": str(number) if number <= VOTERS else "",
            **QUICK, **self.settings, **settings,
        }  # fmt: skip
        broker = Broker(broker_config(self.directory / f"replica-{number}", **values))
        await broker.start()
        self.brokers[number] = broker
        return broker

    async def stop(self, number: int) -> None:
        await self.brokers.pop(number).stop()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for number in list(self.brokers):
            await self.stop(number)

    @property
    def master(self) -> Broker | None:
        serving = [broker for broker in self.brokers.values() if member(broker).is_serving]
        return serving[0] if len(serving) == 1 else None

    @property
    def followers(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if not member(broker).is_master]

    async def elected(self, in_sync: int | None = None) -> Broker:
        """Wait for a master that serves, with this many replicas in sync (all that run)."""
        wanted = len(self.brokers) if in_sync is None else in_sync

        def ready() -> bool:
            master = self.master
            return master is not None and len(member(master).core.view.sync_set) == wanted

        await until(ready, limit_s=30)
        assert self.master is not None
        return self.master

    def client(self, broker: Broker) -> WireClient:
        found = WireClient(broker.address)
        self._clients.append(found)
        return found

    async def equal(self) -> None:
        """Wait until all logs end at the same place and are confirmed; then they and their queues are the same."""
        stores = [broker.store for broker in self.brokers.values()]
        await until(
            lambda: (
                len({store.max_physical_offset for store in stores}) == 1
                and all(store.dispatched_offset == store.max_physical_offset for store in stores)
            ),
            limit_s=20,
        )
        begin = max(max(store.min_physical_offset, 0) for store in stores)
        assert len({digest(store, begin) for store in stores}) == 1


def member(broker: Broker) -> Any:
    assert broker.group is not None
    return broker.group.member


@asynccontextmanager
async def running_group(directory: Path, replicas: int = 3, **settings: Any) -> AsyncIterator[Group]:
    group = Group(directory, replicas, **settings)
    try:
        for number in group.ids:
            await group.start(number)
        yield group
    finally:
        await group.close()


# -- groups of processes ----------------------------------------------------------------------------------------------


async def until_async(condition: Callable[[], Awaitable[bool]], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not await condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.05)


async def in_sync(client: Client, group: GroupProcesses) -> int:
    """Wait until a master has every replica in sync; its number."""
    found: list[int] = []

    async def ready() -> bool:
        for number in group.ids:
            try:
                status = await client.admin.ha_status(group.address(number))
            except CometMQError:
                continue
            if (
                status is not None
                and status["standing"] == "SERVING"
                and len(status["syncSet"]) == len(group.ids)
            ):
                found.append(number)
                return True
        return False

    await until_async(ready)
    return found[-1]


async def sent_message(producer: Producer, number: int) -> tuple[SendResult, bytes]:
    """Send until it is confirmed; the first message waits for the route too."""
    body = b"message %d" % number
    for attempt in range(20):
        try:
            return await producer.send(Message("T", body)), body
        except CometMQError:
            if attempt == 19:
                raise
            await asyncio.sleep(0.2)
    raise AssertionError("not reached")


def append_alone(root: Path, file_size: int = 1 << 20) -> bytes:
    """Records in the log of a dead replica, over the end of a file, that no other replica has."""
    body = b"nobody else has this" * 1000
    store = MessageStore(
        StoreConfig(
            store_path_root_dir=root,
            mapped_file_size_commit_log=file_size,
            mapped_file_size_consume_queue=6000 * 20,
            max_hash_slot_num=10_000,
            max_index_num=40_000,
        )
    )
    store.open()
    for _ in range(file_size // len(body) + 10):
        assert store.put(StoreMessage("T", 0, body)).ok
    store.kill_for_test()
    return body


async def drain(client: Client, producer: Producer) -> dict[tuple[int, int], bytes]:
    """Every message that can be read: (queue id, queue offset) -> body."""
    found: dict[tuple[int, int], bytes] = {}
    for queue in await producer.queues("T"):
        offset = 0
        while True:
            messages, following = await client.admin.read(queue, offset, 100)
            found.update(
                {(queue.queue_id, message.record.queue_offset): message.body for message in messages}
            )
            if following <= offset:
                break
            offset = following
    return found
