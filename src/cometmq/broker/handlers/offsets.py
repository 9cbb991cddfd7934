"""QUERY_CONSUMER_OFFSET 14, UPDATE_CONSUMER_OFFSET 15, GET_ALL_CONSUMER_OFFSET 43, GET_ALL_DELAY_OFFSET 45.

Event loop only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    EmptyHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def handlers(broker: Broker) -> dict[int, Handler]:
    return {
        RequestCode.QUERY_CONSUMER_OFFSET: partial(query_consumer_offset, broker),
        RequestCode.UPDATE_CONSUMER_OFFSET: partial(update_consumer_offset, broker),
        RequestCode.GET_ALL_CONSUMER_OFFSET: partial(get_all_consumer_offset, broker),
        RequestCode.GET_ALL_DELAY_OFFSET: partial(get_all_delay_offset, broker),
    }


def query_consumer_offset(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = QueryConsumerOffsetHeader.decode(request.ext_fields)
    offset = broker.offsets.query(header.consumer_group, header.topic, header.queue_id)
    if offset >= 0:
        return request.response(header=OffsetResponseHeader(offset=offset))
    if is_young(broker, header.topic, header.queue_id):
        return request.response(header=OffsetResponseHeader(offset=0))
    return request.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, EmptyHeader())


def is_young(broker: Broker, topic: str, queue_id: int) -> bool:
    """The queue still has its first message, and that is in memory: a new group reads it from the beginning.

    Clients ask where to start (consumeFromWhere) only when this is false. A queue without messages is young.
    """
    if broker.store.min_offset(topic, queue_id) > 0:
        return False
    return broker.store.max_offset(topic, queue_id) <= 0 or not broker.store.get(topic, queue_id, 0, 1).cold


def update_consumer_offset(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = UpdateConsumerOffsetHeader.decode(request.ext_fields)
    broker.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    return request.response(header=EmptyHeader())


def get_all_consumer_offset(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    return request.response(body=broker.offsets.encode())


def get_all_delay_offset(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """``broker.delay`` encodes its table; a broker without it has delivered nothing."""
    body = broker.delay.encode() if broker.delay is not None else b'{"offsetTable":{}}'
    return request.response(body=body)
