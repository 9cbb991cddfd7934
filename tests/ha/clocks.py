"""Wall clocks that are wrong by an hour and jump (ha.md 12.6, F-30): libfaketime in the broker processes.

Monotonic clocks stay as they are, as on a machine whose time is set by somebody.
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import cache
from pathlib import Path

from ha.faults import Trial

from cometmq.testing.group_processes import GroupProcesses

PLACES = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime")
JUMPS = 4
JUMP_S = 5.0
HOUR_S = 3_600


@cache
def library() -> str:
    """Path of libfaketime; empty without."""
    found = (Path(place) / "libfaketimeMT.so.1" for place in PLACES)
    return next((str(path) for path in found if path.exists()), "")


# Much shorter than the jumps, and longer than a busy machine keeps a process from running: libfaketime is slow.
PATIENT = {
    "controllerElectionTimeoutMs": "3000..6000",
    "haLeaseMs": "6000",
    "haSessionTimeoutMs": "10000",
    "haMaxTimeSlaveNotCatchup": "10000",
}


class FakeClocks(GroupProcesses):
    def offset_file(self, number: int) -> Path:
        return self.directory / f"clock-{number}"

    def environment_of(self, number: int) -> dict[str, str]:
        if not self.offset_file(number).exists():
            self.set_clock(number, 0)
        return {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self.offset_file(number)),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "FAKETIME_CACHE_DURATION": "1",
            "TZ": os.environ.get("TZ", "UTC"),
        }

    def set_clock(self, number: int, offset_s: int) -> None:
        beside = self.offset_file(number).with_suffix(".new")
        beside.write_text(f"{offset_s:+d}\n")
        beside.rename(self.offset_file(number))


async def jumps(trial: Trial) -> None:
    """Each clock by up to an hour in either direction, every five seconds; nobody is elected because of it."""
    group = trial.group
    assert isinstance(group, FakeClocks)
    epoch = await _epoch(trial)
    trial.note("clocks jump")
    for _ in range(JUMPS):
        for number in group.ids:
            group.set_clock(number, random.choice((-HOUR_S, 0, HOUR_S, random.randint(-HOUR_S, HOUR_S))))
        await asyncio.sleep(JUMP_S)
        await trial.load.more(50)
    for number in group.ids:
        group.set_clock(number, 0)
    await trial.recovered()
    assert await _epoch(trial) == epoch, "somebody was elected because a clock was set"


async def _epoch(trial: Trial) -> int:
    return max(status["epoch"] for status in (await trial.control.statuses()).values())
