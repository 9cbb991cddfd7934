"""Who is connected: producers and consumers by group and by connection. In memory only, loop thread only.

A client is known through its heartbeats. The consumers of a group share one entry: the last heartbeat
decides its consume type and its subscriptions, as in the original (two clients of one group with different
subscriptions make the entry flap). ``ConsumerGroup.epoch`` grows with every change of that shared part, so
that a heartbeat which repeats the last one of its connection can be recognised as having nothing to say
(see handlers/clients.py).

An expired client is treated like one whose connection closed: the rest of its group is told. (The original
drops it silently and lets the group find out at its next rebalance.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cometmq.clock import Clock, now_ms
from cometmq.protocol.codes import LanguageCode

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData

log = logging.getLogger(__name__)

CLIENT_EXPIRY_MS = 120_000  # without a heartbeat
AVAILABLE_ATTEMPTS_MAX = 4  # producers tried for a check-back before one that does not read is taken
EXPIRED = "no_heartbeat"  # reason of closing


@dataclass(slots=True, eq=False)
class ClientInfo:
    """One client on one connection."""

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_update_ms: int


class GroupsOfConnections:
    """Which groups a connection is in: a closing connection must not cost a walk over all groups."""

    def __init__(self) -> None:
        self._groups: dict[Connection, set[str]] = {}

    def add(self, connection: Connection, group: str) -> None:
        self._groups.setdefault(connection, set()).add(group)

    def discard(self, connection: Connection, group: str) -> None:
        groups = self._groups.get(connection)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups[connection]

    def of(self, connection: Connection) -> list[str]:
        return sorted(self._groups.get(connection, ()))


class Producers:
    """Producers by group, and the connection of each client id (the last one to say so) for replies."""

    def __init__(self, *, now_ms: Clock = now_ms) -> None:
        self._now_ms = now_ms
        self._groups: dict[str, dict[Connection, ClientInfo]] = {}
        self._groups_of = GroupsOfConnections()
        self._clients: dict[str, ClientInfo] = {}
        self._turn = 0

    def register(self, group: str, info: ClientInfo) -> None:
        """A heartbeat of ``info`` named this group."""
        members = self._groups.setdefault(group, {})
        known = members.get(info.connection)
        if known is not info:
            if known is not None and self._clients.get(known.client_id) is known:
                del self._clients[known.client_id]  # the connection says another client id now
            members[info.connection] = info
            self._groups_of.add(info.connection, group)
            log.debug(
                "producer connected group=%s client=%s peer=%s", group, info.client_id, info.connection.peer
            )
        self._clients[info.client_id] = info

    def unregister(self, group: str, connection: Connection) -> None:
        members = self._groups.get(group)
        info = members.pop(connection, None) if members is not None else None
        if members is None or info is None:
            return
        if not members:
            del self._groups[group]
        self._groups_of.discard(connection, group)
        # The client may still be in other groups on this connection, or have moved to a new one.
        if not self._groups_of.of(connection) and self._clients.get(info.client_id) is info:
            del self._clients[info.client_id]

    def connection_closed(self, connection: Connection) -> None:
        for group in self._groups_of.of(connection):
            self.unregister(group, connection)

    def drop_expired(self) -> list[Connection]:
        """Forget clients without heartbeats; answers their connections, for closing."""
        oldest_ms = self._now_ms() - CLIENT_EXPIRY_MS
        gone = _silent(self._groups.values(), oldest_ms)
        for connection in gone:
            self.connection_closed(connection)
        return gone

    def groups(self) -> Mapping[str, Mapping[Connection, ClientInfo]]:
        return self._groups

    def members(self, group: str) -> list[ClientInfo]:
        return list(self._groups.get(group, {}).values())

    def has(self, group: str, info: ClientInfo) -> bool:
        return self._groups.get(group, {}).get(info.connection) is info

    def find_client(self, client_id: str) -> ClientInfo | None:
        return self._clients.get(client_id)

    def next_available(self, group: str) -> ClientInfo | None:
        """A member for a check-back, in turn, preferring those that take what they are sent."""
        members = [info for info in self.members(group) if not info.connection.closed]
        for _ in range(min(AVAILABLE_ATTEMPTS_MAX, len(members))):
            self._turn += 1
            info = members[self._turn % len(members)]
            if not info.connection.write_paused:
                return info
        return members[self._turn % len(members)] if members else None


class ConsumerGroup:
    """The online part of a consumer group."""

    __slots__ = (
        "consume_from_where", "consume_type", "epoch", "members", "message_model", "name", "subscriptions",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: str | None = None
        self.message_model: str | None = None
        self.consume_from_where: str | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.members: dict[Connection, ClientInfo] = {}
        self.epoch = 0

    def client_ids(self) -> list[str]:
        """One entry per connection: a client with two connections is there twice."""
        return [info.client_id for info in self.members.values()]

    def member(self, client_id: str) -> ClientInfo | None:
        for info in self.members.values():
            if info.client_id == client_id:
                return info
        return None

    def update(self, info: ClientInfo, data: ConsumerData) -> bool:
        """Take over a heartbeat; True when members or subscribed topics changed."""
        kind = (data.consume_type, data.message_model, data.consume_from_where)
        if kind != (self.consume_type, self.message_model, self.consume_from_where):
            self.consume_type, self.message_model, self.consume_from_where = kind
            self.epoch += 1
        joined = self._update_member(info)
        subscribed = self._update_subscriptions(data.subscription_data_set)
        return joined or subscribed

    def _update_member(self, info: ClientInfo) -> bool:
        known = self.members.get(info.connection)
        self.members[info.connection] = info
        return known is None

    def _update_subscriptions(self, wanted: Iterable[SubscriptionData]) -> bool:
        topics = {data.topic: data for data in wanted}
        changed = topics.keys() != self.subscriptions.keys()
        for topic, data in topics.items():
            known = self.subscriptions.get(topic)
            if known is None or data.sub_version > known.sub_version:
                self.subscriptions[topic] = data
                self.epoch += 1
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            del self.subscriptions[topic]
            self.epoch += 1
        return changed


def _ignore_change(group: ConsumerGroup) -> None:
    pass


def _ignore_end(name: str) -> None:
    pass


class Consumers:
    """Online consumer groups.

    ``on_change(group)`` is called when the members or the subscribed topics of a group changed and its
    members are to be told, ``on_end(name)`` when the last member of a group left.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[ConsumerGroup], None] = _ignore_change,
        on_end: Callable[[str], None] = _ignore_end,
        now_ms: Clock = now_ms,
    ) -> None:
        self._now_ms = now_ms
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of = GroupsOfConnections()
        self.epoch = 0  # grows with every change of what some group subscribes to, and when one comes or ends
        self.on_change = on_change
        self.on_end = on_end

    def register(self, info: ClientInfo, data: ConsumerData, *, notify: bool = True) -> bool:
        """One group of a heartbeat; True when the group changed."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        before = group.epoch
        changed = group.update(info, data)
        self.epoch += group.epoch - before
        self._groups_of.add(info.connection, group.name)
        if changed:
            log.info(
                "consumer group changed group=%s client=%s members=%d",
                group.name,
                info.client_id,
                len(group.members),
            )
            if notify:
                self.on_change(group)
        return changed

    def unregister(self, group_name: str, connection: Connection, *, notify: bool = True) -> None:
        group = self._groups.get(group_name)
        if group is None:
            return
        left = group.members.pop(connection, None)
        if left is not None:
            self._groups_of.discard(connection, group_name)
            log.info(
                "consumer left group=%s client=%s members=%d", group_name, left.client_id, len(group.members)
            )
        if not group.members:
            self._end(group_name)
        elif notify:
            self.on_change(group)

    def connection_closed(self, connection: Connection) -> None:
        """Tell the rest of each group, whatever the group's own switch says."""
        for name in self._groups_of.of(connection):
            self.unregister(name, connection)

    def drop_expired(self) -> list[Connection]:
        """Forget clients without heartbeats; answers their connections, for closing."""
        oldest_ms = self._now_ms() - CLIENT_EXPIRY_MS
        gone = _silent((group.members for group in self._groups.values()), oldest_ms)
        for connection in gone:
            self.connection_closed(connection)
        return gone

    def _end(self, group_name: str) -> None:
        del self._groups[group_name]
        self.epoch += 1
        self.on_end(group_name)

    def find(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def subscribes_other_topics_only(self, group: str, topic: str) -> bool:
        """The group is online with subscriptions, and ``topic`` is not among them (any more)."""
        found = self._groups.get(group)
        return found is not None and bool(found.subscriptions) and topic not in found.subscriptions

    def member(self, group: str, client_id: str) -> ClientInfo | None:
        found = self._groups.get(group)
        return None if found is None else found.member(client_id)

    def groups_of(self, topic: str) -> list[str]:
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)


def _silent(tables: Iterable[Mapping[Connection, ClientInfo]], oldest_ms: int) -> list[Connection]:
    """Connections whose client has sent no heartbeat since ``oldest_ms``."""
    silent = {
        connection: None
        for members in tables
        for connection, info in members.items()
        if info.last_update_ms < oldest_ms
    }
    return list(silent)
