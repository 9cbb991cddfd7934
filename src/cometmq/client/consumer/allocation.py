"""Who reads which queue: the allocation strategies of a consumer group.

Every member of a group computes the whole allocation by itself from the same two sorted lists (queues of the topic,
client ids of the group), so each member of any language must come to the same answer. The formulas are therefore
part of the protocol between clients; tests/unit/client/test_allocation.py holds the vectors of the Java classes.

Pure functions of their arguments. A strategy returns the queues of ``client_id``; a client that the broker
does not list yet owns nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cometmq.client.queue import Queue
from cometmq.errors import ClientError

VIRTUAL_NODE_COUNT = 10

_T = TypeVar("_T")


class Allocation(Protocol):
    """A strategy. ``queues`` and ``client_ids`` arrive sorted."""

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]: ...


def _takes_part(client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]) -> bool:
    if not client_id or not queues or not client_ids:
        raise ClientError("queues cannot be shared out: client id, queues or members are missing")
    return client_id in client_ids


@dataclass(frozen=True, slots=True)
class Average:
    """Contiguous blocks, the first members get one more. The default in every language."""

    name: str = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]:
        if not _takes_part(client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        size, extra = divmod(len(queues), len(client_ids))
        start = index * size + min(index, extra)
        return list(queues[start : start + size + (index < extra)])


@dataclass(frozen=True, slots=True)
class Circle:
    """Dealt out one by one, like cards."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]:
        if not _takes_part(client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


def _ring_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _queue_text(queue: Queue) -> str:
    # Java's MessageQueue.toString() is what gets hashed, so this spelling is protocol.
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A ring of MD5 hashes; few queues move when a member comes or goes. Go builds another ring: do not
    mix languages.
    """

    virtual_nodes: int = VIRTUAL_NODE_COUNT
    name: str = "CONSISTENT_HASH"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]:
        if not _takes_part(client_id, queues, client_ids):
            return []
        ring = {_ring_hash(f"{owner}-{k}"): owner for owner in client_ids for k in range(self.virtual_nodes)}
        points = sorted(ring)
        mine = []
        for queue in queues:
            at = bisect_left(points, _ring_hash(_queue_text(queue)))
            if ring[points[at % len(points)]] == client_id:
                mine.append(queue)
        return mine


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Only queues of brokers named ``room@name`` whose room is in ``rooms``, in blocks; the rest is dealt out."""

    rooms: Collection[str]
    name: str = "MACHINE_ROOM"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]:
        if not _takes_part(client_id, queues, client_ids):
            return []
        near = [queue for queue in queues if self._room(queue.broker_name) in self.rooms]
        index = client_ids.index(client_id)
        size, extra = divmod(len(near), len(client_ids))
        mine = near[index * size : (index + 1) * size]
        if extra > index:
            mine.append(near[index + size * len(client_ids)])
        return mine

    @staticmethod
    def _room(broker_name: str) -> str | None:
        parts = broker_name.split("@")
        return parts[0] if len(parts) == 2 else None


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues of my room go to members of my room; rooms without members are shared by everybody."""

    inner: Allocation
    room_of_queue: Callable[[Queue], str | None]
    room_of_client: Callable[[str], str | None]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]:
        if not _takes_part(client_id, queues, client_ids):
            return []
        queues_by_room = self._by_room(queues, self.room_of_queue)
        clients_by_room = self._by_room(client_ids, self.room_of_client)
        room = self.room_of_client(client_id)
        mine: list[Queue] = []
        for other in sorted(queues_by_room):
            if other == room:
                mine += self.inner.allocate(group, client_id, queues_by_room[other], clients_by_room[other])
            elif other not in clients_by_room:
                mine += self.inner.allocate(group, client_id, queues_by_room[other], client_ids)
        return mine

    @staticmethod
    def _by_room(things: Sequence[_T], room_of: Callable[[_T], str | None]) -> dict[str, list[_T]]:
        rooms: dict[str, list[_T]] = {}
        for thing in things:
            room = room_of(thing)
            if not room:
                raise ClientError(f"no machine room is known for {thing}; the resolver must name one")
            rooms.setdefault(room, []).append(thing)
        return rooms


@dataclass(frozen=True, slots=True)
class Config:
    """A fixed list: this member reads exactly these queues."""

    queues: Sequence[Queue]
    name: str = "CONFIG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]
    ) -> list[Queue]:
        return list(self.queues)
