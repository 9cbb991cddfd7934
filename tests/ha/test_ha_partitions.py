"""Cut networks between brokers, with clients at work, and the promises checked afterwards. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from ha import partitions
from ha.network import Network, NetworkedGroup, unavailable
from ha.trials import run_faults

from cometmq.testing.group_processes import NAME_SERVER

TIMES = int(os.environ.get("HA_TIMES", "1"))
BROKERS = 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a network"),
]

ROWS = {
    "F-08": ([partitions.isolate_master], 2),
    "F-08 follower": ([partitions.isolate_follower], 1),
    "F-10": ([partitions.mute_master, partitions.deafen_master, partitions.cut_one_link], 1),
    "F-11": ([partitions.isolate_master_from_brokers], 2),
    "F-12": ([partitions.rotate], 1),
    "F-14": ([partitions.cut_controllers], 1),
}


def test_minority_of_five(tmp_path: Path) -> None:
    """F-09: five brokers, so that the master and a follower are the minority."""
    brokers = range(1, 6)
    with (
        Network([NAME_SERVER, *brokers]) as network,
        NetworkedGroup(network, tmp_path, brokers=len(brokers)) as group,
    ):
        some = [partitions.isolate_minority_with_master] * 2 * TIMES
        print("F-09", 2 * TIMES, asyncio.run(run_faults(group, some)))


@pytest.mark.parametrize("row", ROWS)
def test_row_of_cut_networks(row: str, tmp_path: Path) -> None:
    some, count = ROWS[row]
    with (
        Network([NAME_SERVER, *range(1, BROKERS + 1)]) as network,
        NetworkedGroup(network, tmp_path, brokers=BROKERS) as group,
    ):
        print(row, count * TIMES, asyncio.run(run_faults(group, some * count * TIMES)))
