"""A world in one thread: virtual milliseconds, a network that fails in every way, and chance from one seed.

Nothing in it reads a real clock. The same seed makes the same run, event by event.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any], None]


class Violation(AssertionError):
    """The protocol broke a promise."""


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0  # milliseconds
        self.network = Network(self)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), action, arguments))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def run_until(self, end: float) -> None:
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= end:
            self.now, _, action, arguments = pop(events)
            action(*arguments)
        self.now = end


class Network:
    """Delivers ``message`` to the handler of an address, unless it does not."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._handlers: dict[Any, Handler] = {}
        self._cut: set[tuple[Any, Any]] = set()  # (from, to), one way
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_max = 5.0
        self.delivered = 0

    def attach(self, address: Any, handler: Handler) -> None:
        self._handlers[address] = handler

    def detach(self, address: Any) -> None:
        self._handlers.pop(address, None)

    def cut(self, sender: Any, to: Any) -> None:
        self._cut.add((sender, to))

    def isolate(self, some: set[Any], everybody: set[Any]) -> None:
        """Nothing passes between these and the others."""
        for one in some:
            for other in everybody - some:
                self._cut |= {(one, other), (other, one)}

    def heal(self) -> None:
        self._cut.clear()

    def is_cut(self, sender: Any, to: Any) -> bool:
        return (sender, to) in self._cut

    def send(self, sender: Any, to: Any, message: Any) -> None:
        chance = self._world.random.random
        copies = 2 if self.duplication and chance() < self.duplication else 1
        for _ in range(copies):
            if not self.loss or chance() >= self.loss:
                self._world.after(chance() * self.delay_max + 0.1, self._deliver, sender, to, message)

    def _deliver(self, sender: Any, to: Any, message: Any) -> None:
        handler = self._handlers.get(to)
        if handler is not None and (sender, to) not in self._cut:
            self.delivered += 1
            handler(message)
