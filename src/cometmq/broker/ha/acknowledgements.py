"""Who waits for a slave, and how far the slaves are: the rule of SYNC_MASTER.

After an append the answer waits until any one slave has the record. There must be a slave that is less than
haSlaveFallbehindMax behind, else the answer says at once SLAVE_NOT_AVAILABLE; after slaveTimeout it says
FLUSH_SLAVE_TIMEOUT. In all cases the message is stored. Waits end in the order of the log, so one queue and one
timer serve them all. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cometmq.broker.config import BrokerConfig
from cometmq.store.model import PutResult, PutStatus

Settled = Callable[[PutStatus], None]
SYNC_MASTER = "SYNC_MASTER"


class Wait(NamedTuple):
    end_offset: int
    deadline_s: float
    callback: Settled


class Acknowledgements:
    """``acknowledged_offset`` never goes back: what a slave has reported it has written."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._waits: deque[Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.slave_count = 0  # slaves that have reported where they are
        self.acknowledged_offset = 0
        self.not_available = 0
        self.timeouts = 0

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def must_wait(self, result: PutResult) -> bool:
        return self._config.broker_role == SYNC_MASTER and result.end_offset > self.acknowledged_offset

    def wait(self, result: PutResult, callback: Settled) -> None:
        """callback(status) when a slave has everything below the end of this put, or never will in time."""
        if result.end_offset <= self.acknowledged_offset:
            callback(PutStatus.PUT_OK)
            return
        behind = result.end_offset - self.acknowledged_offset
        if not self.slave_count or behind >= self._config.ha_slave_fallbehind_max:
            self.not_available += 1
            callback(PutStatus.SLAVE_NOT_AVAILABLE)
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._config.slave_timeout / 1000
        self._waits.append(Wait(result.end_offset, deadline_s, callback))
        if self._timer is None:
            self._timer = loop.call_at(deadline_s, self._expire)

    def acknowledge(self, physical_offset: int) -> None:
        """A slave has everything below this offset."""
        if physical_offset <= self.acknowledged_offset:
            return
        self.acknowledged_offset = physical_offset
        while self._waits and self._waits[0].end_offset <= physical_offset:
            self._waits.popleft().callback(PutStatus.PUT_OK)

    def stop(self) -> None:
        """Nobody will acknowledge any more."""
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
