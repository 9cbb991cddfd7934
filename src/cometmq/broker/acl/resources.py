"""Which topics and groups a request touches, and what it needs there.

One table, code -> function; a request without an entry needs a valid signature only, a request of ``ADMIN_CODES`` an
administrator. The original forgets batches, replies, ends of transactions, offset queries, messages by id and
its own account administration; here they are checked. Groups are named ``%RETRY%group``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cometmq.broker.acl.accounts import HELD_TOPICS, PUB, SUB
from cometmq.broker.copies import stored_message
from cometmq.errors import CometMQError
from cometmq.protocol import properties as names
from cometmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from cometmq.protocol.bodies.locks import LockBatchRequestBody, UnlockBatchRequestBody
from cometmq.protocol.codes import RequestCode as Code
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import SendMessageHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.message_id import parse_offset_message_id
from cometmq.protocol.names import RETRY_PREFIX, TRACE_TOPIC
from cometmq.protocol.properties import decode_properties

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

Need = tuple[str, int]
Needs = Callable[["Broker", RemotingCommand], Iterator[Need]]

OFFSET_LENGTH_MAX = 18  # digits

ADMIN_CODES = frozenset(
    [
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_BROKER_CONFIG, Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP,
        # forgotten by the original
        Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET, Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG, Code.RESUME_CHECK_HALF_MESSAGE,
    ]
)  # fmt: skip


def group_resource(group: str) -> str:
    return RETRY_PREFIX + group


def _field(command: RemotingCommand, *keys: str) -> str:
    fields = command.ext_fields or {}
    return next((fields[key] for key in keys if fields.get(key)), "")


def send(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    """A retry topic belongs to its consumer group, so it takes what the group takes. Everybody may leave traces."""
    header = SendMessageHeader.decode_any(command)
    if header.topic != TRACE_TOPIC:
        yield (header.topic, SUB if header.topic.startswith(RETRY_PREFIX) else PUB)
    if broker.config.enable_multi_dispatch:
        queues = decode_properties(header.properties or "").get(names.PROPERTY_INNER_MULTI_DISPATCH, "")
        yield from ((name, PUB) for name in queues.split(",") if name)


def topic_and_group(topic_key: str = "", *group_keys: str) -> Needs:
    def needs(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
        if topic_key:
            yield _field(command, topic_key), SUB
        if group_keys and (group := _field(command, *group_keys)):
            yield group_resource(group), SUB

    return needs


def heartbeat(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    for consumer in HeartbeatData.decode(bytes(command.body)).consumer_data_set:
        yield group_resource(consumer.group_name), SUB
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, SUB


def check_client(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    body = CheckClientRequestBody.decode(bytes(command.body))
    yield group_resource(body.group), SUB
    yield body.subscription_data.topic, SUB


def lock(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    kind = LockBatchRequestBody if command.code == Code.LOCK_BATCH_MQ else UnlockBatchRequestBody
    yield group_resource(kind.decode(bytes(command.body)).consumer_group or ""), SUB


def view_message(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    yield from _read_message(broker, _field(command, "offset"))


def send_back(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    """The group gets a copy of the message, so it must be one that the account may read."""
    yield group_resource(_field(command, "group")), SUB
    yield from _read_message(broker, _field(command, "offset"))


def consume_directly(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    yield group_resource(_field(command, "consumerGroup")), SUB
    with contextlib.suppress(CometMQError):  # the handler says what is wrong with the id
        offset = parse_offset_message_id(_field(command, "msgId")).physical_offset
        yield from _read_message(broker, str(offset))


def end_transaction(broker: Broker, command: RemotingCommand) -> Iterator[Need]:
    half = _stored(broker, _field(command, "commitLogOffset"))
    if half is not None:
        yield _topic_of(half), PUB


def _read_message(broker: Broker, offset: str) -> Iterator[Need]:
    message = _stored(broker, offset)
    if message is not None:
        yield _topic_of(message), SUB


def _topic_of(message: MessageExt) -> str:
    """The topic that a message was sent to, also while it waits elsewhere."""
    if message.topic in HELD_TOPICS:
        return message.properties.get(names.PROPERTY_REAL_TOPIC, message.topic)
    return message.topic


def _stored(broker: Broker, offset: str) -> MessageExt | None:
    if not offset.isdecimal() or len(offset) > OFFSET_LENGTH_MAX:
        return None
    return stored_message(broker.store, int(offset))


NEEDS: dict[int, Needs] = {
    Code.SEND_MESSAGE: send,
    Code.SEND_MESSAGE_V2: send,
    Code.SEND_BATCH_MESSAGE: send,
    Code.SEND_REPLY_MESSAGE: send,
    Code.SEND_REPLY_MESSAGE_V2: send,
    Code.END_TRANSACTION: end_transaction,
    Code.CONSUMER_SEND_MSG_BACK: send_back,
    Code.PULL_MESSAGE: topic_and_group("topic", "consumerGroup"),
    Code.QUERY_MESSAGE: topic_and_group("topic"),
    Code.VIEW_MESSAGE_BY_ID: view_message,
    Code.HEART_BEAT: heartbeat,
    Code.UNREGISTER_CLIENT: topic_and_group("", "consumerGroup"),
    Code.CHECK_CLIENT_CONFIG: check_client,
    Code.GET_CONSUMER_LIST_BY_GROUP: topic_and_group("", "consumerGroup"),
    Code.QUERY_CONSUMER_OFFSET: topic_and_group("topic", "consumerGroup"),
    Code.UPDATE_CONSUMER_OFFSET: topic_and_group("topic", "consumerGroup"),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: topic_and_group("topic"),
    Code.GET_MAX_OFFSET: topic_and_group("topic"),
    Code.GET_MIN_OFFSET: topic_and_group("topic"),
    Code.GET_EARLIEST_MSG_STORETIME: topic_and_group("topic"),
    Code.LOCK_BATCH_MQ: lock,
    Code.UNLOCK_BATCH_MQ: lock,
    Code.QUERY_CONSUME_QUEUE: topic_and_group("topic"),
    Code.CONSUME_MESSAGE_DIRECTLY: consume_directly,
    Code.GET_CONSUMER_RUNNING_INFO: topic_and_group("", "consumerGroup"),
}
