"""What is done to a group while clients work: the faults that processes and signals can do.

Each fault is a coroutine over a ``Trial``; when it returns, the group may still be hurt. ``Trial.heal`` mends it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ha.history import History
from ha.workload import Workload

from cometmq.testing.group_control import GroupControl
from cometmq.testing.group_processes import GroupProcesses


class Trial:
    """One group, its clients, its history; faults one after the other."""

    def __init__(
        self, group: GroupProcesses, control: GroupControl, load: Workload, history: History
    ) -> None:
        self.group, self.control, self.load, self.history = group, control, load, history

    async def master(self) -> int:
        return await self.control.master()

    async def followers(self) -> list[int]:
        master = await self.master()
        return [number for number in self.group.ids if number != master]

    def note(self, what: str) -> None:
        self.history.add("operator", "fault", value=what)

    async def recovered(self, count: int = 50) -> None:
        """Sends go on."""
        await self.load.more(count)
        self.history.add("operator", "recovered")

    async def heal(self) -> None:
        """Everybody runs, votes and is in sync again."""
        for number in self.group.ids:
            if self.group.alive(number):
                self.group.resume(number)
            else:
                self.group.start(number)
        await self.control.voting()  # else the next fault may find too few
        await self.control.until(self._all_caught_up, "every replica in sync, with all that is confirmed")

    async def _all_caught_up(self) -> bool:
        """By `quorum` a replica that went down may not even have left the set: it must have come back, too."""
        master = await self.control.master(in_sync=len(self.group.ids))
        status = await self.control.status(master)
        if status is None or status["unclean"]:
            return False
        found = status["followers"]
        return all(
            str(number) in found and found[str(number)]["acknowledgedOffset"] >= status["confirmOffset"]
            for number in self.group.ids
            if number != master
        )


Fault = Callable[[Trial], Awaitable[None]]


async def kill_master(trial: Trial) -> None:
    """F-01."""
    master = await trial.master()
    await trial.control.lead(next(number for number in trial.group.voters if number != master))
    await trial.load.more(50)
    master = await trial.master()
    trial.note("killed the master")
    trial.group.kill(master)
    await trial.recovered()


async def kill_master_and_leader(trial: Trial) -> None:
    """F-02."""
    master = await trial.master()
    await trial.control.lead(master)
    trial.note("killed the master, which led the controllers")
    trial.group.kill(master)
    await trial.recovered()


async def kill_follower(trial: Trial) -> None:
    """F-03."""
    follower = random.choice(await trial.followers())
    trial.note("killed a follower")
    trial.group.kill(follower)
    await trial.recovered()


async def kill_all(trial: Trial) -> None:
    """F-04."""
    trial.note("killed everybody")
    for number in trial.group.ids:
        trial.group.kill(number)
    for number in trial.group.ids:
        trial.group.start(number)
    await trial.recovered()


async def kill_rejoining(trial: Trial) -> None:
    """F-05: the old master again and again while it rejoins."""
    master = await trial.master()
    trial.note("killed the master, and again while it rejoined")
    trial.group.kill(master)
    await trial.recovered()
    for _ in range(3):
        trial.group.start(master)
        await asyncio.sleep(random.uniform(0.0, 0.7))
        trial.group.kill(master)


async def stop_master(trial: Trial, seconds: float = 2.0) -> None:
    """F-06: SIGSTOP, then SIGCONT: nothing may be answered that it cannot confirm."""
    master = await trial.master()
    trial.note(f"stopped the master for {seconds:g} s")
    trial.group.pause(master)
    await asyncio.sleep(seconds)
    trial.group.resume(master)
    await trial.recovered()


def stopped_master(seconds: float) -> Fault:
    async def stop(trial: Trial) -> None:
        await stop_master(trial, seconds)

    return stop


async def stop_follower(trial: Trial, seconds: float = 3.0) -> None:
    """F-07."""
    follower = random.choice(await trial.followers())
    trial.note("stopped a follower")
    trial.group.pause(follower)
    await asyncio.sleep(seconds)
    await trial.recovered()
    trial.group.resume(follower)


async def planned_switch(trial: Trial) -> None:
    """F-15 with our own clients."""
    trial.load.watch_leases = False
    master = await trial.master()
    answer = await trial.control.switch(master)
    assert answer.code == 0, answer.remark
    await trial.recovered()


async def wipe_follower(trial: Trial) -> None:
    """F-26: the store of a follower is lost."""
    follower = random.choice(await trial.followers())
    trial.note("wiped a follower")
    trial.group.kill(follower)
    trial.group.wipe(follower)
    await trial.recovered()


async def wipe_master(trial: Trial) -> None:
    """F-26: the store of the master is lost."""
    master = await trial.master()
    trial.note("wiped the master")
    trial.group.kill(master)
    trial.group.wipe(master)
    await trial.recovered()
