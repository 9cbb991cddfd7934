"""Sends that wait until their bytes are confirmed, in the order of the log. Loop thread only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cometmq.store.model import PutStatus

Settled = Callable[[PutStatus], None]


class Wait(NamedTuple):
    end_offset: int
    deadline_s: float
    callback: Settled


class ConfirmWaits:
    def __init__(self, timeout_ms: Callable[[], int]) -> None:
        self._timeout_ms = timeout_ms
        self._waits: deque[Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.timeouts = 0

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, end_offset: int, callback: Settled) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_ms() / 1000
        self._waits.append(Wait(end_offset, deadline_s, callback))
        if self._timer is None:
            self._timer = loop.call_at(deadline_s, self._expire)

    def confirmed(self, physical_offset: int, status: PutStatus) -> None:
        while self._waits and self._waits[0].end_offset <= physical_offset:
            self._waits.popleft().callback(status)

    def give_up(self) -> None:
        """Nobody will confirm these here any more: whether they are kept is not known."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waits:
            self._waits.popleft().callback(PutStatus.FLUSH_SLAVE_TIMEOUT)

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while self._waits and self._waits[0].deadline_s <= now_s:
            self.timeouts += 1
            self._waits.popleft().callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
        if self._waits:
            self._timer = loop.call_at(self._waits[0].deadline_s, self._expire)
