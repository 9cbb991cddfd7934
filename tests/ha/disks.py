"""Disks that are full and disks that fail (ha.md 12.6, F-27 and F-28), under real processes.

Full: the store of each broker, or its directory ``ha``, is a small tmpfs, and a ballast file takes what is left of it.
Failing: a preloaded shim lets one sync fail with EIO.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from functools import cache
from pathlib import Path

from ha.faults import Fault, Trial
from ha.shim import library

from cometmq.store.disk import used_percent
from cometmq.testing.group_processes import GroupProcesses

DISK_SIZE_MIB = 96
HA_DISK_SIZE_MIB = 4
LOG_FILE_SIZE = 4 << 20
BALLAST = "ballast"
FULL_S = 6.0
EXIT_FAILED = 3


@cache
def no_small_disks() -> str:
    """Why there can be no small file systems here; empty if there can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    probe = Path(f"/tmp/cometmq-mount-{os.getpid()}")
    probe.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(probe)], capture_output=True)
    if made.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    probe.rmdir()
    return "" if made.returncode == 0 else f"no tmpfs: {made.stderr.decode().strip()}"


class SmallDisks(GroupProcesses):
    """Brokers with a small disk each, under the whole store or under its directory ``ha``."""

    def __init__(self, directory: Path, *, under: str = "", brokers: int = 3) -> None:
        settings = {
            "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
            "cleanFileForciblyEnable": "false",  # old messages are not to be given up for new ones
            "rocketmq.broker.diskSpaceWarningLevelRatio": "0.90",  # as it is by default
        }
        super().__init__(directory, brokers=brokers, settings=settings)
        self._under = under
        self._mounted: list[Path] = []
        size = HA_DISK_SIZE_MIB if under else DISK_SIZE_MIB
        for number in self.ids:
            path = self.disk(number)
            path.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "none", str(path)], check=True)
            self._mounted.append(path)

    def disk(self, number: int) -> Path:
        return self.store(number) / self._under if self._under else self.store(number)

    def fill(self, number: int, percent: int = 100) -> None:
        """To the last byte, or so far."""
        with (self.disk(number) / BALLAST).open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while percent == 100 or used_percent(self.disk(number)) < percent:
                        file.write(bytes(size))

    def free(self, number: int) -> None:
        (self.disk(number) / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        super().close()
        for path in self._mounted:
            subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


def _disks(trial: Trial) -> SmallDisks:
    assert isinstance(trial.group, SmallDisks)
    return trial.group


def full_disk(*, master: bool, percent: int = 100) -> Fault:
    """F-27: sends are refused or go to another master; when there is room again all goes on."""

    async def fault(trial: Trial) -> None:
        group = _disks(trial)
        trial.load.watch_leases = False  # it may hand over, which ends a lease early
        victim = await trial.master() if master else random.choice(await trial.followers())
        trial.note(f"disk full to {percent} %, replica {victim}")
        group.fill(victim, percent)
        try:
            if percent < 100:
                await trial.control.until(lambda: _another_master(trial, victim), "a master that has room")
            # Somebody else is master, or goes on without the one that cannot write.
            await trial.recovered(200)
            await asyncio.sleep(FULL_S)
            await trial.recovered(200)
        finally:
            group.free(victim)
        check_exit(group, victim)
        assert percent == 100 or group.alive(victim), "there was room for everything but messages"

    return fault


async def _another_master(trial: Trial, victim: int) -> bool:
    return await trial.master() != victim


def check_exit(group: GroupProcesses, victim: int) -> None:
    """It runs, or it has left and says that somebody must look."""
    code = group.processes[victim].poll()
    assert code in (None, EXIT_FAILED), f"replica {victim} ended with exit code {code}"


class FailingDisks(GroupProcesses):
    """Brokers whose syncs fail on demand."""

    def trigger(self, number: int) -> Path:
        return self.directory / f"eio-{number}"

    def environment_of(self, number: int) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "SHIM_ROOT": str(self.store(number).resolve()),
            "SHIM_EIO": str(self.trigger(number)),
        }

    def fail_sync(self, number: int, path_part: str) -> None:
        """The next sync of such a path."""
        waiting = self.trigger(number).with_suffix(".new")
        waiting.write_text(path_part)
        waiting.rename(self.trigger(number))


def failed_sync(path_part: str, *, master: bool) -> Fault:
    """F-28: the process leaves, others go on; at its next start it makes sure of what it has."""

    async def fault(trial: Trial) -> None:
        group = trial.group
        assert isinstance(group, FailingDisks)
        victim = await trial.master() if master else random.choice(await trial.followers())
        trial.note(f"EIO from a sync of {path_part}, replica {victim}")
        await trial.control.until(
            lambda: _ended_by_failing(group, victim, path_part), "the end of the broker whose disk failed"
        )
        group.trigger(victim).unlink(missing_ok=True)
        assert group.processes[victim].returncode == EXIT_FAILED
        await trial.recovered()

    return fault


async def _ended_by_failing(group: FailingDisks, victim: int, path_part: str) -> bool:
    """One failure may meet a file that is only being made, which is then made again: every sync fails from now on."""
    if group.alive(victim) and not group.trigger(victim).exists():
        group.fail_sync(victim, path_part)
    return not group.alive(victim)


async def failed_vote(trial: Trial) -> None:
    """F-28: a follower cannot write down what the controllers have decided; the others can."""
    group = trial.group
    assert isinstance(group, FailingDisks)
    master = await trial.master()
    await trial.control.lead(master)
    victim = random.choice(await trial.followers())
    trial.note(f"EIO from a sync of a voter's log, replica {victim}")
    group.fail_sync(victim, "ha/controller/log")
    other = next(number for number in group.ids if number not in (master, victim))
    group.pause(other)  # the in-sync set changes, and that is written down
    await trial.control.until(lambda: _ended(group, victim), "the end of the voter whose disk failed")
    group.resume(other)
    assert group.processes[victim].returncode == EXIT_FAILED
    await trial.recovered()


async def _ended(group: GroupProcesses, number: int) -> bool:
    return not group.alive(number)
