"""Messages: find by id or key, see who consumed one, read queues directly."""

from __future__ import annotations

import time

from cometmq.admin.base import AdminBase
from cometmq.client.message import ReceivedMessage
from cometmq.client.queue import Queue
from cometmq.errors import BrokerError, ClientError, CometMQError
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.bodies.running_info import ConsumeMessageDirectlyResult
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import (
    ConsumeMessageDirectlyHeader,
    PullMessageHeader,
    QueryMessageHeader,
    ViewMessageHeader,
)
from cometmq.protocol.message import MessageExt
from cometmq.protocol.message_id import parse_offset_message_id, unique_id_time_ms
from cometmq.protocol.record_cy import decode_records

QUERY_TIMEOUT_MS = 18_000
UNIQUE_QUERY_MAX = 32
LONG_MAX = (1 << 63) - 1
TOOLS_GROUP = "TOOLS_CONSUMER"
DIRECT_TIMEOUT_MS = 12_000


class MessageAdmin(AdminBase):
    """Operations on single messages."""

    def _received(self, record: MessageExt, broker_name: str) -> ReceivedMessage:
        record.broker_name = broker_name
        return ReceivedMessage(record, self._instance.plain(record.topic))

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """One message by either kind of id; a unique id needs the topic."""
        try:
            found = await self._by_offset_id(message_id)
        except (CometMQError, ValueError):
            found = None
        if found is None and topic is not None:
            copies = await self.by_unique_id(topic, message_id)
            found = copies[0] if copies else None
        if found is None:
            hint = "" if topic else "; if this is the id the producer gave, name its topic too"
            raise ClientError(f"no message {message_id!r} was found{hint}")
        return found

    async def _by_offset_id(self, message_id: str) -> ReceivedMessage | None:
        where = parse_offset_message_id(message_id)
        known = {address: name for name, address in (await self.masters()).items()}
        address = str(where.store_host)
        if address not in known:
            return None  # a unique id read as an offset id: nobody is there
        header = ViewMessageHeader(offset=where.physical_offset)
        response = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        return self._received(decode_records(response.body)[0], known[address])

    async def by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Every stored copy of a message, the first stored first."""
        now_ms = time.time_ns() // 1_000_000
        try:
            begin_ms = unique_id_time_ms(unique_id, now_ms) - 1000
        except CometMQError:
            begin_ms = 0
        found = await self._query(topic, unique_id, UNIQUE_QUERY_MAX, begin_ms, LONG_MAX, unique=True)
        own = [message for message in found if message.record.unique_id == unique_id]
        return sorted(own, key=lambda message: message.record.store_timestamp_ms)

    async def by_key(
        self, topic: str, key: str, *, max_count: int = 64, begin_ms: int = 0, end_ms: int = LONG_MAX
    ) -> list[ReceivedMessage]:
        """Messages with a key, oldest first."""
        found = await self._query(topic, key, max_count, begin_ms, end_ms, unique=False)
        own = [message for message in found if key in message.keys]
        return sorted(own, key=lambda message: message.record.store_timestamp_ms)

    async def _query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[ReceivedMessage]:
        wire = self._instance.wire(topic)
        header = QueryMessageHeader(
            topic=wire,
            key=key,
            max_num=max_count,
            begin_timestamp=max(0, begin_ms),
            end_timestamp=end_ms,
            unique_key_query=unique,
        )

        async def one(name: str, address: str) -> list[ReceivedMessage]:
            response = await self._call(
                address,
                RequestCode.QUERY_MESSAGE,
                header,
                accept=(ResponseCode.QUERY_NOT_FOUND,),
                timeout_ms=QUERY_TIMEOUT_MS,
            )
            if response.code != 0 or not response.body:
                return []
            return [self._received(record, name) for record in decode_records(response.body)]

        found = await self._from_all(await self._masters_of_topic(wire), one)
        return [message for listed in found.values() for message in listed if message.record.topic == wire]

    async def read(self, queue: Queue, offset: int, max_count: int = 32) -> tuple[list[ReceivedMessage], int]:
        """Messages of a queue from an offset on, without any group; and the offset to go on with."""
        wire = Queue(self._instance.wire(queue.topic), queue.broker_name, queue.queue_id)
        masters = await self._masters_of_topic(wire.topic)
        address = masters.get(queue.broker_name)
        if address is None:
            raise ClientError(f"broker {queue.broker_name!r} has no master with topic {queue.topic!r}")
        header = PullMessageHeader(
            consumer_group=TOOLS_GROUP,
            topic=wire.topic,
            queue_id=wire.queue_id,
            queue_offset=offset,
            max_msg_nums=max_count,
            sys_flag=flags.PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
            broker_name=wire.broker_name,
        )
        await self._instance.start()
        answer = await self._instance.brokers.pull(address, header, QUERY_TIMEOUT_MS)
        records = decode_records(answer.body) if answer.code == 0 else []
        return [self._received(record, queue.broker_name) for record in records], answer.next_offset

    async def consume_directly(
        self, group: str, client_id: str, message_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Have one member of a group handle a message now (by its offset id)."""
        where = parse_offset_message_id(message_id)
        known = {address: name for name, address in (await self.masters()).items()}
        address = str(where.store_host)
        header = ConsumeMessageDirectlyHeader(
            consumer_group=self._instance.wire(group),
            client_id=client_id,
            msg_id=message_id,
            broker_name=known.get(address),
        )
        if address not in known:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"no master listens at {address}", address)
        response = await self._call(
            address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_ms=DIRECT_TIMEOUT_MS
        )
        return ConsumeMessageDirectlyResult.decode(response.body)
