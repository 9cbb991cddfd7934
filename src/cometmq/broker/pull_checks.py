"""May this pull be served, and which messages does it want? In the order of the original. Event loop only."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.filter_data import compile_expression
from cometmq.broker.pull_filter import (
    BloomedPropertyFilter,
    PropertyFilter,
    RetryPropertyFilter,
    TagFilter,
)
from cometmq.errors import CometMQError
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.bodies.heartbeat import BROADCASTING
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.filters.tag import is_tag_type, tag_codes
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.names import PERM_READ, RETRY_PREFIX
from cometmq.protocol.sys_flag import PULL_SUBSCRIPTION
from cometmq.store.model import MessageFilter

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
EXPRESSIONS_CACHED_MAX = 100

_compiled = lru_cache(maxsize=EXPRESSIONS_CACHED_MAX)(compile_expression)


class Refused(CometMQError):
    """A pull that fails one of the checks."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Accepted(NamedTuple):
    """A pull that passed the checks."""

    group: SubscriptionGroupConfig
    filter: MessageFilter | None


def check(broker: Broker, header: PullMessageHeader, peer: str) -> Accepted:
    """Every check before the store is asked; raises Refused."""
    group = _check_group(broker, header)
    _check_topic(broker, header, peer)
    if header.sys_flag & PULL_SUBSCRIPTION:
        message_filter = _filter_of_request(broker, header)
    else:
        message_filter = _filter_of_heartbeat(broker, header, group)
    return Accepted(group, message_filter)


def _check_group(broker: Broker, header: PullMessageHeader) -> SubscriptionGroupConfig:
    name = header.consumer_group
    if not broker.config.readable:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] pulling message is forbidden"
        )
    group = broker.groups.find(name)
    if group is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist, {FAQ}"
        )
    if not group.consume_enable:
        raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
    return group


def _check_topic(broker: Broker, header: PullMessageHeader, peer: str) -> None:
    topic = broker.topics.find(header.topic)
    if topic is None:
        raise Refused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
        )
    if not topic.perm & PERM_READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
    if not 0 <= header.queue_id < topic.read_queue_nums:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{peer}]",
        )


def _filter_of_request(broker: Broker, header: PullMessageHeader) -> MessageFilter | None:
    """The subscription stands in the request itself."""
    if is_tag_type(header.expression_type):
        return _tag_filter(header.subscription)
    expression_type = str(header.expression_type)
    if not header.subscription:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    _check_property_filter(broker, expression_type)
    try:
        return PropertyFilter(_compiled(expression_type, header.subscription))
    except CometMQError as error:
        # The original runs such a pull unfiltered; nobody wants that.
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from error


def _filter_of_heartbeat(
    broker: Broker, header: PullMessageHeader, group: SubscriptionGroupConfig
) -> MessageFilter | None:
    """The subscription is what the group's last heartbeat said."""
    online = broker.consumers.find(header.consumer_group)
    if online is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
    if online.message_model == BROADCASTING and not group.consume_broadcast_enable:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
        )
    subscription = online.subscriptions.get(header.topic)
    if subscription is None:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
    if subscription.sub_version < header.sub_version:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if is_tag_type(subscription.expression_type):
        if broker.config.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            return _retry_filter(broker, header.consumer_group)
        return TagFilter(subscription.code_set) if subscription.code_set else None
    return _expression_filter(broker, header, str(subscription.expression_type))


def _expression_filter(broker: Broker, header: PullMessageHeader, expression_type: str) -> MessageFilter:
    data = broker.filter_data.get(header.topic, header.consumer_group)
    if data is None or data.compiled is None:
        raise Refused(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
    if data.client_version < header.sub_version:
        raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    _check_property_filter(broker, expression_type)
    return BloomedPropertyFilter(data.compiled, data.may_want)


def _check_property_filter(broker: Broker, expression_type: str) -> None:
    if not broker.config.enable_property_filter:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


def _tag_filter(expression: str | None) -> MessageFilter | None:
    codes = tag_codes(expression)
    return TagFilter(codes) if codes else None


def _retry_filter(broker: Broker, group: str) -> MessageFilter:
    def evaluate_of(topic: str) -> Callable[..., bool | None] | None:
        data = broker.filter_data.get(topic, group)
        return None if data is None else data.compiled

    return RetryPropertyFilter(evaluate_of)
