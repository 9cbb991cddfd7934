"""The timeline of a failover, measured: milliseconds from the last good send before a fault to the next one.

    python -m bench.failover                         every event five times, default settings
    python -m bench.failover --runs 50 --profile fast --events "kill master"
    python -m bench.failover --runs 50 --profile default,fast --json gaps.json --page docs/ha/failover.md

Three brokers and a NameServer, each a process on this machine; clients are this package's, four sends at a time of
1 KiB, level insync. After each fault everything is mended and in sync again before the next one. A run takes three to
four seconds; figures are added to those that the file of ``--json`` has already, so a long series can be run in pieces.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.failover import table
from bench.failover.table import PROFILES, TARGETS, Found
from cometmq.client.client import Client
from cometmq.client.producer import Producer
from cometmq.errors import CometMQError
from cometmq.protocol.message import Message
from cometmq.testing.group_control import GroupControl
from cometmq.testing.group_processes import FAST_PROFILE, GroupProcesses

TOPIC = "Failover"
SENDERS = 4
BODY = b"x" * 1024
CALM_S = 0.6  # of good sends before a fault
AFTER_S = 1.0  # of good sends after it
SETTLED_S = 0.3  # and so long without a pause at the end
LIMIT_S = 30.0
# Of a send, where a process is stopped: it keeps its connections, so only a missing answer tells. Default, fast.
STOP_TIMEOUT_S = (0.25, 0.15)


class Sends:
    """Sends all the time and remembers when a send was good."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._tasks: list[asyncio.Task[None]] = []
        self.timeout_s = LIMIT_S
        self.good: list[float] = []
        self.errors: list[str] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._send_on()) for _ in range(SENDERS)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send_on(self) -> None:
        while True:
            try:
                result = await self._producer.send(Message(TOPIC, BODY), timeout=self.timeout_s)
            except CometMQError as error:
                self.errors.append(str(error))
            else:
                if result.status.name == "SEND_OK":
                    self.good.append(time.monotonic())

    async def calm(self, seconds: float = CALM_S) -> None:
        """Wait until there were good sends for so long."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            await asyncio.sleep(0.02)
            if not self.good or time.monotonic() - self.good[-1] > seconds:
                began = time.monotonic()

    async def gap_after(self, fault_at: float) -> float:
        """The longest time without a good send from the last one before the fault on."""
        deadline = fault_at + LIMIT_S
        while not self.good or self.good[-1] < fault_at + AFTER_S:
            if time.monotonic() > deadline:
                return LIMIT_S
            await asyncio.sleep(0.02)
        await self.calm(SETTLED_S)
        times = self.good[max(bisect.bisect_left(self.good, fault_at) - 1, 0) :]
        return max(after - before for before, after in itertools.pairwise(times))


class Faults:
    def __init__(self, group: GroupProcesses, control: GroupControl, sends: Sends, fast: bool) -> None:
        self.group, self.control, self.sends, self._fast = group, control, sends, fast

    async def measure(self, event: str) -> float:
        """Milliseconds."""
        group, control = self.group, self.control
        await control.master(in_sync=len(group.ids))
        await self._place_leader(event)
        self.sends.timeout_s = STOP_TIMEOUT_S[self._fast] if "stop" in event else LIMIT_S
        await self.sends.calm()
        master = await control.master(in_sync=len(group.ids))
        victim = master
        if "follower" in event:
            victim = random.choice([number for number in group.ids if number != master])
        at = time.monotonic()
        gap = await self._do(event, victim, at)
        for number in group.ids:
            if not group.alive(number):
                group.start(number)
        return gap * 1000

    async def _place_leader(self, event: str) -> None:
        """Faults of the table say where the leader of the controllers is; followers' ones leave it with the master."""
        master = await self.control.master()
        together = "leader" in event or "follower" in event
        others = [number for number in self.group.ids if number != master]
        await self.control.lead(master if together else random.choice(others))

    async def _do(self, event: str, victim: int, at: float) -> float:
        if event == "planned switch":
            answer, gap = await asyncio.gather(self.control.switch(victim), self.sends.gap_after(at))
            if answer.code != 0:
                self.sends.errors.append(f"switch: {answer.remark}")
            return gap
        if event.startswith("kill"):
            self.group.kill(victim)
            return await self.sends.gap_after(at)
        self.group.pause(victim)
        try:
            return await asyncio.wait_for(self.sends.gap_after(at), LIMIT_S)
        finally:
            self.group.resume(victim)


async def measure(
    group: GroupProcesses,
    events: list[str],
    runs: int,
    fast: bool,
    report: Callable[[str, dict[str, Any]], None],
) -> None:
    async with GroupControl(group) as control, Client(group.name_server) as client:
        await control.master(in_sync=len(group.ids))
        sends = Sends(client.producer("failover", timeout=LIMIT_S, retries=1_000))
        sends.start()
        try:
            await sends.calm()
            faults = Faults(group, control, sends, fast)
            for event in events:
                before = len(sends.errors)
                gaps = sorted([round(await faults.measure(event), 1) for _ in range(runs)])
                report(event, {"gaps": gaps, "errors": len(sends.errors) - before})
        finally:
            await sends.stop()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--profile", default="default", help="default, fast, or default,fast")
    parser.add_argument("--events", default=",".join(TARGETS), help="comma separated")
    parser.add_argument("--directory", type=Path, help="for stores and logs (kept)")
    parser.add_argument("--json", type=Path, help="add every figure there")
    parser.add_argument("--page", type=Path, help="write the table with its explanation there")
    parser.add_argument("--machine", default="2 cores, loopback", help="named on the page")
    args = parser.parse_args()
    args.events = [event.strip() for event in args.events.split(",")]
    args.profiles = args.profile.split(",")
    unknown = (set(args.events) - TARGETS.keys()) | (set(args.profiles) - set(PROFILES))
    if unknown:
        parser.error(f"no such event or profile: {', '.join(sorted(unknown))}")
    return args


def main() -> int:
    args = arguments()
    found: Found = {}
    print(table.line(list(table.HEADINGS)), "|" + "---|" * len(table.HEADINGS), sep="\n", flush=True)
    for profile in args.profiles:

        def report(event: str, figures: dict[str, Any], profile: str = profile) -> None:
            print(table.line(table.row(profile, event, figures)), flush=True)
            table.add(found, {profile: {event: figures}})
            if args.json:
                args.json.write_text(
                    json.dumps(table.add(table.read(args.json), {profile: {event: figures}}))
                )

        fast = profile == "fast"
        directory = args.directory / profile if args.directory else None
        with GroupProcesses(directory, settings=FAST_PROFILE if fast else None) as group:
            asyncio.run(measure(group, args.events, args.runs, fast, report))
    every = table.read(args.json) if args.json else found
    if args.page:
        args.page.write_text(table.page(every, args.machine))
    return 0 if all(row[-2] == "yes" for row in table.rows(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
