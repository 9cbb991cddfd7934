"""Faults on processes, with clients at work, and the promises H1 to H13 checked afterwards.

The plain suite has one short run. ``make test-ha`` runs every row at its count for CI; ``HA_TIMES=10`` ten times that.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from ha import checker, faults, trials
from ha.trials import run_trial

TIMES = int(os.environ.get("HA_TIMES", "1"))


def test_sends_survive_kills_and_stops_of_any_replica(tmp_path: Path) -> None:
    told = asyncio.run(
        run_trial(
            tmp_path, [faults.kill_master, faults.stop_master, faults.kill_follower, faults.planned_switch]
        )
    )
    print(told)


STOPS_S = (0.5, 2.0, 10.0, 60.0)
ROWS = {
    "F-01": ([faults.kill_master], 5),
    "F-02": ([faults.kill_master_and_leader], 3),
    "F-03": ([faults.kill_follower], 3),
    "F-04": ([faults.kill_all], 3),
    "F-05": ([faults.kill_rejoining], 5),
    "F-06": ([faults.stopped_master(seconds) for seconds in STOPS_S], 1),
    "F-07": ([faults.stop_follower], 2),
    "F-15": ([faults.planned_switch], 3),
    "F-26": ([faults.wipe_follower, faults.wipe_master], 1),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", ROWS)
def test_row_of_the_fault_matrix(row: str, tmp_path: Path) -> None:
    some, count = ROWS[row]
    # When all are killed nobody remembers locks, and positions are those of the last file (5 s), as in 4.9.
    without = ("H10", "H11") if row == "F-04" else ()
    lost_ns = checker.COMMITS_LOST_MAX_NS if row == "F-06" else trials.COMMITS_LOST_MAX_NS
    told = run_trial(tmp_path, some * count * TIMES, without=without, commits_lost_max_ns=lost_ns)
    print(row, len(some) * count * TIMES, asyncio.run(told))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", ["F-01", "F-06"])
def test_row_of_a_pair(row: str, tmp_path: Path) -> None:
    """F-32: two brokers, and a NameServer that has the third vote."""
    some = [faults.stop_master] if row == "F-06" else ROWS[row][0]
    told = run_trial(tmp_path, some * 3 * TIMES, brokers=2, witness=True)
    print("F-32", row, 3 * TIMES, asyncio.run(told))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("row", ["F-01", "F-05"])
def test_row_by_quorum(row: str, tmp_path: Path) -> None:
    """F-33."""
    some, count = ROWS[row]
    told = run_trial(tmp_path, some * count * TIMES, trials.QUORUM)
    print("F-33", row, count * TIMES, asyncio.run(told))
