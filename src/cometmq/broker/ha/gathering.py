"""Gathering: how much of the log is sent to followers at once.

What one turn of the loop appends is sent together. While a send's answer waits for a follower that is all; where nobody
waits, and the last sending was a moment ago, more is gathered first: each sending costs both sides some calls of the
kernel and wakes the follower, whatever it carries. Loop thread only.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable

GATHER_S = 0.002  # how much later a follower may have what nobody waits for


class Gathering:
    def __init__(self, send: Callable[[], None], is_awaited: Callable[[], bool]) -> None:
        self._send = send
        self._is_awaited = is_awaited
        self._scheduled = False
        self._sent_s = 0.0

    def grew(self) -> None:
        """Inside an append."""
        if self._scheduled:
            return
        self._scheduled = True
        loop = get_running_loop()
        if self._is_awaited() or loop.time() - self._sent_s >= GATHER_S:
            loop.call_soon(self._run)
        else:
            loop.call_later(GATHER_S, self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._sent_s = get_running_loop().time()
        self._send()
