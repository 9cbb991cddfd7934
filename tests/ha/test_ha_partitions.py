"""Cut networks between brokers, with clients at work, and the promises checked afterwards. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from ha import partitions
from ha.faults import Fault
from ha.network import Network, NetworkedGroup, unavailable
from ha.trials import QUORUM_OF_FIVE, run_faults

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
RULES_OF_FIVE = {"all": None, "quorum": QUORUM_OF_FIVE}


def run(directory: Path, faults: list[Fault], *, brokers: int = BROKERS, **options: Any) -> str:
    with (
        Network([NAME_SERVER, *range(1, brokers + 1)]) as network,
        NetworkedGroup(network, directory, brokers=brokers, **options) as group,
    ):
        return asyncio.run(run_faults(group, faults))


@pytest.mark.parametrize("row", ROWS)
def test_row_of_cut_networks(row: str, tmp_path: Path) -> None:
    some, count = ROWS[row]
    print(row, count * TIMES, run(tmp_path, some * count * TIMES))


@pytest.mark.parametrize("rule", RULES_OF_FIVE)
def test_minority_of_five(rule: str, tmp_path: Path) -> None:
    """F-09, and F-33 with F-09: five brokers, so that the master and a follower are the minority."""
    some = [partitions.isolate_minority_with_master] * 2 * TIMES
    print("F-09", rule, 2 * TIMES, run(tmp_path, some, brokers=5, settings=RULES_OF_FIVE[rule]))


def test_master_of_a_pair_alone(tmp_path: Path) -> None:
    """F-32 with F-08: the other broker and the NameServer, which votes, are the majority."""
    some = [partitions.isolate_master] * 3 * TIMES
    print("F-32", "F-08", 3 * TIMES, run(tmp_path, some, brokers=2, witness=True))
