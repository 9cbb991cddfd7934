"""The subscriptions of one consumer: filters by topic, in the form heartbeats and pulls carry them."""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.client.instance import Instance
from cometmq.client.subscription import Filter, TagFilter
from cometmq.protocol.bodies.heartbeat import SubscriptionData
from cometmq.protocol.filters.tag import SQL92
from cometmq.protocol.hashing import tags_code
from cometmq.protocol.message import MessageExt


def subscription_data(topic: str, filter_: Filter, version: int) -> SubscriptionData:
    tags = sorted(filter_.tags)
    return SubscriptionData(
        topic=topic,
        sub_string=filter_.expression,
        expression_type=filter_.type,
        tags_set=tags,
        code_set=[tags_code(tag) for tag in tags],
        sub_version=version,
    )


class SubscriptionTable:
    """Wire topic to subscription. ``version`` grows with each change of the assignment, as brokers expect."""

    def __init__(
        self, instance: Instance, subscriptions: Mapping[str, Filter], retry_topic: str | None
    ) -> None:
        self._instance = instance
        now_ms = instance.now_ms()
        self._table = {
            instance.wire(topic): subscription_data(instance.wire(topic), filter_, now_ms)
            for topic, filter_ in subscriptions.items()
        }
        self._tags = {topic: frozenset(data.tags_set) for topic, data in self._table.items()}
        if retry_topic is not None:
            self._table[retry_topic] = subscription_data(retry_topic, TagFilter(), now_ms)
            self._tags[retry_topic] = frozenset()

    def topics(self) -> list[str]:
        return list(self._table)

    def get(self, topic: str) -> SubscriptionData | None:
        return self._table.get(topic)

    def all(self) -> list[SubscriptionData]:
        return list(self._table.values())

    def sql(self) -> list[SubscriptionData]:
        return [data for data in self._table.values() if data.expression_type == SQL92]

    def subscribe(self, topic: str, filter_: Filter) -> None:
        wire = self._instance.wire(topic)
        self._table[wire] = subscription_data(wire, filter_, self._instance.now_ms())
        self._tags[wire] = filter_.tags

    def unsubscribe(self, topic: str) -> None:
        wire = self._instance.wire(topic)
        self._table.pop(wire, None)
        self._tags.pop(wire, None)

    def renew(self, topic: str) -> None:
        data = self._table.get(topic)
        if data is not None:
            data.sub_version = max(self._instance.now_ms(), data.sub_version + 1)

    def wanted(self, topic: str, records: list[MessageExt]) -> list[MessageExt]:
        """Brokers filter tags by their hash only; this is the exact check."""
        tags = self._tags.get(topic)
        if not tags:
            return records
        return [record for record in records if record.tag in tags]
