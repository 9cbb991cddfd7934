"""Full disks and failed syncs of one replica, clients at work, promises checked. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from ha import disks
from ha.faults import Fault
from ha.shim import unavailable
from ha.trials import run_faults

TIMES = int(os.environ.get("HA_TIMES", "1"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.skipif(bool(disks.no_small_disks()), reason=disks.no_small_disks() or "there are small disks")
@pytest.mark.parametrize("where", ["master", "master nearly", "follower", "ha"])
def test_full_disk(where: str, tmp_path: Path) -> None:
    """F-27; nearly full is when messages are refused and everything else still has room."""
    percent = 95 if where == "master nearly" else 100
    faults: list[Fault] = [disks.full_disk(master=where != "follower", percent=percent)] * TIMES
    with disks.SmallDisks(tmp_path, under="ha" if where == "ha" else "") as group:
        print("F-27", where, TIMES, asyncio.run(run_faults(group, faults)))


@pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a compiler")
@pytest.mark.parametrize("what", ["commitlog", "ha/confirm", "ha/controller/log"])
def test_failed_sync(what: str, tmp_path: Path) -> None:
    """F-28: of the log, of a replica's own files, of a voter's log; master and follower in turn."""
    faults: list[Fault] = [disks.failed_sync(what, master=True), disks.failed_sync(what, master=False)]
    if what == "ha/controller/log":  # written when something changes: a new master, here
        faults = [disks.failed_vote] * 2
    with disks.FailingDisks(tmp_path) as group:
        print("F-28", what, 2 * TIMES, asyncio.run(run_faults(group, faults * TIMES)))
