"""The story, act by act: direct calls in a surge, the same surge through a broker with a death, the count, Spark.

Runs on one event loop; what follows behind the broker are processes of their own (children.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from cometmq.client.client import Client
from cometmq.demo.charts import DepthChart, WaitingChart, charted
from cometmq.demo.children import Child, Children
from cometmq.demo.load import Crowd, Load, percentile
from cometmq.demo.plan import FOLLOWERS, QUEUES, STEPS_TOPIC, TICK_S, TOPIC, Plan
from cometmq.demo.screen import Screen, milliseconds
from cometmq.demo.service import DirectService, QueuedService
from cometmq.demo.spark_act import SparkAct
from cometmq.demo.tally import count_steps, read_steps
from cometmq.errors import CometMQError

TRACED = {"COMETMQ_TRACE": "1"}


class Story:
    """One telling in one directory. ``tell`` is False if a message was lost."""

    def __init__(
        self, plan: Plan, screen: Screen, directory: Path, *, spark: bool = True, report: Path | None = None
    ) -> None:
        self._plan = plan
        self._screen = screen
        self._directory = directory
        self._with_spark = spark
        self._report = report
        self._crowd = Crowd(plan.patience_s)
        self._followers: dict[str, Child] = {}

    async def tell(self) -> bool:
        plan, say = self._plan, self._screen.say
        say(
            self._screen.paint("Registration: one write (50 ms), then SMS, push, coupon (50 ms each)", "bold")
        )
        say(f"The service has {plan.workers} workers; a user goes away after {plan.patience_s:g} s.")
        act = SparkAct(self._screen, self._directory, self._report)
        async with Children(self._directory) as children:
            if self._with_spark:
                await act.start(children)
            await self._direct()
            await act.started()
            name_server = await self._start_broker(children)
            async with Client(name_server, trace=self._report is not None) as mq:
                whole = await self._queued(mq, children, name_server)
            if self._with_spark:
                whole = await act.play(name_server) and whole
        return whole

    # --- act 1 ---

    async def _direct(self) -> None:
        plan = self._plan
        self._screen.title("1. The service calls the three itself")
        service = DirectService(plan.workers)
        await self._calm(service.register)
        self._announce_surge()
        load = Load()
        chart = WaitingChart(self._screen, plan, load)
        wave = self._crowd.wave(service.register, plan.surge_users_per_s, plan.surge_s, load)
        await charted(wave, chart.draw)
        self._conclude(load)

    # --- act 2 ---

    async def _start_broker(self, children: Children) -> str:
        broker = await children.start("broker", "cometmq.demo.standalone", str(self._directory / "store"))
        name_server = await broker.ready()
        self._screen.title("2. The service tells a broker; three consumers follow")
        self._screen.say(f"  broker pid {broker.pid}, NameServer {name_server}")
        return name_server

    async def _queued(self, mq: Client, children: Children, name_server: str) -> bool:
        plan = self._plan
        for topic in (TOPIC, STEPS_TOPIC):
            await mq.admin.create_topic(topic, queues=QUEUES)
        await asyncio.gather(*(self._start_follower(children, step, name_server) for step in FOLLOWERS))
        pids = ", ".join(f"{step} pid {child.pid}" for step, child in self._followers.items())
        self._screen.say(f"  consumers {pids}: {plan.follower_concurrency} calls at a time each")
        service = QueuedService(plan.workers, mq.producer("registration-service"))
        calm = await self._calm(service.register)
        self._announce_surge()
        surge = Load()

        async def rise_and_fall() -> None:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(
                    self._crowd.wave(service.register, plan.surge_users_per_s, plan.surge_s, surge)
                )
                parts.create_task(self._kill_and_replace(children, "sms", name_server))

        await self._chart_depth(mq, surge, rise_and_fall())
        self._conclude(surge)
        return await self._count(mq, [*calm.answered, *surge.answered])

    async def _start_follower(self, children: Children, step: str, name_server: str) -> Child:
        child = await children.start(
            step,
            "cometmq.demo.follower",
            step,
            name_server,
            str(self._plan.follower_concurrency),
            environment=TRACED if self._report else None,
        )
        self._followers[step] = child
        await child.ready()
        return child

    async def _kill_and_replace(self, children: Children, step: str, name_server: str) -> None:
        await asyncio.sleep(self._plan.kill_after_s)
        victim = self._followers[step]
        await victim.kill()
        self._screen.event(f"SIGKILL for the {step} consumer, pid {victim.pid}")
        await asyncio.sleep(self._plan.down_s)
        child = await self._start_follower(children, step, name_server)
        self._screen.event(f"a new {step} consumer, pid {child.pid}")

    async def _chart_depth(self, mq: Client, load: Load, surge: Coroutine[Any, Any, None]) -> None:
        """Until the surge is over and the queues are empty again."""
        chart = DepthChart(self._screen, self._plan, load, mq)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await charted(surge, chart.draw)
        over = loop.time()
        while any(chart.depths.values()):
            if loop.time() - over > self._plan.drain_limit_s:
                raise CometMQError(
                    f"The queues are not empty after {self._plan.drain_limit_s:g} s: {chart.depths}."
                )
            await asyncio.sleep(TICK_S)
            await chart.draw(loop.time() - began)
        shown = ", ".join(f"{step} {peak}" for step, peak in chart.peaks.items())
        self._screen.say(
            f"  Deepest queues: {shown}; empty {loop.time() - over:.1f} s after the last answer."
        )

    async def _count(self, mq: Client, confirmed: list[str]) -> bool:
        counts = count_steps(confirmed, await read_steps(mq))
        self._screen.say(f"  Counted in the broker, for {len(confirmed)} users who got an answer:")
        self._screen.table(
            ("step", "users", "messages", "lost", "done twice"),
            [(count.step, count.users, count.events, count.lost, count.twice) for count in counts],
        )
        lost, twice = (sum(numbers) for numbers in zip(*((c.lost, c.twice) for c in counts), strict=True))
        if lost:
            self._screen.say(f"  LOST: {lost} steps.")
        else:
            again = f"; {twice} steps of the dead consumer were done again (at least once)" if twice else ""
            self._screen.say(f"  Nothing is lost{again}.")
        return not lost

    # --- both acts ---

    async def _calm(self, register: Callable[[str], Awaitable[None]]) -> Load:
        load = Load()
        await self._crowd.wave(register, self._plan.calm_users_per_s, self._plan.calm_s, load)
        self._screen.say(
            f"  Calm, {self._plan.calm_users_per_s} users a second: {len(load.answered)} answered, "
            f"p50 {milliseconds(percentile(load.latencies_ms, 0.5))}, "
            f"p99 {milliseconds(percentile(load.latencies_ms, 0.99))}"
        )
        return load

    def _announce_surge(self) -> None:
        plan = self._plan
        self._screen.say(f"  Surge, {plan.surge_users_per_s} users a second for {plan.surge_s:g} s:")

    def _conclude(self, load: Load) -> None:
        self._screen.say(
            f"  Answered {len(load.answered)} of {load.came} users, "
            f"p50 {milliseconds(percentile(load.latencies_ms, 0.5))}, "
            f"p99 {milliseconds(percentile(load.latencies_ms, 0.99))}; {load.gave_up} went away."
        )
