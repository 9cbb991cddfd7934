"""Waiting for a condition with a deadline; the interop tests never sleep for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def wait_for(condition: Callable[[], T], what: str, timeout: float = 20) -> T:
    """Return the first true value of ``condition()``; after ``timeout`` s fail, saying what was awaited."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what}; last value: {value!r}")
        time.sleep(POLL_SECONDS)
