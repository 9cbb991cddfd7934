"""Topics: create, list, look at, delete."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cometmq.admin.base import AdminBase
from cometmq.client.namespace import is_system_topic
from cometmq.client.queue import Queue
from cometmq.client.validation import check_topic
from cometmq.errors import ClientError, TopicNotFound
from cometmq.protocol.bodies.group import GroupList
from cometmq.protocol.bodies.route import TopicRouteData
from cometmq.protocol.bodies.stats import TopicOffset, TopicStatsTable
from cometmq.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicList
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.headers import ClusterHeader, CreateTopicHeader, DeleteTopicInNamesrvHeader, TopicHeader
from cometmq.protocol.names import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX

PERM_READ_WRITE = PERM_READ | PERM_WRITE
ROUTE_WAIT_S = 5.0
ROUTE_CHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic at one broker."""

    topic: str
    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool = False


class TopicAdmin(AdminBase):
    """Operations on topics."""

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = PERM_READ_WRITE,
        cluster: str | None = None,
        broker: str | None = None,
        order: bool = False,
    ) -> list[TopicSettings]:
        """Create a topic, or change it, on every master (of a cluster, or on one broker).

        Returns when the NameServer knows the route, so that a send right after finds it.
        """
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"a topic needs at least one queue, not {queues}")
        wire = self._instance.wire(topic)
        masters = await self.masters(cluster, broker)
        header = CreateTopicHeader(
            topic=wire,
            default_topic="TBW102",
            read_queue_nums=read_queues or queues,
            write_queue_nums=write_queues or queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
        )
        await self._from_all(
            masters, lambda _, address: self._call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        )
        await self._wait_for_route(wire, set(masters))
        return [
            TopicSettings(topic, name, header.read_queue_nums, header.write_queue_nums, perm, order)
            for name in masters
        ]

    async def _wait_for_route(self, wire: str, brokers: set[str]) -> None:
        """Brokers register in their own time."""
        routes = self._instance.routes
        deadline = asyncio.get_running_loop().time() + ROUTE_WAIT_S
        while True:
            data = await routes.fetch(wire)
            if data is not None and brokers <= {entry.broker_name for entry in data.queue_datas}:
                routes.take(wire, data)
                return
            if asyncio.get_running_loop().time() > deadline:
                raise TopicNotFound(f"topic {wire!r} was created but the NameServer does not know it yet")
            await asyncio.sleep(ROUTE_CHECK_S)

    async def topics(self, cluster: str | None = None, *, system: bool = False) -> list[str]:
        """Names of topics, sorted; with ``system`` also retry, dead-letter and internal ones."""
        if cluster is None:
            response = await self._name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            response = await self._name_server(
                RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader(cluster=cluster)
            )
        found = TopicList.decode(response.body).topic_list
        names = sorted({self._instance.plain(name) for name in found if self._mine(name)})
        if system:
            return names
        hidden = await self._hidden_topics()
        return [name for name in names if name not in hidden and not _is_internal(name)]

    def _mine(self, name: str) -> bool:
        namespace = self._instance.namespace
        return not namespace or self._instance.plain(name) != name

    async def _hidden_topics(self) -> set[str]:
        """Topics named like a cluster or a broker, which every broker makes for itself."""
        info = await self.cluster_info()
        return set(info.cluster_addr_table) | set(info.broker_addr_table)

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Brokers and queue counts of a topic."""
        await self._instance.start()
        wire = self._instance.wire(topic)
        route = await self._instance.routes.fetch(wire)
        if route is None:
            raise self._instance.routes.not_found(wire)
        return route

    async def topic_stats(self, topic: str) -> dict[Queue, TopicOffset]:
        """First and last offset and time of the last message, of every queue."""
        wire = self._instance.wire(topic)
        masters = await self._masters_of_topic(wire)

        async def one(_: str, address: str) -> TopicStatsTable:
            response = await self._call(address, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=wire))
            return TopicStatsTable.decode(response.body)

        tables = await self._from_all(masters, one)
        merged = {queue: offset for table in tables.values() for queue, offset in table.offset_table.items()}
        return {self._plain(queue): merged[queue] for queue in sorted(merged)}

    def _plain(self, queue: Queue) -> Queue:
        return Queue(self._instance.plain(queue.topic), queue.broker_name, queue.queue_id)

    async def topic_settings(self, topic: str) -> list[TopicSettings]:
        """The settings at each broker that has the topic."""
        route = await self.topic_route(topic)
        return [
            TopicSettings(topic, one.broker_name, one.read_queue_nums, one.write_queue_nums, one.perm)
            for one in sorted(route.queue_datas, key=lambda entry: entry.broker_name)
        ]

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Every topic of one broker with all its settings."""
        response = await self._call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigSerializeWrapper.decode(response.body).topic_config_table

    async def topic_groups(self, topic: str) -> list[str]:
        """Consumer groups that read a topic."""
        wire = self._instance.wire(topic)

        async def one(_: str, address: str) -> list[str]:
            header = TopicHeader(topic=wire)
            response = await self._call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            return GroupList.decode(response.body).group_list

        found = await self._from_all(await self._masters_of_topic(wire), one)
        return sorted({self._instance.plain(group) for groups in found.values() for group in groups})

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic with its messages, at brokers and NameServers."""
        if is_system_topic(topic):
            raise ClientError(f"{topic!r} belongs to the system and cannot be deleted")
        wire = self._instance.wire(topic)
        await self._from_all(
            await self.masters(cluster),
            lambda _, address: self._call(
                address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=wire)
            ),
        )
        await self._every_name_server(
            RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvHeader(topic=wire, cluster_name=cluster)
        )
        self._instance.routes.forget(wire)


def _is_internal(name: str) -> bool:
    return (
        is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or name.endswith("_REPLY_TOPIC")
    )
