"""Slow links, wrong clocks, and a random mix of everything; clients at work, promises checked. ``make test-ha``.

``HA_MIX_S`` is how long the mix runs (ha.md asks for hours).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ha import clocks, damage, faults, partitions, power, shim
from ha.faults import Fault, Trial
from ha.network import Network, NetworkedGroup, unavailable
from ha.relay import RelayedGroup
from ha.trials import run_faults

from cometmq.testing.group_processes import NAME_SERVER

TIMES = int(os.environ.get("HA_TIMES", "1"))
MIX_S = float(os.environ.get("HA_MIX_S", "60"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(100_000)]


async def keep_sending(trial: Trial) -> None:
    """The link is the fault."""
    trial.note("slow links")
    await trial.recovered(60)


@pytest.mark.parametrize("delay_ms", [50, 200])
def test_slow_links_that_break(delay_ms: int, tmp_path: Path) -> None:
    """F-13: with jitter and resets; a master is killed on top of it."""
    some: list[Fault] = [keep_sending, faults.kill_master]
    with RelayedGroup(tmp_path, delay_ms) as group:
        print("F-13", delay_ms, "ms", TIMES, asyncio.run(run_faults(group, some * TIMES)))


@pytest.mark.skipif(not clocks.library(), reason="libfaketime is not installed (package faketime)")
def test_wall_clocks_that_jump(tmp_path: Path) -> None:
    """F-30."""
    with clocks.FakeClocks(tmp_path, settings=clocks.PATIENT) as group:
        print("F-30", TIMES, asyncio.run(run_faults(group, [clocks.jumps] * TIMES)))


class AnythingGoes(NetworkedGroup, power.PoweredGroup):
    """Brokers whose network and whose power can fail."""


MIX: list[Fault] = [
    faults.kill_master,
    faults.kill_master_and_leader,
    faults.kill_follower,
    faults.kill_rejoining,
    faults.stop_master,
    faults.stop_follower,
    faults.planned_switch,
    faults.wipe_follower,
    faults.wipe_master,
    partitions.isolate_master,
    partitions.isolate_follower,
    partitions.isolate_master_from_brokers,
    partitions.mute_master,
    partitions.deafen_master,
    partitions.cut_one_link,
    power.of_one,
    *(
        damage.killed_and(one, master=master)
        for one in (damage.cut_tail, damage.flip_in_log, damage.flip_in_queue, damage.flip_in_epochs)
        for master in (True, False)
    ),
]


def until(deadline: float, told: list[str]) -> Iterator[Fault]:
    while time.monotonic() < deadline:
        fault = random.choice(MIX)
        told.append(getattr(fault, "__name__", "?"))
        yield fault


@pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a network")
@pytest.mark.skipif(bool(shim.unavailable()), reason=shim.unavailable() or "there is a compiler")
def test_random_mix(tmp_path: Path) -> None:
    """F-50."""
    done: list[str] = []
    with (
        Network([NAME_SERVER, 1, 2, 3]) as network,
        AnythingGoes(network, tmp_path) as group,
    ):
        told = asyncio.run(run_faults(group, until(time.monotonic() + MIX_S, done)))
    print("F-50", f"{MIX_S:g} s", told, "faults:", ", ".join(done))
