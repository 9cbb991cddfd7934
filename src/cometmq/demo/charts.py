"""Charts of a surge, one line a tick: users who wait for the service, messages that wait for the followers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from cometmq.demo.load import Load, Tick, percentile
from cometmq.demo.plan import FOLLOWERS, TICK_S, TOPIC, Plan, group_of
from cometmq.demo.screen import Screen, milliseconds

if TYPE_CHECKING:
    from cometmq.client.client import Client

COLOURS = dict(zip(FOLLOWERS, ("green", "yellow", "cyan"), strict=True))


class WaitingChart:
    """How many users came, were answered, wait and went away."""

    def __init__(self, screen: Screen, plan: Plan, load: Load) -> None:
        self._screen = screen
        self._load = load
        self._scale = 1.1 * plan.surge_users_per_s * plan.patience_s  # more cannot wait: users go away
        screen.say("   time   came  answered     p50      p99  waiting  gave up")

    async def draw(self, elapsed_s: float) -> None:
        tick = self._load.tick()
        p50, p99 = _latencies(tick)
        self._screen.say(
            f"  {elapsed_s:4.1f} s  {tick.came:5}  {len(tick.answered_ms):8}  {p50:>7}  {p99:>7}  "
            f"{tick.waiting:7}  {tick.gave_up:7}  {self._screen.bar(tick.waiting, self._scale, 'red')}"
        )


class DepthChart:
    """How fast the service answers, and how many messages each follower has before it."""

    def __init__(self, screen: Screen, plan: Plan, load: Load, mq: Client) -> None:
        self._screen = screen
        self._load = load
        self._mq = mq
        self._scale = plan.depth_scale
        self.depths = dict.fromkeys(FOLLOWERS, 0)
        self.peaks = dict.fromkeys(FOLLOWERS, 0)
        heads = "  ".join(f"{'waiting for ' + step:<20}" for step in FOLLOWERS)
        screen.say(f"   time   came     p50     p99   {heads}")

    async def draw(self, elapsed_s: float) -> None:
        tick = self._load.tick()
        p50, p99 = _latencies(tick)
        bars = [await self._bar(step) for step in FOLLOWERS]
        self._screen.say(f"  {elapsed_s:4.1f} s  {tick.came:5}  {p50:>6}  {p99:>6}   {'  '.join(bars)}")

    async def _bar(self, step: str) -> str:
        depth = sum((await self._mq.admin.lag(group_of(step), TOPIC)).values())
        self.depths[step] = depth
        self.peaks[step] = max(self.peaks[step], depth)
        return f"{self._screen.bar(depth, self._scale, COLOURS[step])} {depth:5}"


def _latencies(tick: Tick) -> tuple[str, str]:
    p50, p99 = (milliseconds(percentile(tick.answered_ms, share)) for share in (0.5, 0.99))
    return p50, p99


async def charted(work: Coroutine[Any, Any, None], draw: Callable[[float], Awaitable[None]]) -> None:
    """Draw a line every tick while the work goes on, and one at its end."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    task = asyncio.ensure_future(work)
    try:
        ticks = 1
        while not task.done():
            await asyncio.wait({task}, timeout=max(0.0, began + ticks * TICK_S - loop.time()))
            await draw(loop.time() - began)
            ticks += 1
        await task
    finally:
        task.cancel()
