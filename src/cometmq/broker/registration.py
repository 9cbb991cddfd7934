"""Telling the NameServers who we are and which topics we have.

Theory of operation. Every NameServer of the list is a ``Link`` of its own; they are told in parallel and a
dead one delays nobody. Three things are sent:

* a *full* registration (all topics): at start, every registerNameServerPeriod, when a connection to a
  NameServer was lost and is back, and some time after topics changed;
* an *incremental* one (the changed topics): at once when topics changed. Many changes in one turn make one
  request. A NameServer that has forgotten us would take the few topics of an incremental registration for
  all of them, so it is first asked for the data version that it was told last; if it does not know it, it
  gets a full registration instead;
* QUERY_DATA_VERSION in place of the periodic full registration when forceRegister is false.

The answer of the first NameServer in the list that gives one brings the order table (and, to a replica, its
master). Event loop only. Works without any NameServer.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from cometmq.errors import BrokerError, CometMQError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfigSerializeWrapper
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    BrokerHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
)
from cometmq.protocol.names import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection

log = logging.getLogger(__name__)

FIRST_PERIODIC_MS = 10_000
FULL_AFTER_CHANGE_MS = 1_000  # a full registration follows an incremental one after this
RETRY_MS_MIN = 200  # after a lost connection; doubled up to the maximum
RETRY_MS_MAX = 10_000
UNREGISTER_TIMEOUT_MS = 1_500
ADDRESS_SERVER_PERIOD_MS = 120_000
ADDRESS_SERVER_TIMEOUT_S = 3.0
CRC_MASK = 0x7FFFFFFF
MASTER_EPOCH_FIELD = "masterEpoch"  # ours; a NameServer of 4.9 ignores it


class Link:
    """What one NameServer knows about us."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: DataVersion | None = None  # data version of the last full registration it took
        self.connection: Connection | None = None  # the one it was told through
        self.retry_ms = RETRY_MS_MIN
        self.lock = asyncio.Lock()  # keeps a full and an incremental registration in order


