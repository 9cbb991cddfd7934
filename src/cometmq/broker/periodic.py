"""Work that a broker repeats: one loop timer per job, errors logged and counted, all cancelled together.

Event loop only. A job is a plain function; what takes long belongs into a thread that the job starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Periodic:
    """The repeating jobs of one broker."""

    def __init__(self) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False
        self.failures = 0

    def every(
        self, interval_ms: int | Callable[[], int], job: Callable[[], object], *, first_ms: int | None = None
    ) -> None:
        """Run job after first_ms (or one interval), then again an interval after each end."""
        name = f"{getattr(job, '__module__', '')}.{getattr(job, '__qualname__', job)}#{len(self._timers)}"
        period = interval_ms if callable(interval_ms) else lambda: interval_ms
        self._schedule(name, period() if first_ms is None else first_ms, period, job)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _schedule(
        self, name: str, delay_ms: int, period: Callable[[], int], job: Callable[[], object]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(delay_ms / 1000, self._run, name, period, job)

    def _run(self, name: str, period: Callable[[], int], job: Callable[[], object]) -> None:
        try:
            job()
        except Exception:
            self.failures += 1
            log.exception("periodic work failed job=%s", name)
        if not self._stopped:
            self._schedule(name, period(), period, job)
