"""Connected clients, and requests that are passed on to them: 203, 204, 222, 223, 307, 309, 328. Event loop
only.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.clients import ClientInfo
from cometmq.broker.handlers.admin_topics import NOT_SET
from cometmq.errors import BrokerError, CometMQError, Timeout
from cometmq.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from cometmq.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from cometmq.protocol.codes import (
    VERSION_3_0_7_SNAPSHOT,
    VERSION_3_1_8_SNAPSHOT,
    LanguageCode,
    RequestCode,
    ResponseCode,
    version_name,
)
from cometmq.protocol.command import Buffer, RemotingCommand
from cometmq.protocol.headers import (
    ConsumeMessageDirectlyHeader,
    ConsumerGroupHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ProducerGroupHeader,
    ResetOffsetHeader,
)
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.message_id import parse_offset_message_id

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

RELAY_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000
TO_THE_END = -1  # timestamp that means the end of each queue


def handlers(broker: Broker) -> dict[int, Handler]:
    return {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: partial(get_consumer_connection_list, broker),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: partial(get_producer_connection_list, broker),
        RequestCode.GET_ALL_PRODUCER_INFO: partial(get_all_producer_info, broker),
        RequestCode.GET_CONSUMER_RUNNING_INFO: partial(get_consumer_running_info, broker),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: partial(consume_message_directly, broker),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: partial(reset_offset, broker),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: partial(get_consumer_status, broker),
    }


# --- who is connected ---


def get_consumer_connection_list(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    name = ConsumerGroupHeader.decode(request.ext_fields).consumer_group
    group = broker.consumers.find(name)
    if group is None:
        raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    body = ConsumerConnection(
        connection_set=[_client_connection(info) for info in group.members.values()],
        consume_from_where=group.consume_from_where,
        consume_type=group.consume_type,
        message_model=group.message_model,
        subscription_table=group.subscriptions,
    )
    return request.response(body=body.encode())


def _client_connection(info: ClientInfo) -> ClientConnection:
    return ClientConnection(
        client_addr=info.connection.peer,
        client_id=info.client_id,
        language=info.language.name,
        version=info.version,
    )


def get_producer_connection_list(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    name = ProducerGroupHeader.decode(request.ext_fields).producer_group
    members = broker.producers.members(name)
    if not members:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    body = ProducerConnection(connection_set=[_client_connection(info) for info in members])
    return request.response(body=body.encode())


def get_all_producer_info(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    data = {
        group: [_producer_info(info) for info in members.values()]
        for group, members in broker.producers.groups().items()
    }
    return request.response(body=ProducerTableInfo(data=data).encode())


def _producer_info(info: ClientInfo) -> ProducerInfo:
    return ProducerInfo(
        client_id=info.client_id,
        language=info.language.name,
        last_update_timestamp=info.last_update_ms,
        remote_ip=f"/{info.connection.peer}",
        version=info.version,
    )


# --- passed on to one consumer, whose answer is passed back ---


async def get_consumer_running_info(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = ConsumerRunningInfoHeader.decode(request.ext_fields)
    return await _relay(broker, request, header.consumer_group, header.client_id)


async def consume_message_directly(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = ConsumeMessageDirectlyHeader.decode(request.ext_fields)
    client_id = header.client_id or "null"
    _online(broker, header.consumer_group, client_id)
    physical_offset = parse_offset_message_id(header.msg_id or "").physical_offset
    record = broker.store.read_record(physical_offset)
    if record is None:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {physical_offset}")
    fields = {"brokerName": broker.config.broker_name}
    return await _relay(broker, request, header.consumer_group, client_id, fields=fields, body=bytes(record))


def _online(broker: Broker, group: str, client_id: str) -> ClientInfo:
    info = broker.consumers.member(group, client_id)
    if info is None:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    if info.version < VERSION_3_1_8_SNAPSHOT:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client_id}> Version <{version_name(info.version)}> too low to finish, "
            "please upgrade it to V3_1_8_SNAPSHOT",
        )
    return info


async def _relay(
    broker: Broker,
    request: RemotingCommand,
    group: str,
    client_id: str,
    *,
    fields: dict[str, str] | None = None,
    body: Buffer = b"",
) -> RemotingCommand:
    """Send the request's fields to a consumer; its answer goes back as it is, with the opaque of the
    request.
    """
    info = _online(broker, group, client_id)
    passed_on = RemotingCommand(
        code=request.code, ext_fields={**(request.ext_fields or {}), **(fields or {})}, body=body
    )
    try:
        answer = await info.connection.request(passed_on, RELAY_TIMEOUT_MS)
    except Timeout as error:
        raise BrokerError(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
        ) from error
    except CometMQError as error:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
        ) from error
    response = request.response(answer.code, answer.remark, body=answer.body)
    response.ext_fields = answer.ext_fields
    return response


# --- offsets that live in the consumers ---


def reset_offset(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Tell the consumers of a group where to go on. They commit the offsets; the broker's own table stays."""
    header = ResetOffsetHeader.decode(request.ext_fields)
    log.info(
        "reset of offsets group=%s topic=%s timestamp=%d force=%s by=%s",
        header.group, header.topic, header.timestamp, header.is_force, connection.peer,
    )  # fmt: skip
    table = ResetOffsetBody(offset_table=_new_offsets(broker, header))
    group = broker.consumers.find(header.group)
    if group is None:
        raise BrokerError(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp}",
        )
    for_cpp = request.language is LanguageCode.CPP
    order = RemotingCommand.request(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        ResetOffsetHeader(topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=False),
        table.encode_for_cpp() if for_cpp else table.encode(),
        oneway=True,
    )
    for info in group.members.values():
        _refuse_old_client(info)
        info.connection.send(order)
    return request.response(remark=NOT_SET, body=table.encode())


