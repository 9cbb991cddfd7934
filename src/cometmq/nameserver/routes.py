"""Who serves which topic: the tables of a NameServer. Pure: no IO, no clock, no encoding.

Theory of operation
-------------------
Three tables describe the cluster (topic -> broker name -> queues; broker name -> id -> address; cluster ->
broker names) and one says who is alive (address -> last registration). A registration carries a *data version*;
the queues of a master are taken over when it differs from the stored one, and only then, because wiped write
permissions live in these tables and must outlast the unchanged registrations that come every 30 s.

A broker that changed one topic registers that topic alone, under its new version ("incremental"). If that is
the first thing a restarted NameServer hears, the version looks known while the other topics are missing. So the
live entry also remembers how many topics came with its version: a registration of the same version with more
topics than that is taken over too. A registration is known to be complete when it names the broker's own topic,
which every broker has; until then QUERY_DATA_VERSION answers "changed", so that the broker sends everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from cometmq.errors import CometMQError
from cometmq.protocol.bodies.route import MASTER_ID, BrokerData, QueueData
from cometmq.protocol.bodies.topic import DataVersion
from cometmq.protocol.names import PERM_READ, PERM_WRITE, UNIT_FLAG, UNIT_SUB_FLAG

log = logging.getLogger(__name__)

BROKER_EXPIRY_MS = 120_000


@dataclass
class LiveBroker:
    """The last registration from one address."""

    address: str
    broker_name: str
    last_update_ms: int
    data_version: DataVersion
    owner: Hashable  # the connection it registered over
    ha_server_addr: str
    topic_count: int  # topics in the largest registration of this data version
    complete: bool  # every topic of the broker has come since it was first seen


class OldEpoch(CometMQError):
    """A master registers that was replaced meanwhile."""


@dataclass(frozen=True)
class Registration:
    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_addr: str
    data_version: DataVersion
    topics: dict[str, QueueData]
    filter_servers: list[str] | None = None  # None: as before
    master_epoch: int = 0  # of a master that was elected; 0: nothing is known


@dataclass(frozen=True)
class Master:
    """What a registering replica is told."""

    address: str
    ha_server_addr: str


@dataclass(frozen=True)
class Route:
    brokers: list[BrokerData]
    queues: list[QueueData]
    filter_servers: dict[str, list[str]]


class RouteTable:
    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._groups: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, LiveBroker] = {}
        self._filter_servers: dict[str, list[str]] = {}
        self._epochs: dict[str, int] = {}  # of the last elected master of a broker name
        self._perm_changed: set[str] = set()  # broker names whose permissions an operator changed here
        self.revision = 0  # grows with every change that a route can show

    # --- registration ---

    def register(self, registration: Registration, owner: Hashable, now_ms: int) -> Master | None:
        """Take a registration over; a replica is told its master when that is alive.

        Raises OldEpoch for a master that was replaced.
        """
        self._check_epoch(registration)
        known = self._live.get(registration.address)
        first = self._place(registration)
        complete = registration.broker_id != MASTER_ID or registration.broker_name in registration.topics
        count = len(registration.topics)
        if first or known is None:
            self._take_topics(registration, keep_perm=False)
        elif known.data_version != registration.data_version:
            self._take_topics(registration, keep_perm=False)
            complete = complete or known.complete
        else:
            if count > known.topic_count:
                self._take_topics(registration, keep_perm=registration.broker_name in self._perm_changed)
            complete = complete or known.complete
            count = max(count, known.topic_count)
        self._live[registration.address] = LiveBroker(
            registration.address, registration.broker_name, now_ms, registration.data_version,
            owner, registration.ha_server_addr, count, complete,
        )  # fmt: skip
        self._set_filter_servers(registration.address, registration.filter_servers)
        return self._master_for(registration)

    def _check_epoch(self, registration: Registration) -> None:
        name = registration.broker_name
        latest = self._epochs.get(name, 0)
        if registration.broker_id != MASTER_ID:
            return
        if registration.master_epoch < latest:
            raise OldEpoch(
                f"{registration.address} is not the master of {name} any more: it was elected in epoch "
                f"{registration.master_epoch}, another one in epoch {latest}."
            )
        if registration.master_epoch:
            self._epochs[name] = registration.master_epoch

    def _place(self, registration: Registration) -> bool:
        """Put the address where it belongs; True when nobody was there (its topics must be taken over)."""
        name, address = registration.broker_name, registration.address
        self._clusters.setdefault(registration.cluster, set()).add(name)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = BrokerData(cluster=registration.cluster, broker_name=name)
        before = dict(group.broker_addrs)
        for other_id in [
            i for i, a in group.broker_addrs.items() if a == address and i != registration.broker_id
        ]:
            del group.broker_addrs[other_id]  # a replica that became master
        previous = group.broker_addrs.get(registration.broker_id)
        if previous is not None and previous != address:
            log.warning(
                "broker=%s id=%s moves from %s to %s", name, registration.broker_id, previous, address
            )
        group.broker_addrs[registration.broker_id] = address
        if group.broker_addrs != before:
            self.revision += 1
        return previous is None

    def _take_topics(self, registration: Registration, *, keep_perm: bool) -> None:
        """Replicas contribute no topics; topics that are missing from a registration stay."""
        if registration.broker_id != MASTER_ID:
            return
        name = registration.broker_name
        for topic, queues in registration.topics.items():
            brokers = self._topics.setdefault(topic, {})
            known = brokers.get(name)
            if keep_perm and known is not None:
                queues = msgspec.structs.replace(queues, perm=known.perm)
            brokers[name] = queues
        if not keep_perm and name in registration.topics:
            self._perm_changed.discard(name)
        self.revision += 1

    def _set_filter_servers(self, address: str, servers: list[str] | None) -> None:
        if servers:
            self._filter_servers[address] = servers
            self.revision += 1
        elif servers is not None and self._filter_servers.pop(address, None) is not None:
            self.revision += 1

    def _master_for(self, registration: Registration) -> Master | None:
        if registration.broker_id == MASTER_ID:
            return None
        address = self._groups[registration.broker_name].broker_addrs.get(MASTER_ID)
        live = self._live.get(address) if address is not None else None
        return Master(live.address, live.ha_server_addr) if live is not None else None

    def query_data_version(
        self, address: str, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Whether the broker has something to register, and what is known. An unchanged one counts as alive."""
        live = self._live.get(address)
        if live is None:
            return True, None
        changed = live.data_version != data_version or not live.complete
        if not changed:
            live.last_update_ms = now_ms
        return changed, live.data_version

    # --- leaving ---

    def unregister(self, *, broker_name: str, broker_id: int, address: str) -> None:
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        group = self._groups.get(broker_name)
        # Only the address that leaves: the id may have a new owner already.
        if group is not None and group.broker_addrs.get(broker_id) == address:
            self._remove_address(group, address)

    def lost(self, owner: Hashable) -> list[LiveBroker]:
        """A connection is gone: so are the brokers that registered over it."""
        gone = [live for live in self._live.values() if live.owner == owner]
        self._remove_live(gone)
        return gone

    def expire(self, now_ms: int) -> list[LiveBroker]:
        """Remove and return the brokers that were silent for too long."""
        gone = [live for live in self._live.values() if now_ms - live.last_update_ms > BROKER_EXPIRY_MS]
        self._remove_live(gone)
        return gone

    def _remove_live(self, gone: Iterable[LiveBroker]) -> None:
        for live in gone:
            del self._live[live.address]
            self._filter_servers.pop(live.address, None)
            group = self._groups.get(live.broker_name)
            if group is not None:
                self._remove_address(group, live.address)

    def _remove_address(self, group: BrokerData, address: str) -> None:
        for broker_id in [i for i, a in group.broker_addrs.items() if a == address]:
            del group.broker_addrs[broker_id]
        self.revision += 1
        if group.broker_addrs:
            return
        name = group.broker_name
        del self._groups[name]
        self._epochs.pop(name, None)
        self._perm_changed.discard(name)
        for cluster in [c for c, names in self._clusters.items() if name in names]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        self._drop_queues(list(self._topics), {name})

    def _drop_queues(self, topics: Iterable[str], broker_names: Iterable[str]) -> None:
        for topic in topics:
            brokers = self._topics.get(topic, {})
            for name in broker_names:
                brokers.pop(name, None)
            if not brokers:
                self._topics.pop(topic, None)
        self.revision += 1

    # --- questions ---

    @property
    def live_brokers(self) -> list[LiveBroker]:
        return list(self._live.values())

    def route(self, topic: str) -> Route | None:
        """The queues of a topic and the addresses of their brokers; None when no broker is known for it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        groups = [self._groups[name] for name in queues if name in self._groups]
        if not groups:
            return None
        addresses = [address for group in groups for address in group.broker_addrs.values()]
        filters = {a: self._filter_servers[a] for a in addresses if a in self._filter_servers}
        return Route(groups, list(queues.values()), filters)

    @property
    def groups(self) -> dict[str, BrokerData]:
        return self._groups

    @property
    def clusters(self) -> dict[str, set[str]]:
        return self._clusters

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._clusters.get(cluster, set())
        return [topic for topic, brokers in self._topics.items() if not names.isdisjoint(brokers)]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Names of clusters and brokers (each is a topic too), and the address of any one broker."""
        names: dict[str, None] = {}
        for cluster, brokers in self._clusters.items():
            names[cluster] = None
            names.update(dict.fromkeys(sorted(brokers)))
        return list(names), next(self._addresses(), None)

    def _addresses(self) -> Iterator[str]:
        for group in self._groups.values():
            yield from group.broker_addrs.values()

    def topics_where(self, matches: Callable[[int], bool]) -> list[str]:
        """Topics by their unit flags, which are those of their first broker."""
        return [
            t for t, brokers in self._topics.items() if matches(next(iter(brokers.values())).topic_sys_flag)
        ]

    # --- operators ---

    def wipe_write_perm(self, broker_name: str) -> int:
        """No more writing to a broker; returns the number of topics. Holds until it registers something new."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Every topic of the broker gets exactly read and write, also those that had another permission."""
        return self._change_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for brokers in self._topics.values():
            queues = brokers.get(broker_name)
            if queues is not None:
                brokers[broker_name] = msgspec.structs.replace(queues, perm=change(queues.perm))
                count += 1
        if count:
            self._perm_changed.add(broker_name)
            self.revision += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        if cluster:
            self._drop_queues([topic], self._clusters.get(cluster, set()))
        elif self._topics.pop(topic, None) is not None:
            self.revision += 1


def is_unit(flag: int) -> bool:
    return bool(flag & UNIT_FLAG)


def has_unit_subscription(flag: int) -> bool:
    return bool(flag & UNIT_SUB_FLAG)


def has_unit_subscription_only(flag: int) -> bool:
    return has_unit_subscription(flag) and not is_unit(flag)
