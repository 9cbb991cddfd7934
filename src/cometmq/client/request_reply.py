"""Request and reply: a message whose sender waits for the answer of whoever consumes it.

The answer travels to the broker that holds the reply topic, and from there over the requester's own connection, so the
requester must have sent heartbeats to all brokers before. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

from cometmq.client.instance import INNER_PRODUCER, Instance
from cometmq.client.message import ReceivedMessage
from cometmq.client.outgoing import Outbox
from cometmq.client.results import SendResult
from cometmq.client.sender import Sender
from cometmq.errors import ClientError, ProtocolError, RequestTimeout, Timeout
from cometmq.net.connection import Connection
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import ReplyMessageHeader
from cometmq.protocol.host import HostPort
from cometmq.protocol.message import Message, MessageExt
from cometmq.protocol.names import REPLY_TOPIC_SUFFIX
from cometmq.protocol.properties import (
    PROPERTY_ARRIVE_TIME,
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MSG_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    decode_properties,
)

if TYPE_CHECKING:
    from cometmq.client.producer import Producer

log = logging.getLogger(__name__)

REPLY_TYPE = "reply"
REPLY_TIMEOUT_S = 3.0


async def request(
    instance: Instance, producer: Producer, message: Message, timeout_s: float
) -> ReceivedMessage:
    """Send and wait. RequestTimeout when nobody answered in time."""
    correlation_id = str(uuid.uuid4())
    copy = message.copy()
    copy.properties[PROPERTY_CORRELATION_ID] = correlation_id
    copy.properties[PROPERTY_REPLY_TO_CLIENT] = instance.client_id
    copy.properties[PROPERTY_TTL] = str(round(timeout_s * 1000))
    answer = instance.replies.expect(correlation_id)
    try:
        async with asyncio.timeout(timeout_s):
            await _introduce(instance, instance.wire(message.topic))
            await producer.send(copy, timeout=timeout_s)
            return await answer
    except TimeoutError as error:
        if isinstance(error, Timeout):
            raise
        raise RequestTimeout(
            f"no reply to the request in topic {message.topic!r} within {timeout_s:.1f} s; "
            "is a consumer running that replies?"
        ) from None
    finally:
        instance.replies.forget(correlation_id)


async def _introduce(instance: Instance, topic: str) -> None:
    """Every broker must know our connection before a reply can come back over it."""
    await instance.routes.for_sending(topic)
    unknown = [one for one in instance.routes.addresses(masters_only=True) if one not in instance.introduced]
    if unknown:
        await instance.heartbeat()


async def reply(instance: Instance, message: ReceivedMessage, body: bytes) -> SendResult:
    """Answer a request that was consumed."""
    properties = message.properties
    cluster = properties.get(PROPERTY_CLUSTER)
    correlation_id = properties.get(PROPERTY_CORRELATION_ID)
    requester = properties.get(PROPERTY_REPLY_TO_CLIENT)
    if not cluster or not correlation_id or not requester:
        raise ClientError(
            f"{message} is no request (it names no one to reply to); use reply() only for requests"
        )
    answer = Message(cluster + REPLY_TOPIC_SUFFIX, body)
    answer.properties = {
        PROPERTY_MSG_TYPE: REPLY_TYPE,
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_REPLY_TO_CLIENT: requester,
        PROPERTY_TTL: properties.get(PROPERTY_TTL, "3000"),
    }
    outbox = Outbox(instance.settings, instance.unique_ids)
    out = outbox.prepare(answer, answer.topic, instance.now_ms())
    if outbox.wants_compression(out):
        await outbox.compress(out)
    route = await instance.routes.for_sending(answer.topic)
    queue = route.turn.next(route.write_queues)
    sender = Sender(instance, INNER_PRODUCER)
    return await sender.once(queue, out, REPLY_TIMEOUT_S, RequestCode.SEND_REPLY_MESSAGE_V2)


def reply_pushed(instance: Instance, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """PUSH_REPLY_MESSAGE_TO_CLIENT: a broker brings the reply."""
    header = ReplyMessageHeader.decode(command.ext_fields)
    properties = decode_properties(header.properties or "")
    properties[PROPERTY_ARRIVE_TIME] = str(instance.now_ms())
    record = MessageExt(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        flag=header.flag,
        reconsume_times=header.reconsume_times or 0,
        born_timestamp_ms=header.born_timestamp,
        store_timestamp_ms=header.store_timestamp,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
        born_host_bytes=_host(header.born_host),
        store_host_bytes=_host(header.store_host),
        stored_body=bytes(command.body),
        stored_properties=b"",
        _properties=properties,
    )
    if not instance.replies.arrived(ReceivedMessage(record, instance.plain(header.topic))):
        log.info("a reply came too late: correlation_id=%s", properties.get(PROPERTY_CORRELATION_ID))
    return command.response(ResponseCode.SUCCESS)


def _host(text: str) -> bytes:
    try:
        return HostPort.parse(text).encode()
    except ProtocolError:  # the host of a reply is for show only
        return bytes(8)
