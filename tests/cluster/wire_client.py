"""Raw requests to a running broker, for tests: what a client would send, field by field."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig
from cometmq.clock import now_ms
from cometmq.net.client import RemotingClient
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import PullMessageHeader, SendMessageV2Header
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records
from cometmq.testing.local_broker import ANY_DISK

COMMIT_LOG_FILE_SIZE = 16 * 1024 * 1024
CONSUME_QUEUE_FILE_SIZE = 60_000
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


def broker_config(store: Path, **settings: Any) -> BrokerConfig:
    """A small broker on loopback with free ports."""
    values: dict[str, Any] = {
        "broker_name": "broker-a",
        "broker_cluster_name": "C1",
        "broker_ip1": "127.0.0.1",
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "store_path_root_dir": str(store),
        "mapped_file_size_commit_log": COMMIT_LOG_FILE_SIZE,
        "mapped_file_size_consume_queue": CONSUME_QUEUE_FILE_SIZE,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
        "system_properties": dict(ANY_DISK),
    }
    return BrokerConfig(**{**values, **settings})


@asynccontextmanager
async def running_broker(store: Path, **settings: Any) -> AsyncIterator[tuple[Broker, WireClient]]:
    """A real broker, in process, and a client that talks to it."""
    clock = settings.pop("now_ms", now_ms)
    broker = Broker(broker_config(store, **settings), now_ms=clock)
    await broker.start()
    client = WireClient(broker.address)
    try:
        yield broker, client
    finally:
        await client.close()
        await broker.stop()


async def until(condition: Callable[[], Any], *, limit_s: float = 20.0) -> Any:
    """Wait for a condition to hold; its value."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class WireClient:
    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RemotingClient()

    async def close(self) -> None:
        await self.client.close()

    async def call(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        address: str | None = None,
        timeout_ms: int = 20_000,
        **changes: Any,
    ) -> RemotingCommand:
        command = RemotingCommand(code=int(code), ext_fields=fields, body=body, **changes)
        return await self.client.invoke(address or self.address, command, timeout_ms)

    async def send(
        self,
        topic: str,
        body: bytes = b"hello",
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        version: int = 407,
        oneway: bool = False,
        **fields: Any,
    ) -> RemotingCommand:
        command = RemotingCommand.request(code, send_header(topic, **fields), body)
        command.version = version
        if oneway:
            command.flag = 2
            await self.client.invoke_oneway(self.address, command)
            return command
        return await self.client.invoke(self.address, command, 20_000)

    async def pull(self, topic: str, queue_offset: int = 0, **fields: Any) -> RemotingCommand:
        timeout_ms = fields.pop("timeout_ms", 20_000)
        command = RemotingCommand.request(
            RequestCode.PULL_MESSAGE, pull_header(topic, queue_offset, **fields)
        )
        return await self.client.invoke(self.address, command, timeout_ms)

    async def messages(self, topic: str, queue_offset: int = 0, **fields: Any) -> list[MessageExt]:
        response = await self.pull(topic, queue_offset, **fields)
        assert response.code == 0, response
        return decode_records(response.body)


def send_header(topic: str, **fields: Any) -> SendMessageV2Header:
    values: dict[str, Any] = {
        "producer_group": "PG",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": "WAIT\x01true",
    }
    return SendMessageV2Header(topic=topic, **{**values, **fields})


def pull_header(topic: str, queue_offset: int, **fields: Any) -> PullMessageHeader:
    values: dict[str, Any] = {
        "consumer_group": "CG",
        "queue_id": 0,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "subscription": "*",
        "sub_version": 0,
    }
    return PullMessageHeader(topic=topic, queue_offset=queue_offset, **{**values, **fields})
