"""Wall clock in milliseconds. Everything that needs the time takes such a function as a parameter."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
