"""CONSUMER_SEND_MSG_BACK (36): a consumer could not process a message and wants it again later.

The broker stores a copy for the group's retry topic, delayed by a level that grows with every try; when the tries are
used up the copy goes to the group's dead letter topic. Event loop only.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from cometmq.broker.copies import copy_of, stored_message
from cometmq.broker.handlers.send import FAQ
from cometmq.protocol import properties as names
from cometmq.protocol.codes import VERSION_3_4_9, RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import ConsumerSendMsgBackHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.names import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX, UNIT_SUB_FLAG
from cometmq.store.model import PutResult

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

FIRST_RETRY_LEVEL = 3  # 10 s with the default levels


def handlers(broker: Broker) -> dict[int, Handler]:
    def send_back(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return consumer_send_msg_back(broker, command)

    return {RequestCode.CONSUMER_SEND_MSG_BACK: send_back}


def consumer_send_msg_back(broker: Broker, command: RemotingCommand) -> RemotingCommand:
    header = ConsumerSendMsgBackHeader.decode(command.ext_fields)
    group = broker.groups.find(header.group)
    if group is None:
        return command.response(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} {FAQ}"
        )
    if not broker.config.writable:
        remark = f"the broker[{broker.config.broker_ip1}] sending message is forbidden"
        return command.response(ResponseCode.NO_PERMISSION, remark)
    if group.retry_queue_nums <= 0:
        return command.response()
    retry_topic = broker.topics.find_or_create(
        RETRY_PREFIX + header.group,
        queue_nums=group.retry_queue_nums,
        sys_flag=UNIT_SUB_FLAG if header.unit_mode else 0,
    )
    if not retry_topic.perm & PERM_WRITE:
        remark = f"the topic[{retry_topic.topic_name}] sending message is forbidden"
        return command.response(ResponseCode.NO_PERMISSION, remark)
    original = stored_message(broker.store, header.offset)
    if original is None:
        return command.response(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
    tries_max = group.retry_max_times
    if command.version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
        tries_max = header.max_reconsume_times
    if original.reconsume_times >= tries_max or header.delay_level < 0:
        dead = broker.topics.find_or_create(DLQ_PREFIX + header.group, queue_nums=1)
        result = _store(broker, original, dead.topic_name, 0, delay_level=0)
    else:
        # The topic may be older than the group's setting: only queues that consumers see.
        queue_id = random.randrange(max(min(group.retry_queue_nums, retry_topic.read_queue_nums), 1))
        level = header.delay_level or FIRST_RETRY_LEVEL + original.reconsume_times
        result = _store(broker, original, retry_topic.topic_name, queue_id, delay_level=level)
    if not result.ok:
        return command.response(ResponseCode.SYSTEM_ERROR, result.status.name)
    broker.stats.count_send_back(header.group, original.topic)
    return command.response()


def _store(broker: Broker, original: MessageExt, topic: str, queue_id: int, *, delay_level: int) -> PutResult:
    """The message once more, one try later."""
    properties = retry_properties(original)
    properties[names.PROPERTY_DELAY] = str(delay_level)
    message = copy_of(
        original, topic=topic, queue_id=queue_id, properties=properties, store_host=broker.store_host
    )
    message.reconsume_times = original.reconsume_times + 1
    broker.delay.divert(message, properties)
    return broker.store.put(message)


def retry_properties(original: MessageExt) -> dict[str, str]:
    """What a retry remembers: the first topic and the first stored message."""
    properties = dict(original.properties)
    properties.setdefault(names.PROPERTY_RETRY_TOPIC, original.topic)
    properties.setdefault(names.PROPERTY_ORIGIN_MESSAGE_ID, original.offset_msg_id)
    properties[names.PROPERTY_WAIT] = "false"
    return properties
