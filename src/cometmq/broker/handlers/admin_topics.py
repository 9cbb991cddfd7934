"""Topics as administrators see and change them: 17, 21, 202, 215, 300, 305, 316. Event loop only."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.topics import name_problem
from cometmq.errors import BrokerError
from cometmq.protocol.bodies.group import GroupList
from cometmq.protocol.bodies.stats import TopicOffset, TopicStatsTable
from cometmq.protocol.bodies.topic import TopicConfig, TopicList
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import CreateTopicHeader, EmptyHeader, TopicHeader
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.names import LMQ_PREFIX

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

# Of one topic on one broker; the original has no limit, and walks all of them when asked
QUEUE_NUMS_MAX = 65_536
NOT_SET = "not set any response code"  # remark of some successful answers; tools print it
SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."


def handlers(broker: Broker) -> dict[int, Handler]:
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: partial(update_and_create_topic, broker),
        RequestCode.GET_ALL_TOPIC_CONFIG: partial(get_all_topic_config, broker),
        RequestCode.GET_TOPIC_STATS_INFO: partial(get_topic_stats_info, broker),
        RequestCode.DELETE_TOPIC_IN_BROKER: partial(delete_topic_in_broker, broker),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: partial(query_topic_consume_by_who, broker),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: partial(get_system_topic_list, broker),
        RequestCode.CLEAN_UNUSED_TOPIC: partial(clean_unused_topic, broker),
    }


def refuse_on_slave(broker: Broker) -> None:
    if broker.config.is_slave:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, SLAVE)


def _refuse_name(broker: Broker, topic: str) -> None:
    problem = name_problem(topic)
    if problem is None and broker.topics.is_system(topic):
        problem = f"The topic[{topic}] is conflict with system topic."
    if problem is not None:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, problem)


def _refuse_queue_nums(name: str, value: int) -> None:
    if not 0 <= value <= QUEUE_NUMS_MAX:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"{name} is {value}; a topic has 0 to {QUEUE_NUMS_MAX} queues per broker.",
        )


async def update_and_create_topic(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    """Answered when the NameServers know, so that a tool which asks them next sees the change."""
    refuse_on_slave(broker)
    header = CreateTopicHeader.decode(request.ext_fields)
    _refuse_name(broker, header.topic)
    _refuse_queue_nums("readQueueNums", header.read_queue_nums)
    _refuse_queue_nums("writeQueueNums", header.write_queue_nums)
    log.info("topic updated topic=%s by=%s", header.topic, connection.peer)
    broker.topics.put(
        TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
        )
    )
    await broker.registration.register_topics([header.topic])
    return request.response(remark=NOT_SET)


def delete_topic_in_broker(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    """The settings go, and the queues of every topic that has none; the log keeps the messages until they
    expire.
    """
    refuse_on_slave(broker)
    topic = TopicHeader.decode(request.ext_fields).topic
    _refuse_name(broker, topic)
    log.info("topic deleted topic=%s by=%s", topic, connection.peer)
    if topic.startswith(LMQ_PREFIX):
        broker.store.delete_topic(topic)
        return request.response()
    broker.topics.delete(topic)
    delete_unused_queues(broker)
    if broker.config.auto_delete_unused_stats:
        broker.stats.forget_topic(topic)
    return request.response()


def delete_unused_queues(broker: Broker) -> int:
    """Delete the queues of topics without settings; how many topics."""
    unused = [
        topic
        for topic in broker.store.topics_on_disk()
        if topic not in broker.topics.table
        and not broker.topics.is_system(topic)
        and not topic.startswith(LMQ_PREFIX)
    ]
    for topic in unused:
        broker.store.delete_topic(topic)
    return len(unused)


def clean_unused_topic(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    deleted = delete_unused_queues(broker)
    log.info("queues of %d unused topics deleted by=%s", deleted, connection.peer)
    return request.response()


def get_all_topic_config(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(header=EmptyHeader(), body=broker.topics.snapshot().encode())


def get_topic_stats_info(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    topic = TopicHeader.decode(request.ext_fields).topic
    config = find_topic(broker, topic)
    table = {
        MessageQueue(topic, broker.config.broker_name, queue_id): _queue_stats(broker, topic, queue_id)
        for queue_id in range(config.write_queue_nums)
    }
    return request.response(body=TopicStatsTable(offset_table=table).encode())


def find_topic(broker: Broker, topic: str) -> TopicConfig:
    config = broker.topics.find(topic)
    if config is None:
        raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


def _queue_stats(broker: Broker, topic: str, queue_id: int) -> TopicOffset:
    store = broker.store
    max_offset = max(store.max_offset(topic, queue_id), 0)
    return TopicOffset(
        min_offset=max(store.min_offset(topic, queue_id), 0),
        max_offset=max_offset,
        last_update_timestamp=store.store_time(topic, queue_id, max_offset - 1) if max_offset > 0 else 0,
    )


def query_topic_consume_by_who(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    topic = TopicHeader.decode(request.ext_fields).topic
    groups = {*broker.consumers.groups_of(topic), *broker.offsets.groups_of(topic)}
    return request.response(body=GroupList(group_list=sorted(groups)).encode())


def get_system_topic_list(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    return request.response(body=TopicList(topic_list=sorted(broker.topics.system_topics)).encode())
