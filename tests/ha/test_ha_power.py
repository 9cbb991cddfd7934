"""Loss of power of one machine, of all, of the last one; clients at work, promises checked. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from ha import power
from ha.checker import check, summary
from ha.faults import Fault
from ha.shim import unavailable
from ha.trials import CHECKED, QUORUM, make_history, run_faults

TIMES = int(os.environ.get("HA_TIMES", "1"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a compiler"),
]


def run(
    directory: Path,
    faults: list[Fault],
    settings: dict[str, str] | None = None,
    *,
    invariants: Iterable[str] = CHECKED,
    voters_elsewhere: bool = False,
) -> str:
    with power.PoweredGroup(directory, settings, voters_elsewhere=voters_elsewhere) as group:
        return asyncio.run(run_faults(group, faults, invariants))


def test_power_loss_of_one_machine(tmp_path: Path) -> None:
    """F-20: at level insync, fewer machines than minInSyncReplicas."""
    print("F-20", 3 * TIMES, run(tmp_path, [power.of_one] * 3 * TIMES))


def test_power_loss_of_one_machine_by_quorum(tmp_path: Path) -> None:
    """F-33 with F-20: what two of three have survives the loss of one."""
    print("F-33", "F-20", 3 * TIMES, run(tmp_path, [power.of_one] * 3 * TIMES, QUORUM))


# When all machines go down nobody remembers locks, and consumers' positions are those of the last file (5 s), as in
# 4.9.
ALL_DOWN = tuple(name for name in CHECKED if name not in ("H10", "H11"))


def test_power_loss_of_all_machines(tmp_path: Path) -> None:
    """F-21: at level insync+disk nothing is lost."""
    told = run(tmp_path, [power.of_all] * 3 * TIMES, power.ON_DISK, invariants=ALL_DOWN)
    print("F-21", 3 * TIMES, told)


def test_power_loss_of_the_last_machine(tmp_path: Path) -> None:
    """F-23."""
    told = run(tmp_path, [power.of_the_last] * 2 * TIMES, invariants=ALL_DOWN, voters_elsewhere=True)
    print("F-23", 2 * TIMES, told)


def test_power_loss_of_all_machines_without_their_disks(tmp_path: Path) -> None:
    """F-22: at level insync confirmed messages may go down with all machines; how many is measured. What is there
    afterwards is the same everywhere."""
    with power.PoweredGroup(tmp_path) as group:
        events, _ = asyncio.run(make_history(group, [power.of_all_and_force] * TIMES))
    lost = check(events, ["H1"])
    since = max(event.t for event in events if event.op == "fault")
    later = [event for event in events if event.op != "read" or event.t > since]
    assert not check(later, ["H2", "H4", "H8", "H9"])
    print("F-22", TIMES, summary(events), f"acknowledged and lost: {len(lost)}")