def _new_offsets(broker: Broker, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
    config = broker.topics.find(header.topic)
    if config is None:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
        )
    offsets: dict[MessageQueue, int] = {}
    for queue_id in range(config.write_queue_nums):
        current = broker.offsets.query(header.group, header.topic, queue_id)
        if current < 0:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        wanted = _offset_at(broker, header.topic, queue_id, header.timestamp)
        queue = MessageQueue(header.topic, broker.config.broker_name, queue_id)
        offsets[queue] = wanted if header.is_force or wanted < current else current
    return offsets


def _offset_at(broker: Broker, topic: str, queue_id: int, timestamp_ms: int) -> int:
    if timestamp_ms == TO_THE_END:
        return max(broker.store.max_offset(topic, queue_id), 0)
    return max(broker.store.offset_by_time(topic, queue_id, timestamp_ms), 0)


def _refuse_old_client(info: ClientInfo) -> None:
    if info.version < VERSION_3_0_7_SNAPSHOT:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"the client does not support this feature. version={version_name(info.version)}",
        )


async def get_consumer_status(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    """Ask the consumers of a group, or the one named, how far they are. Who does not answer is left out."""
    header = ConsumerStatusHeader.decode(request.ext_fields)
    group = broker.consumers.find(header.group)
    if group is None:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
        )
    members = list(group.members.values())
    for info in members:
        _refuse_old_client(info)
    asked = [info for info in members if not header.client_addr or info.client_id == header.client_addr]
    answers = await asyncio.gather(*(_status_of(info, header) for info in asked))
    table = {
        info.client_id: answer for info, answer in zip(asked, answers, strict=True) if answer is not None
    }
    return request.response(remark=NOT_SET, body=GetConsumerStatusBody(consumer_table=table).encode())


async def _status_of(info: ClientInfo, header: ConsumerStatusHeader) -> dict[MessageQueue, int] | None:
    question = RemotingCommand.request(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        ConsumerStatusHeader(topic=header.topic, group=header.group),
    )
    try:
        answer = await info.connection.request(question, STATUS_TIMEOUT_MS)
        if answer.code == ResponseCode.SUCCESS and answer.body:
            return GetConsumerStatusBody.decode(answer.body).message_queue_table
    except CometMQError as error:
        log.info("no consumer status group=%s client=%s: %s", header.group, info.client_id, error)
    return None
