"""Users who come at a given rate whether or not the service keeps up, and how long each waits for the answer."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Register = Callable[[str], Awaitable[None]]


class Tick(NamedTuple):
    """What happened since the last look."""

    came: int
    answered_ms: list[float]
    gave_up: int
    waiting: int


@dataclass(slots=True)
class Load:
    """Counts of one wave of users. ``answered`` are those whose registration was confirmed."""

    came: int = 0
    gave_up: int = 0
    answered: list[str] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    _seen: tuple[int, int, int] = (0, 0, 0)

    @property
    def waiting(self) -> int:
        return self.came - len(self.answered) - self.gave_up

    def tick(self) -> Tick:
        came, answered, gave_up = self._seen
        self._seen = (self.came, len(self.answered), self.gave_up)
        return Tick(
            self.came - came, self.latencies_ms[answered:], self.gave_up - gave_up, max(0, self.waiting)
        )


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least ``share`` of all do not exceed; nan without values.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Crowd:
    """Sends waves of users to a service. Names of users never repeat."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._numbers = itertools.count(1)

    async def wave(self, register: Register, users_per_s: int, seconds: float, load: Load) -> None:
        """Users come evenly; returns when the last one has an answer or has gone away."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as users:
            for number in range(round(users_per_s * seconds)):
                due = began + number / users_per_s
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                load.came += 1
                users.create_task(self._user(register, f"user-{next(self._numbers)}", due, load))

    async def _user(self, register: Register, name: str, due: float, load: Load) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(due + self._patience_s):
                await register(name)
        except TimeoutError:
            load.gave_up += 1
            return
        load.answered.append(name)
        load.latencies_ms.append((loop.time() - due) * 1000)
