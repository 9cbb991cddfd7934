"""Queue locks of ordered consumption: which client of a group may consume a queue. In memory only.

A lock is free for everybody once its owner has not renewed it for a minute (a system property may say otherwise),
so a broker that forgets its locks (restart) and a client that dies without unlocking cost the group at most that
long. Setting the wall clock ends no lock. Pure table, loop thread only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from cometmq.clock import Clock, boot_ms
from cometmq.errors import ConfigError

LOCK_LIVE_MS_MAX = 60_000
LOCK_LIVE_PROPERTY = "rocketmq.broker.rebalance.lockMaxLiveTime"  # ms; a system property of the Java broker

Queue = TypeVar("Queue", bound=Hashable)


@dataclass(slots=True)
class QueueLock:
    client_id: str
    renewed_ms: int


def lock_live_ms(properties: Mapping[str, str]) -> int:
    """How long a lock lives without renewal, by the system properties of a broker."""
    text = properties.get(LOCK_LIVE_PROPERTY, str(LOCK_LIVE_MS_MAX))
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{LOCK_LIVE_PROPERTY}={text} is no number of milliseconds.")
    return int(text)


class QueueLocks:
    """Locks per group and queue. A queue is any hashable value; it is not checked for existence."""

    def __init__(self, *, live_ms_max: int = LOCK_LIVE_MS_MAX, now_ms: Clock = boot_ms) -> None:
        self._live_ms_max = live_ms_max
        self._now_ms = now_ms
        self._groups: dict[str, dict[Hashable, QueueLock]] = {}
        self._changed: dict[tuple[str, Hashable], str | None] | None = None  # new owners, for replicas

    def lock(self, group: str, client_id: str, queues: Iterable[Queue]) -> list[Queue]:
        """Take or renew locks; answers those of ``queues`` that ``client_id`` holds now."""
        now = self._now_ms()
        table = self._groups.setdefault(group, {})
        locked = [queue for queue in queues if self._take(table, queue, client_id, now)]
        if self._changed is not None:
            self._changed.update({(group, queue): client_id for queue in locked})
        return locked

    def _take(self, table: dict[Hashable, QueueLock], queue: Hashable, client_id: str, now: int) -> bool:
        held = table.get(queue)
        if held is None:
            table[queue] = QueueLock(client_id, now)
            return True
        if held.client_id != client_id and not self._expired(held, now):
            return False
        held.client_id = client_id
        held.renewed_ms = now
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[Hashable]) -> None:
        """Give back locks; those of other clients stay."""
        table = self._groups.get(group, {})
        for queue in queues:
            held = table.get(queue)
            if held is not None and held.client_id == client_id:
                del table[queue]
                if self._changed is not None:
                    self._changed[(group, queue)] = None

    def owner(self, group: str, queue: Hashable) -> str | None:
        held = self._groups.get(group, {}).get(queue)
        return None if held is None or self._expired(held, self._now_ms()) else held.client_id

    def drop_expired(self) -> int:
        """Forget locks that anybody could take, so that the table does not grow for ever; how many."""
        now = self._now_ms()
        dropped = 0
        for group, table in list(self._groups.items()):
            dead = [queue for queue, held in table.items() if self._expired(held, now)]
            for queue in dead:
                del table[queue]
            dropped += len(dead)
            if not table:
                del self._groups[group]
        return dropped

    # --- replicas ---

    def track(self) -> None:
        """Remember changes from now on, for ``take_changed``."""
        self._changed = {}

    def take_changed(self) -> list[tuple[str, Hashable, str | None]]:
        """Group, queue and new owner (None: unlocked) of every lock taken, renewed or given back since."""
        changed, self._changed = self._changed or {}, {}
        return [(group, queue, owner) for (group, queue), owner in changed.items()]

    def entries(self) -> list[tuple[str, Hashable, str]]:
        return [
            (group, queue, held.client_id)
            for group, table in self._groups.items()
            for queue, held in table.items()
            if not self._expired(held, self._now_ms())
        ]

    def assign(self, group: str, queue: Hashable, client_id: str | None) -> None:
        """What the master says; a lock that is taken over has its whole life before it."""
        if client_id is None:
            self._groups.get(group, {}).pop(queue, None)
        else:
            self._groups.setdefault(group, {})[queue] = QueueLock(client_id, self._now_ms())

    def renew_all(self) -> None:
        """A new master does not know when its locks were renewed last: all have their whole life before them."""
        now = self._now_ms()
        for table in self._groups.values():
            for held in table.values():
                held.renewed_ms = now

    def clear(self) -> None:
        self._groups.clear()

    def _expired(self, held: QueueLock, now: int) -> bool:
        return now - held.renewed_ms > self._live_ms_max
