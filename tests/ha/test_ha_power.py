"""Loss of power of one machine, of all, of the last one; clients at work, promises checked. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from ha import power
from ha.faults import Fault
from ha.shim import unavailable
from ha.trials import CHECKED, run_faults

TIMES = int(os.environ.get("HA_TIMES", "1"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a compiler"),
]


def run(
    directory: Path, faults: list[Fault], settings: dict[str, str] | None = None, **options: object
) -> str:
    with power.PoweredGroup(directory, settings) as group:
        return asyncio.run(run_faults(group, faults, **options))  # type: ignore[arg-type]


def test_power_loss_of_one_machine(tmp_path: Path) -> None:
    """F-20: at level insync, fewer machines than minInSyncReplicas."""
    print("F-20", 3 * TIMES, run(tmp_path, [power.of_one] * 3 * TIMES))


# Queue locks are in the memory of the replicas, as in 4.9: when all of them go down nobody remembers.
WITHOUT_LOCKS = tuple(name for name in CHECKED if name != "H11")


def test_power_loss_of_all_machines(tmp_path: Path) -> None:
    """F-21: at level insync+disk nothing is lost."""
    told = run(tmp_path, [power.of_all] * 3 * TIMES, power.ON_DISK, invariants=WITHOUT_LOCKS)
    print("F-21", 3 * TIMES, told)


def test_power_loss_of_the_last_machine(tmp_path: Path) -> None:
    """F-23."""
    print("F-23", 2 * TIMES, run(tmp_path, [power.of_the_last] * 2 * TIMES))
