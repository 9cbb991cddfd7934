"""SEND_REPLY_MESSAGE (324) and its V2 (325): a reply goes straight to the requester's connection.

The requester is a producer that said its client id in a heartbeat. The reply is pushed to it and, with
storeReplyMessageEnable, stored as well. Event loop only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.copies import properties_text
from cometmq.broker.handlers.send import (
    Refusal,
    answer,
    answer_fields,
    check,
    choose_queue,
    region_fields,
    stored_properties,
    sys_flag_of,
)
from cometmq.errors import CometMQError
from cometmq.protocol import properties as names
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import ReplyMessageHeader, SendMessageHeader
from cometmq.protocol.properties import decode_properties
from cometmq.store.model import PutResult, StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

PUSH_TIMEOUT_MS = 10_000


def handlers(broker: Broker) -> dict[int, Handler]:
    async def reply(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        return await send_reply(broker, connection, command)

    return {RequestCode.SEND_REPLY_MESSAGE: reply, RequestCode.SEND_REPLY_MESSAGE_V2: reply}


async def send_reply(broker: Broker, connection: Connection, command: RemotingCommand) -> RemotingCommand:
    header = SendMessageHeader.decode_any(command)
    topic = check(broker, header, connection.peer)
    if isinstance(topic, Refusal):
        return answer(broker, command, topic)
    body = bytes(command.body)  # kept across the wait: the receive buffer is used again
    properties = decode_properties(header.properties or "")
    queue_id = choose_queue(header.queue_id, topic)
    problem = await _push(broker, connection, header, properties, queue_id, body)
    result = None
    if broker.config.store_reply_message_enable:
        message = StoreMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=body,
            properties=stored_properties(
                {**properties, names.PROPERTY_CLUSTER: broker.config.broker_cluster_name}
            ),
            flag=header.flag,
            sys_flag=sys_flag_of(header.sys_flag, topic),
            born_timestamp_ms=header.born_timestamp,
            born_host=connection.born_host,
            store_host=broker.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        result = _store(broker, message)
    return _answer(broker, command, problem, result, queue_id)


def _store(broker: Broker, message: StoreMessage) -> PutResult:
    result = broker.store.put(message)
    if result.ok:
        broker.counters.puts += 1
        broker.counters.put_bytes += result.size
        broker.stats.count_put(message.topic, message.queue_id, 1, result.size)
    else:
        broker.counters.puts_failed += 1
    return result


async def _push(
    broker: Broker,
    connection: Connection,
    header: SendMessageHeader,
    properties: dict[str, str],
    queue_id: int,
    body: bytes,
) -> str | None:
    """Hand the reply to the requester; why that failed, or None."""
    client_id = properties.get(names.PROPERTY_REPLY_TO_CLIENT)
    if not client_id:
        return f"reply message properties[{names.PROPERTY_REPLY_TO_CLIENT}] is null"
    requester = broker.producers.find_client(client_id)
    if requester is None or requester.connection.closed:
        return f"push reply message fail, channel of <{client_id}> not found."
    now = broker.now_ms()
    pushed = {**properties, names.PROPERTY_PUSH_REPLY_TIME: str(now)}
    push = ReplyMessageHeader(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        properties=properties_text(pushed).decode("utf-8", "surrogatepass"),
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
        born_host=connection.peer,
        store_host=broker.address,
        store_timestamp=now,
    )
    request = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, body)
    try:
        response = await requester.connection.request(request, PUSH_TIMEOUT_MS)
    except CometMQError:
        return f"push reply message to {client_id}fail."
    return None if response.code == ResponseCode.SUCCESS else f"push reply message to {client_id}fail."


def _answer(
    broker: Broker, command: RemotingCommand, problem: str | None, result: PutResult | None, queue_id: int
) -> RemotingCommand:
    response = command.response(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, problem)
    if result is not None and result.ok:
        response.ext_fields = answer_fields(broker, result, queue_id)
    else:
        response.ext_fields = {
            **region_fields(broker),
            "msgId": "0",
            "queueId": str(queue_id),
            "queueOffset": "0",
        }
    return response
