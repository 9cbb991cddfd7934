"""Wall clock in milliseconds. Everything that needs the time takes such a function as a parameter."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """Milliseconds since the machine was switched on; time in suspend counts, the wall clock does not matter."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000


def steady(clock: Clock) -> Clock:
    """For spans of time rather than dates: nobody can set it. A clock that was injected serves for both."""
    return boot_ms if clock is now_ms else clock


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))
