"""Tasks that run beside the application: each its own, so that a slow one delays no other. Loop thread only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Background:
    """A set of tasks that end together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run it now; an error is logged. None once closed."""
        if self._closed:
            work.close()
            return None
        task = asyncio.ensure_future(work)
        task.set_name(name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background task %s failed", task.get_name(), exc_info=task.exception())

    def every(
        self, interval_s: float, work: Callable[[], Awaitable[Any]], name: str, first_s: float | None = None
    ) -> None:
        """Run ``work`` again and again; the pause counts from its end."""
        self.spawn(_repeat(interval_s, work, name, interval_s if first_s is None else first_s), name)

    async def close(self) -> None:
        """Cancel everything and wait until it has ended. The caller's own task is left alone."""
        self._closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _repeat(interval_s: float, work: Callable[[], Awaitable[Any]], name: str, first_s: float) -> None:
    await asyncio.sleep(first_s)
    while True:
        try:
            await work()
        except Exception:
            log.exception("background work %s failed; next try in %.1f s", name, interval_s)
        await asyncio.sleep(interval_s)


class Wake:
    """Many wishes, one wake-up: ``set()`` may be called any number of times before the waiter looks."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Whether it was set; False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self._event.clear()
        return True
