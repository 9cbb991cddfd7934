"""Requests that brokers send to a client: rebalance now, reset offsets, tell your state, take this reply.

One function per request code; ``install`` puts them into the instance's table. Loop thread only.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from cometmq.client.consumer.push import Consumer
from cometmq.client.consumer.running_info import consume_directly, consumer_status, running_info
from cometmq.client.instance import Instance
from cometmq.client.request_reply import reply_pushed
from cometmq.client.transactions import check_requested
from cometmq.net.connection import Connection
from cometmq.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    ConsumeMessageDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
)

log = logging.getLogger(__name__)


def install(instance: Instance) -> None:
    table: dict[int, Any] = {
        RequestCode.CHECK_TRANSACTION_STATE: check_requested,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: consumer_ids_changed,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: reset_offset,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: get_consumer_status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: get_running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_message_directly,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: reply_pushed,
    }
    for code, function in table.items():
        instance.handlers[code] = functools.partial(function, instance)


def consumer_ids_changed(instance: Instance, _connection: Connection, _command: RemotingCommand) -> None:
    """Members of some group came or went: every consumer looks at its share again."""
    for consumer in instance.consumers.values():
        consumer.wake()


def reset_offset(instance: Instance, _connection: Connection, command: RemotingCommand) -> None:
    """An administrator moves a group. No answer."""
    header = ResetOffsetHeader.decode(command.ext_fields)
    consumer = instance.consumers.get(header.group)
    if not isinstance(consumer, Consumer):
        return
    offsets = ResetOffsetBody.decode(command.body).offset_table
    log.info("group=%s topic=%s offsets are reset: %s", header.group, header.topic, offsets)
    instance.background.spawn(consumer.reset_offsets(offsets), f"reset {header.group}")


def get_consumer_status(
    instance: Instance, _connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    header = ConsumerStatusHeader.decode(command.ext_fields)
    consumer = instance.consumers.get(header.group)
    table = consumer_status(consumer, header.topic) if isinstance(consumer, Consumer) else {}
    return command.response(body=GetConsumerStatusBody(message_queue_table=table).encode())


def get_running_info(
    instance: Instance, _connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    header = ConsumerRunningInfoHeader.decode(command.ext_fields)
    consumer = instance.consumers.get(header.consumer_group)
    if consumer is None:
        return _unknown_group(command, header.consumer_group)
    return command.response(body=running_info(consumer, stacks=bool(header.jstack_enable)).encode())


async def consume_message_directly(
    instance: Instance, _connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    header = ConsumeMessageDirectlyHeader.decode(command.ext_fields)
    consumer = instance.consumers.get(header.consumer_group)
    if not isinstance(consumer, Consumer):
        return _unknown_group(command, header.consumer_group)
    result = await consume_directly(consumer, bytes(command.body), header.broker_name or "")
    return command.response(body=result.encode())


def _unknown_group(command: RemotingCommand, group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return command.response(ResponseCode.SYSTEM_ERROR, remark)