class Registration:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._links: dict[str, Link] = {}
        self._changed: set[str] = set()
        self._telling = asyncio.Lock()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._fetched_addresses: list[str] = []
        self.failures = 0
        self.registrations = 0
        self.master_address: str | None = None  # for a replica: learnt from the answer
        self.master_ha_address: str | None = None
        self.on_master: Callable[[str | None, str | None], None] = lambda address, ha_address: None

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register everywhere once (failures are retried in the background), then keep at it."""
        if self._broker.config.fetch_namesrv_addr_by_address_server:
            await self._fetch_addresses()
            self._broker.periodic.every(
                ADDRESS_SERVER_PERIOD_MS, lambda: self._spawn(self._fetch_addresses())
            )
        await self.register_all()
        self._broker.periodic.every(
            lambda: self._broker.config.register_name_server_period, self._tick, first_ms=FIRST_PERIODIC_MS
        )

    async def stop(self) -> None:
        """Stop telling, and take back what was told."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        told = [link for link in self._links.values() if link.acknowledged is not None]
        await asyncio.gather(*(self._unregister(link) for link in told))

    @property
    def pending(self) -> bool:
        """Something is being told, or will be soon."""
        return bool(self._timers or self._tasks)

    @property
    def addresses(self) -> list[str]:
        return self._fetched_addresses or self._broker.config.nameservers

    def links(self) -> list[Link]:
        """One per NameServer of the list as it is now."""
        addresses = self.addresses
        for address in addresses:
            if address not in self._links:
                self._links[address] = Link(address)
        for gone in [address for address in self._links if address not in addresses]:
            del self._links[gone]
        return [self._links[address] for address in dict.fromkeys(addresses)]

    # -- what others call ------------------------------------------------------------------------------------

    def topics_changed(self, names: Iterable[str]) -> None:
        """Have changed topics told soon; without names all of them."""
        if self._stopping:
            return
        self._changed.update(names)
        if not self._changed:
            self._after("full", 0, self.register_all)
        else:
            self._after("incremental", 0, self._tell_changed)

    def role_changed(self) -> None:
        """We are master now, or not any more: tell it at once."""
        if not self._stopping:
            self._spawn(self.register_all())

    async def register_topics(self, names: Iterable[str]) -> None:
        """Tell these topics now; answers when every NameServer has them or failed."""
        self._changed.update(names)
        await self._tell_changed()

    async def register_all(self) -> None:
        """Tell everything to every NameServer now."""
        links = self.links()
        if links:
            body = self._body()
            results = await asyncio.gather(*(self._guard(link, self._full, body) for link in links))
            self._use_answer(next((answer for answer in results if answer is not None), None))

    # -- the steps -------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._broker.config.force_register:
            self._spawn(self.register_all())
        else:
            self._spawn(self._register_where_changed())

    async def _tell_changed(self) -> None:
        """One at a time: who comes second finds that his topics were told with the first, or tells the rest."""
        async with self._telling:
            topics, self._changed = list(self._changed), set()
            if not topics:
                return
            await asyncio.gather(*(self._guard(link, self._incremental, topics) for link in self.links()))
            self._after("full", FULL_AFTER_CHANGE_MS, self.register_all)

    async def _register_where_changed(self) -> None:
        links = self.links()
        known = await asyncio.gather(*(self._knows(link, self._broker.topics.data_version) for link in links))
        if not all(known):
            await self.register_all()

    async def _full(self, link: Link, body: RegisterBrokerBody) -> RemotingCommand:
        async with link.lock:
            return await self._register(link, body)

    async def _incremental(self, link: Link, names: list[str]) -> RemotingCommand | None:
        async with link.lock:
            if link.acknowledged is None or not await self._knows(link, link.acknowledged):
                return await self._register(link, self._body())
            body = self._body(names)
            if not body.topic_config_serialize_wrapper.topic_config_table:
                return None  # deleted meanwhile; deletion is told by the administrator, not by us
            return await self._register(link, body)

    async def _register(self, link: Link, body: RegisterBrokerBody) -> RemotingCommand:
        broker = self._broker
        config = broker.config
        data = body.encode(compressed=config.compressed_register)
        header = RegisterBrokerHeader(
            broker_name=config.broker_name,
            broker_addr=broker.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=broker.ha_address,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=zlib.crc32(data) & CRC_MASK,
        )
        command = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, data)
        if broker.group is not None and config.broker_id == 0:
            command.ext_fields = {
                **(command.ext_fields or {}),
                MASTER_EPOCH_FIELD: str(broker.group.master_epoch),
            }
        response = await broker.client.invoke(link.address, command, config.register_broker_timeout_mills)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, link.address)
        self.registrations += 1
        link.acknowledged = body.topic_config_serialize_wrapper.data_version
        link.retry_ms = RETRY_MS_MIN
        await self._watch(link)
        return response

    async def _knows(self, link: Link, version: DataVersion) -> bool:
        """The NameServer has exactly this data version of ours (asking also counts as a sign of life)."""
        command = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, self._identity(), version.encode())
        try:
            response = await self._broker.client.invoke(
                link.address, command, self._broker.config.register_broker_timeout_mills
            )
            if response.code != ResponseCode.SUCCESS:
                return False
            return not QueryDataVersionResponseHeader.decode(response.ext_fields).changed
        except CometMQError:
            return False

    async def _unregister(self, link: Link) -> None:
        command = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, self._identity())
        try:
            await self._broker.client.invoke(link.address, command, UNREGISTER_TIMEOUT_MS)
        except CometMQError as error:
            log.info("not unregistered nameserver=%s: %s", link.address, error)

    def _identity(self) -> BrokerHeader:
        config = self._broker.config
        return BrokerHeader(
            broker_name=config.broker_name,
            broker_addr=self._broker.address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )

    def _body(self, names: Iterable[str] | None = None) -> RegisterBrokerBody:
        snapshot = self._broker.topics.snapshot(names)
        permission = self._broker.config.broker_permission
        if not permission & PERM_READ or not permission & PERM_WRITE:
            snapshot = _with_permission(snapshot, permission)
        return RegisterBrokerBody(filter_server_list=[], topic_config_serialize_wrapper=snapshot)

    def _use_answer(self, response: RemotingCommand | None) -> None:
        if response is None:
            return
        header = RegisterBrokerResponseHeader.decode(response.ext_fields)
        if self._broker.config.is_slave and header.master_addr != self.master_address:
            self.master_address, self.master_ha_address = header.master_addr, header.ha_server_addr
            self.on_master(self.master_address, self.master_ha_address)
        if response.body:
            table = json_java.loads(response.body).get("table")
            if table is not None:
                self._broker.topics.apply_order_table(table)

    # -- failures and lost connections -----------------------------------------------------------------------

    async def _guard(
        self, link: Link, step: Callable[[Link, Any], Coroutine[Any, Any, Any]], told: Any
    ) -> Any:
        """Run a step for one NameServer; a failure is logged and tried again later."""
        try:
            return await step(link, told)
        except CometMQError as error:
            self.failures += 1
            log.warning("registration failed nameserver=%s: %s", link.address, error)
            self._retry(link)
            return None

    async def _watch(self, link: Link) -> None:
        connection = await self._broker.client.connection(link.address)
        if connection is not link.connection:
            link.connection = connection
            connection.on_close.append(lambda closed: self._lost(link))

    def _lost(self, link: Link) -> None:
        """A NameServer that went away may come back without a memory: tell it everything once it is there."""
        link.acknowledged = None
        self._retry(link)

    def _retry(self, link: Link) -> None:
        if self._stopping or link.address not in self._links:
            return
        self._after(
            f"retry {link.address}", link.retry_ms, lambda: self._guard(link, self._full, self._body())
        )
        link.retry_ms = min(link.retry_ms * 2, RETRY_MS_MAX)

    def _after(self, name: str, delay_ms: int, step: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a step once after a while; asking again before that changes nothing."""
        if self._stopping or name in self._timers:
            return

        def run() -> None:
            del self._timers[name]
            self._spawn(step())

        self._timers[name] = asyncio.get_running_loop().call_later(delay_ms / 1000, run)

    def _spawn(self, step: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failures += 1
            log.error("registration failed", exc_info=task.exception())

    # -- address server --------------------------------------------------------------------------------------

    async def _fetch_addresses(self) -> None:
        """The list of NameServers from a web server, as the original's rmqAddressServer keys say."""
        config = self._broker.config
        domain = config.system_properties.get("rocketmq.namesrv.domain", config.rmq_address_server_domain)
        domain = domain if ":" in domain else f"{domain}:8080"
        url = f"http://{domain}/rocketmq/{config.rmq_address_server_sub_group}"
        try:
            text = await asyncio.get_running_loop().run_in_executor(None, _http_get, url)
        except OSError as error:
            log.warning("no NameServer list from %s: %s", url, error)
            return
        found = [address.strip() for address in text.split(";") if address.strip()]
        if found and found != self._fetched_addresses:
            self._fetched_addresses = found
            self._spawn(self.register_all())


def _http_get(url: str) -> str:
    from urllib.request import urlopen  # few brokers use an address server

    with urlopen(url, timeout=ADDRESS_SERVER_TIMEOUT_S) as response:
        data: bytes = response.read()
    return data.decode()


def _with_permission(snapshot: TopicConfigSerializeWrapper, permission: int) -> TopicConfigSerializeWrapper:
    """The same topics with the permission of the broker in place of their own; the table stays as it is."""
    return TopicConfigSerializeWrapper(
        data_version=snapshot.data_version,
        topic_config_table={
            name: msgspec.structs.replace(config, perm=permission)
            for name, config in snapshot.topic_config_table.items()
        },
    )
