"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

CHECK_INTERVAL_S = 0.01


async def eventually(
    condition: Callable[[], T | Awaitable[T]], timeout: float = 5.0, what: str | None = None
) -> T:
    """Wait until ``condition()`` is true and return its value; AssertionError after ``timeout`` seconds.

    >>> asyncio.run(eventually(lambda: 42))
    42
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if loop.time() > deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} was not true within {timeout} s; last value: {value!r}")
        await asyncio.sleep(CHECK_INTERVAL_S)
