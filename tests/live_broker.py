"""A real broker in this process and real clients, for tests over the wire.

``async with live_broker(tmp_path) as live:`` starts it on free ports; ``live.client("c1")`` is a client with its own
connection that remembers what the broker asked of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig
from cometmq.clock import now_ms as wall_clock
from cometmq.net.client import RemotingClient
from cometmq.net.connection import Connection
from cometmq.protocol.bodies.heartbeat import (
    CLUSTERING,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_PASSIVELY,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from cometmq.protocol.codes import VERSION, LanguageCode, RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    CreateTopicHeader,
    Header,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    SendMessageHeader,
    SendMessageV2Header,
    UpdateConsumerOffsetHeader,
)
from cometmq.testing.local_broker import ANY_DISK

BROKER_NAME = "broker-a"
CLUSTER = "C1"
WAIT_S = 5.0
PULL_SUBSCRIPTION = 4  # sys flag: the subscription is in the header


class ShiftedClock:
    """The wall clock, moved by hand."""

    def __init__(self, shift_ms: int = 0) -> None:
        self.shift_ms = shift_ms

    def __call__(self) -> int:
        return wall_clock() + self.shift_ms


def small_config(directory: Path, **settings: Any) -> BrokerConfig:
    """Small files, free ports, loopback."""
    defaults: dict[str, Any] = {
        "broker_cluster_name": CLUSTER,
        "broker_name": BROKER_NAME,
        "broker_ip1": "127.0.0.1",
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "store_path_root_dir": str(directory / "store"),
        "mapped_file_size_commit_log": 4 << 20,
        "mapped_file_size_consume_queue": 20 * 1000,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
        "system_properties": dict(ANY_DISK),
    }
    return BrokerConfig(**{**defaults, **settings})


class LiveClient:
    """One client of the broker. ``asked`` are the requests it got from the broker, oldest first."""

    def __init__(
        self, address: str, client_id: str, answer: Callable[[RemotingCommand], Any] | None = None
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.asked: list[RemotingCommand] = []
        self._answer = answer
        self.remoting = RemotingClient(fallback=self._asked)

    def _asked(self, connection: Connection, request: RemotingCommand) -> Any:
        self.asked.append(request)
        return self._answer(request) if self._answer is not None else None

    def codes_asked(self) -> list[int]:
        return [request.code for request in self.asked]

    async def call(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        version: int = VERSION,
        language: LanguageCode = LanguageCode.JAVA,
        fields: dict[str, str] | None = None,
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, header, body)
        request.version, request.language = version, language
        if fields is not None:
            request.ext_fields = fields
        return await self.remoting.invoke(self.address, request, 10_000)

    async def heartbeat(
        self,
        group: str | None = None,
        *topics: str,
        producer: str | None = None,
        sub_version: int = 1,
        version: int = VERSION,
        **consumer: Any,
    ) -> RemotingCommand:
        data = HeartbeatData(client_id=self.client_id)
        if group is not None:
            data.consumer_data_set.append(consumer_data(group, *topics, sub_version=sub_version, **consumer))
        if producer is not None:
            data.producer_data_set.append(ProducerData(group_name=producer))
        return await self.call(RequestCode.HEART_BEAT, body=data.encode(), version=version)

    async def send(
        self, topic: str, queue_id: int = 0, body: bytes = b"hello", **header: Any
    ) -> RemotingCommand:
        values: dict[str, Any] = {
            "producer_group": "PG",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "sys_flag": 0,
            "born_timestamp": wall_clock(),
            "flag": 0,
        }
        fields = SendMessageHeader(topic=topic, queue_id=queue_id, **{**values, **header})
        v2 = SendMessageV2Header(**{name: getattr(fields, name) for name in fields.__struct_fields__})
        return await self.call(RequestCode.SEND_MESSAGE_V2, v2, body)

    async def pull(
        self, group: str, topic: str, queue_id: int = 0, offset: int = 0, **header: Any
    ) -> RemotingCommand:
        values: dict[str, Any] = {
            "max_msg_nums": 32,
            "sys_flag": PULL_SUBSCRIPTION,
            "commit_offset": 0,
            "suspend_timeout_millis": 0,
            "subscription": "*",
            "sub_version": 0,
        }
        fields = PullMessageHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, queue_offset=offset, **{**values, **header}
        )
        return await self.call(RequestCode.PULL_MESSAGE, fields)

    async def create_topic(
        self, topic: str, queues: int = 4, *, perm: int = 6, sys_flag: int = 0
    ) -> RemotingCommand:
        header = CreateTopicHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=sys_flag,
        )
        return await self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> RemotingCommand:
        header = UpdateConsumerOffsetHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        return await self.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def committed(self, group: str, topic: str, queue_id: int = 0) -> RemotingCommand:
        header = QueryConsumerOffsetHeader(consumer_group=group, topic=topic, queue_id=queue_id)
        return await self.call(RequestCode.QUERY_CONSUMER_OFFSET, header)

    async def close(self) -> None:
        await self.remoting.close()


def consumer_data(group: str, *topics: str, sub_version: int = 1, **consumer: Any) -> ConsumerData:
    values: dict[str, Any] = {
        "consume_type": CONSUME_PASSIVELY,
        "message_model": CLUSTERING,
        "consume_from_where": CONSUME_FROM_LAST_OFFSET,
    }
    subscriptions = [
        SubscriptionData(topic=topic, sub_string="*", sub_version=sub_version) for topic in topics
    ]
    return ConsumerData(group_name=group, **{"subscription_data_set": subscriptions, **values, **consumer})


class LiveBroker:
    def __init__(self, broker: Broker, clock: ShiftedClock) -> None:
        self.broker = broker
        self.clock = clock
        self._clients: list[LiveClient] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.config.listen_port}"

    @property
    def fast_address(self) -> str:
        return f"127.0.0.1:{self.broker.config.listen_port - 2}"

    def client(
        self,
        client_id: str = "c1",
        answer: Callable[[RemotingCommand], Any] | None = None,
        *,
        fast_port: bool = False,
    ) -> LiveClient:
        client = LiveClient(self.fast_address if fast_port else self.address, client_id, answer)
        self._clients.append(client)
        return client

    async def close_clients(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))


@asynccontextmanager
async def live_broker(
    directory: Path, *, clock: ShiftedClock | None = None, **settings: Any
) -> AsyncIterator[LiveBroker]:
    clock = clock or ShiftedClock()
    broker = Broker(small_config(directory, **settings), now_ms=clock)
    await broker.start()
    live = LiveBroker(broker, clock)
    try:
        yield live
    finally:
        await live.close_clients()
        await broker.stop()


async def eventually(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
    """Wait until a condition holds, at most ``timeout_s``."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)
