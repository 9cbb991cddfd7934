"""Consumer groups and their progress: 200, 201, 207, 208, 303, 308, 314, 317. Event loop only."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.handlers.admin_topics import find_topic, refuse_on_slave
from cometmq.broker.offsets import OFFSET_MAX
from cometmq.errors import BrokerError
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.bodies.offsets import QueryCorrectionOffsetBody
from cometmq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    CloneGroupOffsetHeader,
    DeleteSubscriptionGroupHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    QueryCorrectionOffsetHeader,
    TopicGroupHeader,
)
from cometmq.protocol.message import MessageQueue

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

QUEUES_PER_TURN = 256  # queues looked at before other requests get their turn


def handlers(broker: Broker) -> dict[int, Handler]:
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: partial(update_and_create_group, broker),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: partial(get_all_groups, broker),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: partial(delete_group, broker),
        RequestCode.GET_CONSUME_STATS: partial(get_consume_stats, broker),
        RequestCode.QUERY_CONSUME_TIME_SPAN: partial(query_consume_time_span, broker),
        RequestCode.QUERY_CORRECTION_OFFSET: partial(query_correction_offset, broker),
        RequestCode.CLONE_GROUP_OFFSET: partial(clone_group_offset, broker),
        RequestCode.GET_BROKER_CONSUME_STATS: partial(get_broker_consume_stats, broker),
    }


# --- settings ---


def update_and_create_group(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    refuse_on_slave(broker)
    config = SubscriptionGroupConfig.decode(request.body)
    if not config.group_name.strip():
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "The specified group is blank.")
    log.info("consumer group updated group=%s by=%s", config.group_name, connection.peer)
    broker.groups.put(config)
    return request.response()


def get_all_groups(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=broker.groups.snapshot().encode())


def delete_group(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Consumers stay connected; where groups may come into being by being named, this one will again."""
    refuse_on_slave(broker)
    header = DeleteSubscriptionGroupHeader.decode(request.ext_fields)
    log.info("consumer group deleted group=%s by=%s", header.group_name, connection.peer)
    broker.groups.delete(header.group_name)
    if header.remove_offset:
        broker.offsets.remove_group(header.group_name)
    if broker.config.auto_delete_unused_stats:
        broker.stats.forget_group(header.group_name)
    return request.response()


# --- progress ---


def get_consume_stats(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    header = GetConsumeStatsHeader.decode(request.ext_fields)
    topics = [header.topic] if header.topic and header.topic.strip() else None
    stats = ConsumeStats()
    for topic in topics or broker.offsets.topics_of(header.consumer_group):
        config = broker.topics.find(topic)
        if config is None or broker.consumers.subscribes_other_topics_only(header.consumer_group, topic):
            continue
        stats.offset_table |= _progress(broker, header.consumer_group, topic, config.read_queue_nums)
        stats.consume_tps += broker.stats.consume_tps(header.consumer_group, topic)
    return request.response(body=stats.encode())


def _progress(broker: Broker, group: str, topic: str, queue_nums: int) -> dict[MessageQueue, OffsetWrapper]:
    return {
        MessageQueue(topic, broker.config.broker_name, queue_id): _queue_progress(
            broker, group, topic, queue_id
        )
        for queue_id in range(queue_nums)
    }


def _queue_progress(broker: Broker, group: str, topic: str, queue_id: int) -> OffsetWrapper:
    consumed = max(broker.offsets.query(group, topic, queue_id), 0)
    return OffsetWrapper(
        broker_offset=max(broker.store.max_offset(topic, queue_id), 0),
        consumer_offset=consumed,
        last_timestamp=max(broker.store.store_time(topic, queue_id, consumed - 1), 0) if consumed else 0,
    )


async def get_broker_consume_stats(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    """All groups. It takes turns with other requests, for a large broker has very many queues."""
    only_order = GetBrokerConsumeStatsHeader.decode(request.ext_fields).is_order
    answer = ConsumeStatsList(broker_addr=broker.address)
    queues_of_turn = 0
    for group in [config.group_name for config in broker.groups]:
        of_group: list[ConsumeStats] = []
        for topic in broker.offsets.topics_of(group):
            stats = _topic_consume_stats(broker, group, topic, only_order)
            if stats is None:
                continue
            of_group.append(stats)
            answer.total_diff += sum(q.broker_offset - q.consumer_offset for q in stats.offset_table.values())
            queues_of_turn += len(stats.offset_table)
            if queues_of_turn > QUEUES_PER_TURN:
                queues_of_turn = 0
                await asyncio.sleep(0)
        answer.consume_stats_list.append({group: of_group})
    return request.response(body=answer.encode())


def _topic_consume_stats(broker: Broker, group: str, topic: str, only_order: bool) -> ConsumeStats | None:
    config = broker.topics.find(topic)
    if config is None or (only_order and not config.order):
        return None
    if broker.consumers.subscribes_other_topics_only(group, topic):
        return None
    return ConsumeStats(
        consume_tps=broker.stats.consume_tps(group, topic),
        offset_table=_progress(broker, group, topic, config.write_queue_nums),
    )


def query_consume_time_span(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = TopicGroupHeader.decode(request.ext_fields)
    config = find_topic(broker, header.topic)
    spans = [
        _time_span(broker, header.group, header.topic, queue_id)
        for queue_id in range(config.write_queue_nums)
    ]
    return request.response(body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode())


def _time_span(broker: Broker, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
    store = broker.store
    earliest_ms = store.earliest_time(topic, queue_id)
    max_offset = store.max_offset(topic, queue_id)
    consumed = broker.offsets.query(group, topic, queue_id)
    span = QueueTimeSpan(
        message_queue=MessageQueue(topic, broker.config.broker_name, queue_id),
        min_time_stamp=earliest_ms,
        max_time_stamp=store.store_time(topic, queue_id, max_offset - 1) if max_offset > 0 else -1,
        consume_time_stamp=store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else earliest_ms,
    )
    next_offset = max(consumed, store.min_offset(topic, queue_id))  # without an offset the first one
    if next_offset < max_offset:
        span.delay_time = broker.now_ms() - store.store_time(topic, queue_id, next_offset)
    return span.with_texts()


# --- offsets ---


def query_correction_offset(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    """Per queue the lowest offset of the groups that count; the largest number where ``compareGroup`` is behind it.

    The original deletes the offsets of ``filterGroups`` while it leaves them out. Here asking changes
    nothing.
    """
    header = QueryCorrectionOffsetHeader.decode(request.ext_fields)
    without = [group for group in (header.filter_groups or "").split(",") if group]
    lowest = broker.offsets.lowest(
        header.topic, without, lambda queue_id: broker.store.min_offset(header.topic, queue_id)
    )
    for queue_id, offset in broker.offsets.queues(header.compare_group, header.topic).items():
        if lowest.get(queue_id, OFFSET_MAX) > offset:
            lowest[queue_id] = OFFSET_MAX
    body = QueryCorrectionOffsetBody(correction_offsets=dict(sorted(lowest.items())))
    return request.response(body=body.encode())


def clone_group_offset(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Copy the offsets of a group in one topic or, without a topic, in all. (The original then copies
    none.)
    """
    header = CloneGroupOffsetHeader.decode(request.ext_fields)
    topics = [header.topic] if header.topic and header.topic.strip() else None
    for topic in topics or broker.offsets.topics_of(header.src_group):
        if broker.topics.find(topic) is None:
            continue
        if not header.offline and broker.consumers.subscribes_other_topics_only(header.src_group, topic):
            continue
        broker.offsets.clone(header.src_group, header.dest_group, topic)
    return request.response()
