"""Requests of a client to brokers, one typed method per request code.

Addresses are those of brokers; topics and groups are wire names. Each method raises ``BrokerError`` for an error
code it has no other meaning for. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from cometmq.client.name_servers import checked
from cometmq.client.queue import Queue
from cometmq.errors import BrokerError
from cometmq.protocol.bodies.group import ConsumerIdList
from cometmq.protocol.bodies.heartbeat import CheckClientRequestBody, SubscriptionData
from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    ConsumerGroupHeader,
    ConsumerSendMsgBackHeader,
    EndTransactionHeader,
    Header,
    OffsetResponseHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)

NO_OFFSET = -1
OFFSET_TIMEOUT_MS = 5_000
SEND_BACK_TIMEOUT_MS = 5_000
LOCK_TIMEOUT_MS = 1_000
REQUEST_TIMEOUT_MS = 3_000

Invoke = Callable[[str, RemotingCommand, int], Awaitable[RemotingCommand]]
InvokeOneway = Callable[[str, RemotingCommand], Awaitable[None]]

PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class PullAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a pull brought; ``body`` holds the records."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes | bytearray | memoryview


class BrokerCalls:
    """Bound to the two ways of calling: with an answer, and one-way."""

    def __init__(self, invoke: Invoke, invoke_oneway: InvokeOneway) -> None:
        self._invoke = invoke
        self._invoke_oneway = invoke_oneway

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        accept: tuple[int, ...] = (),
    ) -> RemotingCommand:
        """Any request; BrokerError unless the answer is success or one of ``accept``."""
        response = await self._invoke(address, RemotingCommand.request(code, header, body), timeout_ms)
        return checked(response, address, *accept)

    async def call_oneway(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> None:
        await self._invoke_oneway(address, RemotingCommand.request(code, header, body, oneway=True))

    # --- reading ---

    async def pull(self, address: str, header: PullMessageHeader, timeout_ms: int) -> PullAnswer:
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        response = await self._invoke(address, command, timeout_ms)
        if response.code not in PULL_CODES:
            raise BrokerError(response.code, response.remark, address)
        fields = PullMessageResponseHeader.decode(response.ext_fields)
        return PullAnswer(
            response.code,
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id,
            response.body,
        )

    async def max_offset(self, address: str, queue: Queue) -> int:
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, _queue_header(queue))

    async def min_offset(self, address: str, queue: Queue) -> int:
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, _queue_header(queue))

    async def search_offset(self, address: str, queue: Queue, timestamp_ms: int) -> int:
        header = SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, broker_name=queue.broker_name
        )
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, address: str, code: int, header: Header) -> int:
        response = await self.call(address, code, header, timeout_ms=OFFSET_TIMEOUT_MS)
        offset = OffsetResponseHeader.decode(response.ext_fields).offset
        return NO_OFFSET if offset is None else offset

    # --- offsets of groups ---

    async def query_offset(self, address: str, group: str, queue: Queue) -> int:
        """The committed offset, or NO_OFFSET when the group has none."""
        header = QueryConsumerOffsetHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        response = await self.call(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            timeout_ms=OFFSET_TIMEOUT_MS,
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return NO_OFFSET
        offset = OffsetResponseHeader.decode(response.ext_fields).offset
        return NO_OFFSET if offset is None else offset

    async def update_offset(
        self, address: str, group: str, queue: Queue, offset: int, *, confirmed: bool = False
    ) -> None:
        """Commit; with ``confirmed`` it returns when the broker has answered."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        if confirmed:
            await self.call(address, code, header, timeout_ms=OFFSET_TIMEOUT_MS)
        else:
            await self.call_oneway(address, code, header)

    # --- membership ---

    async def heartbeat(self, address: str, body: bytes) -> int:
        """Returns the version of the broker."""
        response = await self.call(address, RequestCode.HEART_BEAT, body=body)
        return response.version

    async def unregister(
        self, address: str, client_id: str, *, producer: str | None = None, consumer: str | None = None
    ) -> None:
        header = UnregisterClientHeader(client_id=client_id, producer_group=producer, consumer_group=consumer)
        await self.call(address, RequestCode.UNREGISTER_CLIENT, header)

    async def check_subscription(
        self, address: str, client_id: str, group: str, subscription: SubscriptionData
    ) -> None:
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Client ids of a group; empty when nobody is registered."""
        header = ConsumerGroupHeader(consumer_group=group)
        response = await self.call(
            address,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            header,
            accept=(ResponseCode.SYSTEM_ERROR,),
        )
        if response.code != ResponseCode.SUCCESS or not response.body:
            return []
        return ConsumerIdList.decode(response.body).consumer_id_list

    # --- ordered consumption ---

    async def lock(self, address: str, group: str, client_id: str, queues: Iterable[Queue]) -> set[Queue]:
        """The queues that this client now holds."""
        body = LockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        response = await self.call(
            address, RequestCode.LOCK_BATCH_MQ, body=body.encode(), timeout_ms=LOCK_TIMEOUT_MS
        )
        return set(LockBatchResponseBody.decode(response.body).lock_ok_mq_set)

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Iterable[Queue], *, confirmed: bool = False
    ) -> None:
        body = UnlockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=list(queues)).encode()
        if confirmed:
            await self.call(address, RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS)
        else:
            await self.call_oneway(address, RequestCode.UNLOCK_BATCH_MQ, body=body)

    # --- retries and transactions ---

    async def send_back(self, address: str, header: ConsumerSendMsgBackHeader) -> None:
        await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def end_transaction(
        self, address: str, header: EndTransactionHeader, remark: str | None = None
    ) -> None:
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header, oneway=True)
        command.remark = remark
        await self._invoke_oneway(address, command)


def _queue_header(queue: Queue) -> QueueHeader:
    return QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
