"""Brokers and NameServers: settings, figures, write permission, key-value configuration."""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.admin.base import AdminBase
from cometmq.protocol.bodies.stats import (
    BrokerStatsData,
    ConsumeStatsList,
    KVTable,
    QueryConsumeQueueResponseBody,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import (
    AddWritePermResponseHeader,
    BrokerNameHeader,
    GetBrokerConsumeStatsHeader,
    KVConfigHeader,
    KVConfigResponseHeader,
    NamespaceHeader,
    PutKVConfigHeader,
    QueryConsumeQueueHeader,
    ViewBrokerStatsHeader,
    WipeWritePermResponseHeader,
)


def parse_properties(text: str) -> dict[str, str]:
    """``key=value`` lines as brokers answer them."""
    pairs = [line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in pairs}


class BrokerAdmin(AdminBase):
    """Operations on servers. ``address`` is that of a broker (``host:port``)."""

    async def broker_config(self, address: str) -> dict[str, str]:
        """Every setting of a broker."""
        response = await self._call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(bytes(response.body).decode())

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker."""
        body = "\n".join(f"{key}={value}" for key, value in settings.items())
        await self._call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body.encode())

    async def runtime_info(self, address: str) -> dict[str, str]:
        """What a broker tells about itself: rates, disk, offsets, version."""
        response = await self._call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(response.body).table

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData:
        """One counter of a broker, e.g. ``TOPIC_PUT_NUMS`` of a topic."""
        header = ViewBrokerStatsHeader(stats_name=name, stats_key=key)
        response = await self._call(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        return BrokerStatsData.decode(response.body)

    async def broker_consume_stats(self, address: str, *, ordered: bool = False) -> ConsumeStatsList:
        """Offsets of every group of a broker, and how far they are behind in all."""
        header = GetBrokerConsumeStatsHeader(is_order=ordered)
        response = await self._call(address, RequestCode.GET_BROKER_CONSUME_STATS, header)
        return ConsumeStatsList.decode(response.body)

    async def queue_entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int = 10, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a ConsumeQueue file; with a group also whether its filter lets them through."""
        header = QueryConsumeQueueHeader(
            topic=self._instance.wire(topic),
            queue_id=queue_id,
            index=index,
            count=count,
            consumer_group=None if group is None else self._instance.wire(group),
        )
        response = await self._call(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        return QueryConsumeQueueResponseBody.decode(response.body)

    async def clean_unused_topics(self, address: str) -> None:
        """Have a broker delete the queues of topics that do not exist any more."""
        await self._call(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def clean_expired_queues(self, address: str) -> None:
        """Have a broker delete the files of queues whose messages are gone from the log."""
        await self._call(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_log(self, address: str) -> None:
        """Have a broker delete the files of its log whose time is over, now."""
        await self._call(address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    # --- NameServers ---

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Let producers avoid a broker; returns the number of topics concerned."""
        response = await self._name_server(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker_name)
        )
        return WipeWritePermResponseHeader.decode(response.ext_fields).wipe_topic_count

    async def add_write_permission(self, broker_name: str) -> int:
        """Let clients send to a broker again that ``wipe_write_permission`` took out; how many topics it concerns."""
        response = await self._name_server(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker_name)
        )
        return AddWritePermResponseHeader.decode(response.ext_fields).add_topic_count

    async def name_server_config(self, address: str) -> dict[str, str]:
        """The settings of a NameServer."""
        response = await self._call(address, RequestCode.GET_NAMESRV_CONFIG)
        return parse_properties(bytes(response.body).decode())

    async def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        """Change settings at every NameServer."""
        body = "\n".join(f"{key}={value}" for key, value in settings.items()).encode()
        await self._every_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a pair of the NameServers' key-value table, at every NameServer."""
        await self._every_name_server(
            RequestCode.PUT_KV_CONFIG, PutKVConfigHeader(namespace=namespace, key=key, value=value)
        )

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """A value of the NameServers' key-value table, None if there is none."""
        response = await self._name_server(
            RequestCode.GET_KV_CONFIG,
            KVConfigHeader(namespace=namespace, key=key),
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        return KVConfigResponseHeader.decode(response.ext_fields).value if response.code == 0 else None

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a pair of the NameServers' key-value table."""
        await self._every_name_server(
            RequestCode.DELETE_KV_CONFIG, KVConfigHeader(namespace=namespace, key=key)
        )

    async def kv_list(self, namespace: str) -> dict[str, str]:
        """All pairs of a namespace of the NameServers' key-value table."""
        response = await self._name_server(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            NamespaceHeader(namespace=namespace),
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        return KVTable.decode(response.body).table if response.code == 0 and response.body else {}
