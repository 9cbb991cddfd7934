"""What all parts of the admin share: where brokers are, and calls to them. Loop thread only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cometmq.client.instance import Instance
from cometmq.client.name_servers import checked
from cometmq.errors import ClientError
from cometmq.protocol.bodies.route import MASTER_ID, ClusterInfo
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import Header

T = TypeVar("T")

ADMIN_TIMEOUT_MS = 6_000


class AdminBase:
    """Brokers and NameServers of a client."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def _name_server(
        self, code: int, header: Header | None = None, body: bytes = b"", accept: tuple[int, ...] = ()
    ) -> RemotingCommand:
        await self._instance.start()
        command = RemotingCommand.request(code, header, body)
        response = await self._instance.name_servers.invoke(command, ADMIN_TIMEOUT_MS)
        return checked(response, None, *accept)

    async def _every_name_server(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """They do not talk to each other: a change goes to all."""
        await self._instance.start()
        for address in self._instance.name_servers.addresses:
            command = RemotingCommand.request(code, header, body)
            checked(await self._instance.invoke(address, command, ADMIN_TIMEOUT_MS), address)

    async def _call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        accept: tuple[int, ...] = (),
        timeout_ms: int = ADMIN_TIMEOUT_MS,
    ) -> RemotingCommand:
        await self._instance.start()
        return await self._instance.brokers.call(
            address, code, header, body, timeout_ms=timeout_ms, accept=accept
        )

    async def cluster_info(self) -> ClusterInfo:
        """Clusters, broker names, addresses, as a NameServer knows them."""
        response = await self._name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(response.body)

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> dict[str, str]:
        """Broker name to address of its master; of one cluster or one broker if named."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise ClientError(
                f"no cluster {cluster!r}; there are: {', '.join(info.cluster_addr_table) or 'none'}"
            )
        names = set(info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster])
        if broker is not None:
            if broker not in info.broker_addr_table:
                raise ClientError(
                    f"no broker {broker!r}; there are: {', '.join(info.broker_addr_table) or 'none'}"
                )
            names &= {broker}
        found = {name: info.broker_addr_table[name].broker_addrs.get(MASTER_ID) for name in sorted(names)}
        masters = {name: address for name, address in found.items() if address is not None}
        if not masters:
            raise ClientError("no master broker is registered at the NameServer; is a broker running?")
        return masters

    async def _masters_of_topic(self, topic: str) -> dict[str, str]:
        """Broker name to master address, for the brokers that hold a topic (wire name)."""
        await self._instance.start()
        route = await self._instance.routes.fetch(topic)
        if route is None:
            raise self._instance.routes.not_found(topic)
        self._instance.routes.take(topic, route)
        return {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
        }

    async def _from_all(
        self, masters: dict[str, str], call: Callable[[str, str], Awaitable[T]]
    ) -> dict[str, T]:
        """Ask every master at once: broker name to answer."""
        answers = await asyncio.gather(*(call(name, address) for name, address in masters.items()))
        return dict(zip(masters, answers, strict=True))
