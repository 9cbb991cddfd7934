"""Ext fields of changes to topics and groups, and of a broker's figures about them."""

from __future__ import annotations

from msgspec import field as wire

from cometmq.protocol.header import Header, Int32


class TopicHeader(Header, kw_only=True):
    """GET_TOPIC_STATS_INFO 202, DELETE_TOPIC_IN_BROKER 215, QUERY_TOPIC_CONSUME_BY_WHO 300."""

    topic: str = wire(name="topic")


class TopicGroupHeader(Header, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN 303."""

    topic: str = wire(name="topic")
    group: str = wire(name="group")


class CreateTopicHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC 17."""

    topic: str = wire(name="topic")
    default_topic: str = wire(name="defaultTopic")
    read_queue_nums: Int32 = wire(name="readQueueNums")
    write_queue_nums: Int32 = wire(name="writeQueueNums")
    perm: Int32 = wire(name="perm")
    topic_filter_type: str = wire(name="topicFilterType")
    topic_sys_flag: Int32 | None = wire(name="topicSysFlag", default=None)
    order: bool = wire(name="order", default=False)


class DeleteTopicInNamesrvHeader(Header, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV 216."""

    topic: str = wire(name="topic")
    cluster_name: str | None = wire(name="clusterName", default=None)


class DeleteSubscriptionGroupHeader(Header, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP 207."""

    group_name: str = wire(name="groupName")
    remove_offset: bool | None = wire(name="removeOffset", default=None)


class GetConsumeStatsHeader(Header, kw_only=True):
    """GET_CONSUME_STATS 208."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str | None = wire(name="topic", default=None)


class ViewBrokerStatsHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA 315."""

    stats_name: str = wire(name="statsName")
    stats_key: str = wire(name="statsKey")


class GetBrokerConsumeStatsHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS 317."""

    is_order: bool = wire(name="isOrder")


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """Answer to GET_BROKER_CONFIG: the DataVersion as JSON text."""

    version: str = wire(name="version")
