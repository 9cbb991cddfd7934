"""Ext fields about clients: what groups consumed, who is a member, what members are asked."""

from __future__ import annotations

from msgspec import field as wire

from cometmq.protocol.header import Header, Int32, Int64


class QueryConsumerOffsetHeader(Header, kw_only=True):
    """QUERY_CONSUMER_OFFSET 14."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    broker_name: str | None = wire(name="bname", default=None)


class UpdateConsumerOffsetHeader(Header, kw_only=True):
    """UPDATE_CONSUMER_OFFSET 15."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    commit_offset: Int64 = wire(name="commitOffset")
    broker_name: str | None = wire(name="bname", default=None)


class UnregisterClientHeader(Header, kw_only=True):
    """UNREGISTER_CLIENT 35."""

    client_id: str = wire(name="clientID")
    producer_group: str | None = wire(name="producerGroup", default=None)
    consumer_group: str | None = wire(name="consumerGroup", default=None)


class ConsumerGroupHeader(Header, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP 38, NOTIFY_CONSUMER_IDS_CHANGED 40, GET_CONSUMER_CONNECTION_LIST 203."""

    consumer_group: str = wire(name="consumerGroup")


class ProducerGroupHeader(Header, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST 204."""

    producer_group: str = wire(name="producerGroup")


class ResetOffsetHeader(Header, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET 220 and INVOKE_BROKER_TO_RESET_OFFSET 222."""

    topic: str = wire(name="topic")
    group: str = wire(name="group")
    timestamp: Int64 = wire(name="timestamp")
    is_force: bool = wire(name="isForce", default=False)


class ConsumerStatusHeader(Header, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT 221 and INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223."""

    topic: str = wire(name="topic")
    group: str = wire(name="group")
    client_addr: str | None = wire(name="clientAddr", default=None)


class ConsumerRunningInfoHeader(Header, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO 307."""

    consumer_group: str = wire(name="consumerGroup")
    client_id: str = wire(name="clientId")
    jstack_enable: bool | None = wire(name="jstackEnable", default=None)


class ConsumeMessageDirectlyHeader(Header, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY 309."""

    consumer_group: str = wire(name="consumerGroup")
    client_id: str | None = wire(name="clientId", default=None)
    msg_id: str | None = wire(name="msgId", default=None)
    broker_name: str | None = wire(name="brokerName", default=None)


class CloneGroupOffsetHeader(Header, kw_only=True):
    """CLONE_GROUP_OFFSET 314."""

    src_group: str = wire(name="srcGroup")
    dest_group: str = wire(name="destGroup")
    topic: str | None = wire(name="topic", default=None)
    offline: bool | None = wire(name="offline", default=None)


class QueryCorrectionOffsetHeader(Header, kw_only=True):
    """QUERY_CORRECTION_OFFSET 308."""

    filter_groups: str | None = wire(name="filterGroups", default=None)
    compare_group: str = wire(name="compareGroup")
    topic: str = wire(name="topic")
