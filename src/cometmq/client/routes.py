"""Routes: which brokers hold the queues of a topic, and at which address a broker is reached.

Asked from a NameServer when first needed and again every half minute; a failed or empty answer keeps the old
route. Loop thread only. Topic names here are wire names (with namespace).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cometmq.client.name_servers import NameServers
from cometmq.client.queue import Queue
from cometmq.client.queue_selection import RoundRobin
from cometmq.client.send_frames import DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUE_COUNT
from cometmq.errors import BrokerError, CometMQError, ConnectionLost, NoMaster, TopicNotFound
from cometmq.protocol.bodies.route import MASTER_ID, QueueData, TopicRouteData
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import GetRouteInfoHeader
from cometmq.protocol.names import PERM_READ, PERM_WRITE

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Route:
    """What is known about one topic."""

    topic: str
    data: TopicRouteData
    write_queues: list[Queue]
    read_queues: list[Queue]
    turn: RoundRobin = field(default_factory=RoundRobin)
    provisional: bool = False  # borrowed from the template topic: the real one does not exist yet

    @property
    def broker_names(self) -> list[str]:
        return [broker.broker_name for broker in self.data.broker_datas]


def write_queues(topic: str, data: TopicRouteData) -> list[Queue]:
    """Queues that producers use: those of an order configuration, else of every writable broker with a master."""
    if data.order_topic_conf:
        return _ordered_queues(topic, data.order_topic_conf)
    masters = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    return [
        Queue(topic, entry.broker_name, number)
        for entry in _by_name(data)
        if entry.perm & PERM_WRITE and entry.broker_name in masters
        for number in range(entry.write_queue_nums)
    ]


def read_queues(topic: str, data: TopicRouteData) -> list[Queue]:
    return [
        Queue(topic, entry.broker_name, number)
        for entry in _by_name(data)
        if entry.perm & PERM_READ
        for number in range(entry.read_queue_nums)
    ]


def _by_name(data: TopicRouteData) -> list[QueueData]:
    return sorted(data.queue_datas, key=lambda entry: entry.broker_name)


def _ordered_queues(topic: str, conf: str) -> list[Queue]:
    queues = []
    for item in conf.split(";"):
        name, _, count = item.partition(":")
        queues += [Queue(topic, name, number) for number in range(int(count or 0))]
    return queues


def _same(one: TopicRouteData, other: TopicRouteData) -> bool:
    def comparable(data: TopicRouteData) -> object:
        brokers = sorted((b.broker_name, sorted(b.broker_addrs.items())) for b in data.broker_datas)
        return data.order_topic_conf, _by_name(data), brokers

    return comparable(one) == comparable(other)


class Routes:
    """The route table of a client."""

    def __init__(self, name_servers: NameServers, timeout_ms: int) -> None:
        self._name_servers = name_servers
        self._timeout_ms = timeout_ms
        self._routes: dict[str, Route] = {}
        self._refreshing: dict[str, asyncio.Task[bool]] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self.changed: list[Callable[[str], None]] = []  # called with the topic, on the loop
        self.brokers_changed: list[Callable[[], None]] = []

    # --- topics ---

    def known(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        return list(self._routes)

    async def for_sending(self, topic: str) -> Route:
        """The route to send by; a topic that does not exist yet borrows the route of the template topic."""
        route = self._routes.get(topic)
        if route is not None and route.write_queues:
            return route
        if not await self.refresh(topic):
            await self._borrow(topic)
        route = self._routes.get(topic)
        if route is None:
            raise self.not_found(topic)
        if not route.write_queues:
            raise TopicNotFound(
                f"no queue of topic {topic!r} can be written: its master broker is away or its permission "
                "is read-only; check with: cometmq topic show " + topic
            )
        return route

    async def for_reading(self, topic: str) -> Route | None:
        """The route to read by, or None while the topic does not exist."""
        route = self._routes.get(topic)
        if route is None or route.provisional:
            await self.refresh(topic)
            route = self._routes.get(topic)
        return None if route is None or route.provisional else route

    def not_found(self, topic: str) -> TopicNotFound:
        servers = ";".join(self._name_servers.addresses)
        return TopicNotFound(
            f"no route for topic {topic!r} at {servers}: create it with: cometmq topic create {topic} "
            f"--servers {servers}"
        )

    async def refresh(self, topic: str) -> bool:
        """Ask a NameServer; whether the topic exists. Callers share one request per topic."""
        task = self._refreshing.get(topic)
        if task is None:
            task = asyncio.ensure_future(self._refresh(topic))
            self._refreshing[topic] = task
            task.add_done_callback(lambda _: self._refreshing.pop(topic, None))
        return await asyncio.shield(task)

    async def _refresh(self, topic: str) -> bool:
        data = await self.fetch(topic)
        if data is None:
            return False
        self.take(topic, data)
        return True

    async def fetch(self, topic: str) -> TopicRouteData | None:
        """The route as a NameServer has it now, None for an unknown topic. Nothing is remembered."""
        header = GetRouteInfoHeader(topic=topic, accept_standard_json_only=True)
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        response = await self._name_servers.invoke(command, self._timeout_ms)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark)
        return TopicRouteData.decode(response.body)

    async def _borrow(self, topic: str) -> None:
        data = await self.fetch(DEFAULT_TOPIC)
        if data is None:
            return
        for entry in data.queue_datas:
            count = min(DEFAULT_TOPIC_QUEUE_COUNT, entry.read_queue_nums)
            entry.read_queue_nums = entry.write_queue_nums = count
        self.take(topic, data, provisional=True)

    def take(self, topic: str, data: TopicRouteData, *, provisional: bool = False) -> None:
        """Remember a route; tells listeners when it differs from the old one."""
        old = self._routes.get(topic)
        self._take_brokers(data)
        if old is not None and old.provisional == provisional and _same(old.data, data):
            return
        turn = old.turn if old is not None else RoundRobin()
        self._routes[topic] = Route(
            topic, data, write_queues(topic, data), read_queues(topic, data), turn, provisional
        )
        for callback in self.changed:
            callback(topic)

    async def refresh_all(self, topics: Iterable[str]) -> None:
        """Ask for every topic in use; failures are logged and change nothing."""
        for topic in topics:
            try:
                await self.refresh(topic)
            except CometMQError as error:
                log.warning("route of topic=%s was not refreshed: %s", topic, error)

    def forget(self, topic: str) -> None:
        self._routes.pop(topic, None)

    # --- brokers ---

    def _take_brokers(self, data: TopicRouteData) -> None:
        news = False
        for broker in data.broker_datas:
            addresses = dict(broker.broker_addrs)
            if self._brokers.get(broker.broker_name) != addresses:
                self._brokers[broker.broker_name] = addresses
                news = True
        if news:
            for callback in self.brokers_changed:
                callback()

    def drop_vanished_brokers(self) -> None:
        """Forget addresses that no route names any more."""
        named = {
            (broker.broker_name, address)
            for route in self._routes.values()
            for broker in route.data.broker_datas
            for address in broker.broker_addrs.values()
        }
        for name, addresses in list(self._brokers.items()):
            kept = {number: address for number, address in addresses.items() if (name, address) in named}
            if kept:
                self._brokers[name] = kept
            else:
                del self._brokers[name]

    def addresses(self, *, masters_only: bool) -> list[str]:
        return [
            address
            for broker in self._brokers.values()
            for number, address in broker.items()
            if number == MASTER_ID or not masters_only
        ]

    def know_master(self, broker_name: str, address: str) -> None:
        """A broker that is not the master said who is."""
        addresses = self._brokers.get(broker_name)
        if addresses is not None and address and addresses.get(MASTER_ID) != address:
            self._brokers[broker_name] = {**addresses, MASTER_ID: address}

    def master(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, wanted_id: int = MASTER_ID) -> tuple[str, bool] | None:
        """Address to read from, and whether it is a slave: the wanted one, the next, or any."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        candidates = [wanted_id, wanted_id + 1] if wanted_id != MASTER_ID else [wanted_id]
        for number in [*candidates, *addresses]:
            if number in addresses:
                return addresses[number], number != MASTER_ID
        return None

    async def master_of(self, broker_name: str, topic: str) -> str:
        """As ``master``, after asking once more if it is not known."""
        address = self.master(broker_name)
        if address is None:
            await self.refresh(topic)
            address = self.master(broker_name)
        if address is None:
            raise NoMaster(f"broker {broker_name!r} of topic {topic!r} has no master at the moment")
        return address

    async def reader_of(self, broker_name: str, topic: str, wanted_id: int = MASTER_ID) -> tuple[str, bool]:
        found = self.reader(broker_name, wanted_id)
        if found is None:
            await self.refresh(topic)
            found = self.reader(broker_name, wanted_id)
        if found is None:
            raise ConnectionLost(f"broker {broker_name!r} of topic {topic!r} is not known to any NameServer")
        return found

    def any_address(self, topic: str) -> str | None:
        """A random broker of the topic: its master, else any of its slaves."""
        route = self._routes.get(topic)
        if route is None:
            return None
        brokers = [broker.broker_addrs for broker in route.data.broker_datas if broker.broker_addrs]
        if not brokers:
            return None
        chosen = random.choice(brokers)
        return chosen.get(MASTER_ID) or random.choice(list(chosen.values()))
