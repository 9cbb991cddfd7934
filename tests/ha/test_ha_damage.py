"""Damaged files of replicas and voters, with clients at work, and the promises checked afterwards. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest
from ha import damage
from ha.faults import Fault, Trial
from ha.trials import run_faults, run_trial

from cometmq.client.client import Client
from cometmq.controller.wire import ControllerCode, RemoveReplicaBody
from cometmq.protocol.message import Message
from cometmq.testing.group_processes import GroupProcesses

TIMES = int(os.environ.get("HA_TIMES", "1"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

DAMAGES = {
    "F-24": damage.cut_tail,
    "F-25 log": damage.flip_in_log,
    "F-25 head": damage.flip_in_head,
    "F-25 tail": damage.flip_in_tail,
    "F-25 queue": damage.flip_in_queue,
    "F-25 index": damage.flip_in_index,
    "F-25 epochs": damage.flip_in_epochs,
    "F-25 voter's log": damage.flip_in_voters_log,
    "F-25 hard state": damage.flip_in_hard_state,
}
COUNTS = {"F-24": 3}
STORE_SIZE = int(os.environ.get("HA_STORE_MB", "64")) << 20  # F-31 asks for 1,024
PIECE_SIZE = 1 << 20
FILL_TIMEOUT_S = 30.0


@pytest.mark.parametrize("row", DAMAGES)
def test_row_of_damaged_files(row: str, tmp_path: Path) -> None:
    one: Callable[[Path], None] = DAMAGES[row]
    count = COUNTS.get(row, 2) * TIMES
    both = cycle([damage.killed_and(one, master=False), damage.killed_and(one, master=True)])
    print(row, count, asyncio.run(run_trial(tmp_path, islice(both, count))))


def test_damage_under_running_replicas(tmp_path: Path) -> None:
    """F-25: what a pull meets is made anew from the log, what a query meets is not believed."""
    faults: list[Fault] = [
        damage.while_running(damage.flip_places_in_queue, master=True),
        damage.while_running(damage.flip_places_in_queue, master=False),
        damage.damaged_index,
    ]
    with GroupProcesses(tmp_path) as group:
        print("F-25 running", 3 * TIMES, asyncio.run(run_faults(group, faults * TIMES)))
        assert "QUEUE_ENTRY_MENDED" in "".join(group.output(f"broker-{number}") for number in group.ids)


def test_replicas_come_and_leave(tmp_path: Path) -> None:
    """F-31: a fourth broker without a vote joins, another one is removed for good."""
    group = GroupProcesses(tmp_path, brokers=4)
    del group.voters[4]
    group.ids.remove(4)

    async def join(trial: Trial) -> None:
        await fill(group, STORE_SIZE)
        group.ids.append(4)
        group.start(4)
        await trial.control.master(in_sync=4)

    async def leave(trial: Trial) -> None:
        gone = next(number for number in await trial.followers() if number != 4)
        group.stop(gone)
        group.ids.remove(gone)
        await trial.control.master(in_sync=3)
        leader = await trial.control.controller_leader()
        removal = RemoveReplicaBody(group.name, gone)
        address = group.controller_address(leader)
        answer = await trial.control.tell(address, ControllerCode.REMOVE_REPLICA, removal)
        assert answer is not None
        assert answer.code == 0, answer.remark

    some: list[Fault] = [join, leave]
    with group:
        print("F-31", f"{STORE_SIZE >> 20} MiB", asyncio.run(run_faults(group, some)))


async def fill(group: GroupProcesses, size: int) -> None:
    """A store that takes a while to copy."""
    body = os.urandom(PIECE_SIZE)
    async with Client(group.name_server) as client:
        producer = client.producer("ballast")
        for _ in range(size // PIECE_SIZE):
            await producer.send(Message("Ballast", body), timeout=FILL_TIMEOUT_S)
