"""One run: a group of processes, clients, faults one after the other, healing, and what the checker says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ha import checker
from ha.applications import Application
from ha.checker import INVARIANTS, check, summary
from ha.faults import Fault, Trial
from ha.history import Event, History, boot_ns, read_history
from ha.workload import Workload

from cometmq.testing.group_control import GroupControl
from cometmq.testing.group_processes import GroupProcesses

# How long a failover takes is measured on a quiet machine (bench.failover), not where tests share one.
# So is this: positions are with the replicas within 100 ms, if a process may run (F-06 is held to it).
COMMITS_LOST_MAX_NS = 1_000 * checker.MS
LATE_MAX_NS = 5_000 * checker.MS
CHECKED = tuple(name for name in INVARIANTS if name != "H14")
QUORUM = {"haCommitRule": "quorum", "haAckReplicas": "2"}  # F-33: two of three
QUORUM_OF_FIVE = {"haCommitRule": "quorum", "haAckReplicas": "3"}
_BECAME_MASTER = re.compile(r"^(\S+ \S+) .*event=BECAME_MASTER group=(\S+) epoch=(\d+)", re.MULTILINE)

_ELECTED = re.compile(r"^(\S+ \S+) .* ELECTED group=(\S+) master=\d+ epoch=(\d+)", re.MULTILINE)

ApplicationOf = Callable[[GroupProcesses, History], Application]


async def run_trial(
    directory: Path,
    faults: Iterable[Fault],
    settings: dict[str, str] | None = None,
    *,
    without: Iterable[str] = (),
    application: ApplicationOf | None = None,
    commits_lost_max_ns: int = COMMITS_LOST_MAX_NS,
    **options: Any,
) -> str:
    """Raises AssertionError with every broken promise (``without`` some); returns a summary."""
    invariants = [name for name in CHECKED if name not in without]
    with GroupProcesses(directory, settings=settings, **options) as group:
        return await run_faults(group, faults, invariants, application, commits_lost_max_ns)


async def run_faults(
    group: GroupProcesses,
    faults: Iterable[Fault],
    invariants: Iterable[str] = CHECKED,
    application: ApplicationOf | None = None,
    commits_lost_max_ns: int = COMMITS_LOST_MAX_NS,
) -> str:
    events, problems = await make_history(group, faults, application)
    with (
        patch.object(checker, "COMMITS_LOST_MAX_NS", commits_lost_max_ns),
        patch.object(checker, "LATE_MAX_NS", LATE_MAX_NS),
    ):
        broken = [f"{name}: {text}" for name, text in check(events, invariants)] + problems
    assert not broken, "\n".join(broken[:20])
    return summary(events)


async def make_history(
    group: GroupProcesses, faults: Iterable[Fault], application: ApplicationOf | None = None
) -> tuple[list[Event], list[str]]:
    """What happened, and what the clients did not like."""
    path = group.directory / "history.jsonl"
    async with GroupControl(group) as control:
        with History(path) as history:
            load = Workload(group, history)
            beside = application(group, history) if application is not None else None
            try:
                await control.master(in_sync=len(group.ids))
                await load.start()
                if beside is not None:
                    await beside.start()
                trial = Trial(group, control, load, history)
                for fault in faults:
                    await load.more(100)
                    await fault(trial)
                    await load.look_at_positions()
                    await trial.heal()
                    if beside is not None:
                        await beside.disturb()
                await load.more(50)
                await load.stop_sending()
                await load.caught_up()
                if beside is not None:
                    await beside.finish(load.positions)
                await settle(control, history)
                await load.drain()
            finally:
                if beside is not None:
                    await beside.close()
                await load.close()
            note_masters(group, history)
    return list(read_history([path])), load.problems + (beside.problems if beside is not None else [])


async def settle(control: GroupControl, history: History) -> None:
    """Nothing is sent any more: every replica has everything, confirmed."""

    async def same() -> bool:
        found = await control.checksums()
        return len(found) == len(control.group.ids) and len(set(found.values())) == 1

    await control.until(same, "equal logs", pause_s=0.1)
    for number, (_, end, value) in (await control.checksums()).items():
        history.add(
            "operator", "checksum", group=control.group.name, replica=number, key=f"log to {end}", value=value
        )


def note_masters(group: GroupProcesses, history: History) -> None:
    """Who became master of which epoch, from what the brokers have logged.

    A process that was stopped may hear of its election when its epoch is long over; it began when it was decided.
    """
    to_boot = boot_ns() - time.time_ns()
    logs = {number: group.output(f"broker-{number}") for number in group.ids}
    decided = {epoch: when for log in logs.values() for when, _, epoch in _ELECTED.findall(log)}
    for number, log in logs.items():
        for when, name, epoch in _BECAME_MASTER.findall(log):
            began = datetime.fromisoformat(min(when, decided.get(epoch, when)))
            t = int(began.timestamp() * 1e9) + to_boot
            history.add("watch", "master", group=name, epoch=int(epoch), replica=number, t=t)
