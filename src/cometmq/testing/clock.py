"""A clock that runs like the wall clock and can be turned forward, with a loop that follows it.

Everything in a broker takes its time from ``now_ms`` or from timers of its loop. ``VirtualClock`` is the
first, ``ClockedLoop`` gives the second: after ``advance`` timers that have become due fire at once. Thread-safe.
"""

from __future__ import annotations

import asyncio
import time


class VirtualClock:
    """Wall time plus what a test added."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as this clock says."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    __call__ = now_ms

    @property
    def ahead_s(self) -> float:
        """How far it was turned, in seconds."""
        return self._ahead_ms / 1000

    def advance(self, seconds: float) -> None:
        """Turn the clock forward."""
        if seconds < 0:
            raise ValueError("a clock is turned forward, not back")
        self._ahead_ms += round(seconds * 1000)


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers follow a VirtualClock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        return super().time() + self._clock.ahead_s
