"""Which queue a message goes to: round robin, away from failing brokers, or by a key.

``BrokerHealth`` remembers how slow each broker was and for how long to stay away from it (RocketMQ's latency fault
table). ``RoundRobin`` is the counter of one topic. Both are plain state, loop thread only, and read no clock
themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cometmq.client.queue import Queue
from cometmq.errors import ClientError
from cometmq.protocol.hashing import java_string_hash

ISOLATION_LATENCY_MS = 30_000
# Latency at least so long (ms): stay away so long (ms).
LATENCY_STEPS = (
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
)


def unavailable_ms(latency_ms: float) -> int:
    """How long a broker with this latency is avoided.

    >>> unavailable_ms(40), unavailable_ms(600), unavailable_ms(30_000)
    (0, 30000, 600000)
    """
    for step_ms, away_ms in LATENCY_STEPS:
        if latency_ms >= step_ms:
            return away_ms
    return 0


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_at_ms: int


class BrokerHealth:
    """Latency and availability of each broker, by name."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def record(self, broker_name: str, latency_ms: float, now_ms: int) -> None:
        self._faults[broker_name] = _Fault(latency_ms, now_ms + unavailable_ms(latency_ms))

    def isolate(self, broker_name: str, now_ms: int) -> None:
        self.record(broker_name, ISOLATION_LATENCY_MS, now_ms)

    def available(self, broker_name: str, now_ms: int) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.available_at_ms

    def least_bad(self, turn: int, now_ms: int) -> str | None:
        """One of the better half of the known brokers (available first, then the fastest)."""
        ranked = sorted(
            self._faults,
            key=lambda name: (
                not self.available(name, now_ms),
                self._faults[name].latency_ms,
                self._faults[name].available_at_ms,
            ),
        )
        if not ranked:
            return None
        return ranked[turn % max(1, len(ranked) // 2)]

    def forget(self, broker_name: str) -> None:
        self._faults.pop(broker_name, None)


class RoundRobin:
    """The turn counter of one topic; starts at a random queue so that many clients do not march in step."""

    __slots__ = ("_turn",)

    def __init__(self, start: int | None = None) -> None:
        self._turn = random.randrange(1 << 16) if start is None else start

    def next(self, queues: Sequence[Queue], avoid: str | None = None) -> Queue:
        """The next queue, on another broker than ``avoid`` if there is one."""
        count = len(queues)
        if avoid is not None:
            for _ in range(count):
                queue = queues[self.step() % count]
                if queue.broker_name != avoid:
                    return queue
        return queues[self.step() % count]

    def next_healthy(self, queues: Sequence[Queue], health: BrokerHealth, now_ms: int) -> Queue:
        """The next queue whose broker is available; else one of the least bad broker; else simply the next."""
        count = len(queues)
        start = self.step()
        for step in range(count):
            queue = queues[(start + step) % count]
            if health.available(queue.broker_name, now_ms):
                return queue
        best = health.least_bad(start, now_ms)
        if best is not None:
            of_best = [queue for queue in queues if queue.broker_name == best]
            if of_best:
                return of_best[start % len(of_best)]
            health.forget(best)
        return self.next(queues)

    def step(self) -> int:
        """The next turn."""
        self._turn = (self._turn + 1) & 0x7FFFFFFF
        return self._turn


def fnv1a(text: str) -> int:
    """FNV-1a, 32 bits, of the UTF-8 text: what the Go client hashes its sharding key with."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def by_java_hash(queues: Sequence[Queue], key: str) -> Queue:
    """As Java's SelectMessageQueueByHash: the remainder keeps the sign of the hash, then its absolute value."""
    return queues[abs(java_string_hash(key)) % len(queues)]


def by_fnv(queues: Sequence[Queue], key: str) -> Queue:
    return queues[fnv1a(key) % len(queues)]


KEY_HASHES: dict[str, Callable[[Sequence[Queue], str], Queue]] = {"java": by_java_hash, "fnv": by_fnv}


def by_key(queues: Sequence[Queue], key: str, hash_name: str = "java") -> Queue:
    """The queue of an ordering key.

    >>> queues = [Queue("T", "a", n) for n in range(8)]
    >>> by_key(queues, "order-1").queue_id
    6
    """
    try:
        return KEY_HASHES[hash_name](queues, key)
    except KeyError:
        raise ClientError(f"hash {hash_name!r} is unknown; use one of {', '.join(KEY_HASHES)}") from None
