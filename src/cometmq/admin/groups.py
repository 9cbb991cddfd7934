"""Consumer groups and producers: settings, members, progress, lag."""

from __future__ import annotations

from typing import Any

from cometmq.admin.base import AdminBase
from cometmq.client.namespace import dlq_topic, retry_topic
from cometmq.client.queue import Queue
from cometmq.client.validation import check_group
from cometmq.errors import BrokerError, ClientError
from cometmq.protocol.bodies.connections import (
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from cometmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from cometmq.protocol.bodies.running_info import ConsumerRunningInfo
from cometmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import (
    ConsumerGroupHeader,
    ConsumerRunningInfoHeader,
    DeleteSubscriptionGroupHeader,
    DeleteTopicInNamesrvHeader,
    GetConsumeStatsHeader,
    ProducerGroupHeader,
    TopicHeader,
)
from cometmq.protocol.names import RETRY_PREFIX

RUNNING_INFO_TIMEOUT_MS = 12_000


class GroupAdmin(AdminBase):
    """Operations on groups."""

    async def create_group(
        self, group: str, *, cluster: str | None = None, broker: str | None = None, **settings: Any
    ) -> None:
        """Create or change a consumer group; settings are fields of SubscriptionGroupConfig."""
        check_group(group)
        try:
            config = SubscriptionGroupConfig(group_name=self._instance.wire(group), **settings)
        except TypeError as error:
            names = ", ".join(SubscriptionGroupConfig.__struct_fields__)
            raise ClientError(f"{error}; the settings of a group are: {names}") from None
        await self._from_all(
            await self.masters(cluster, broker),
            lambda _, address: self._call(
                address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode()
            ),
        )

    async def groups(self, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Every consumer group that brokers know, by name."""

        tables = await self._from_all(
            await self.masters(cluster), lambda _, address: self.group_configs(address)
        )
        merged = {name: config for table in tables.values() for name, config in table.items()}
        namespace = self._instance.namespace
        plain = {self._instance.plain(name): merged[name] for name in sorted(merged)}
        return {name: config for name, config in plain.items() if not namespace or name != config.group_name}

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """The groups of one broker as it stores them, with namespaces."""
        response = await self._call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode(response.body).subscription_group_table

    async def group_settings(self, group: str) -> SubscriptionGroupConfig:
        """The settings of a group; ClientError if no broker knows it."""
        settings = (await self.groups()).get(group)
        if settings is None:
            raise ClientError(
                f"no broker knows group {group!r}; create it with: cometmq group create {group}"
            )
        return settings

    async def delete_group(
        self, group: str, *, remove_offsets: bool = False, cluster: str | None = None
    ) -> None:
        """Delete a group with its retry and dead-letter topics."""
        wire = self._instance.wire(group)
        header = DeleteSubscriptionGroupHeader(group_name=wire, remove_offset=remove_offsets)
        masters = await self.masters(cluster)
        await self._from_all(
            masters, lambda _, address: self._call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        )
        for topic in (retry_topic(wire), dlq_topic(wire)):
            of_topic = TopicHeader(topic=topic)
            for address in masters.values():
                await self._call(address, RequestCode.DELETE_TOPIC_IN_BROKER, of_topic)
            await self._every_name_server(
                RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvHeader(topic=topic)
            )

    # --- members ---

    async def members(self, group: str) -> ConsumerConnection | None:
        """Who consumes in a group now, and what they subscribe; None when nobody does."""
        header = ConsumerGroupHeader(consumer_group=self._instance.wire(group))

        async def one(_: str, address: str) -> ConsumerConnection | None:
            response = await self._call(
                address,
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                header,
                accept=(ResponseCode.CONSUMER_NOT_ONLINE,),
            )
            return ConsumerConnection.decode(response.body) if response.code == 0 else None

        found = await self._from_all(await self.masters(), one)
        known = [connection for connection in found.values() if connection is not None]
        if not known:
            return None
        merged = known[0]
        seen = {one_of.client_id for one_of in merged.connection_set}
        for other in known[1:]:
            merged.connection_set += [c for c in other.connection_set if c.client_id not in seen]
            seen |= {c.client_id for c in other.connection_set}
        return merged

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """Ask a member itself what it holds; the broker passes the question on."""
        header = ConsumerRunningInfoHeader(
            consumer_group=self._instance.wire(group), client_id=client_id, jstack_enable=stacks
        )
        failure: BrokerError | None = None
        for address in (await self.masters()).values():
            try:
                response = await self._call(
                    address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms=RUNNING_INFO_TIMEOUT_MS
                )
            except BrokerError as error:
                failure = error
                continue
            return ConsumerRunningInfo.decode(response.body)
        assert failure is not None
        raise failure

    async def producers(self, group: str) -> ProducerConnection | None:
        """Members of a producer group, None when nobody is connected."""
        header = ProducerGroupHeader(producer_group=self._instance.wire(group))
        merged = ProducerConnection()
        for address in (await self.masters()).values():
            response = await self._call(
                address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, accept=(ResponseCode.SYSTEM_ERROR,)
            )
            if response.code == 0:
                merged.connection_set += ProducerConnection.decode(response.body).connection_set
        return merged if merged.connection_set else None

    async def all_producers(self, address: str) -> dict[str, list[ProducerInfo]]:
        """Every producer of one broker, by group."""
        response = await self._call(address, RequestCode.GET_ALL_PRODUCER_INFO)
        return ProducerTableInfo.decode(response.body).data

    # --- progress ---

    async def progress(self, group: str, topic: str | None = None) -> dict[Queue, OffsetWrapper]:
        """Broker offset and consumer offset of every queue a group reads, its retry topic included."""
        return (await self.consume_stats(group, topic)).offset_table

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Progress and rate of a group over all brokers. Queue names without namespace."""
        header = GetConsumeStatsHeader(
            consumer_group=self._instance.wire(group),
            topic=None if topic is None else self._instance.wire(topic),
        )

        async def one(_: str, address: str) -> ConsumeStats:
            response = await self._call(address, RequestCode.GET_CONSUME_STATS, header)
            return ConsumeStats.decode(response.body)

        found = await self._from_all(await self.masters(), one)
        merged = ConsumeStats(consume_tps=sum(stats.consume_tps for stats in found.values()))
        for stats in found.values():
            for queue, offsets in sorted(stats.offset_table.items()):
                plain = Queue(self._instance.plain(queue.topic), queue.broker_name, queue.queue_id)
                merged.offset_table[plain] = offsets
        return merged

    async def lag(self, group: str, topic: str | None = None) -> dict[Queue, int]:
        """Messages that a group has not consumed yet, by queue; queues of its retry topic are left out."""
        progress = await self.progress(group, topic)
        return {
            queue: max(0, offsets.broker_offset - max(0, offsets.consumer_offset))
            for queue, offsets in progress.items()
            if not queue.topic.startswith(RETRY_PREFIX)
        }
