"""Subscription groups: their settings (200, 201), their members (38), who reads a topic (300)."""

from __future__ import annotations

import msgspec
from msgspec import field

from cometmq.protocol.bodies.body import Body
from cometmq.protocol.bodies.topic import DataVersion


class SubscriptionGroupConfig(Body, kw_only=True):
    """Settings of one consumer group."""

    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    which_broker_when_consume_slowly: int = 1


class SubscriptionGroupWrapper(Body, kw_only=True):
    """All groups of a broker and the version of that table."""

    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class ConsumerIdList(Body, kw_only=True):
    """Answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = field(default_factory=list)


class GroupList(Body, kw_only=True):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = field(default_factory=list)
