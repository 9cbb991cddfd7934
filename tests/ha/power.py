"""Loss of power, without a switch: a preloaded shim keeps what was synced of each store in a shadow; after
kill -9 the store becomes that shadow and a random part of what was not synced, page by page and name by name.

The brokers are told another boot id at the next start, as a machine that went down would see it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

from ha.faults import Trial
from ha.shim import library

from cometmq.controller.wire import ControllerCode, ForceElectBody
from cometmq.testing.group_processes import GroupProcesses

BROKERS = 3
PAGE_SIZE = 4096
LOG_FILE_SIZE = 4 << 20
# Small files: the shim compares a file with its shadow at each sync.
SETTINGS = {"mappedFileSizeCommitLog": str(LOG_FILE_SIZE)}
# So long clients read what the brokers had answered before: it is part of what may be gone afterwards.
ANSWERS_S = 0.2
ON_DISK = {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}


class PoweredGroup(GroupProcesses):
    """Brokers whose machines can lose their power."""

    def __init__(
        self, directory: Path, settings: dict[str, str] | None = None, *, voters_elsewhere: bool = False
    ) -> None:
        """``voters_elsewhere``: the NameServer has the only vote, so that brokers may go down one and all."""
        self._boots = dict.fromkeys(range(1, BROKERS + 1), 1)
        every = {**SETTINGS, **(settings or {})}
        super().__init__(directory, brokers=BROKERS, settings=every, witness=voters_elsewhere)
        if voters_elsewhere:
            self.voters = {voter: port for voter, port in self.voters.items() if voter not in self.ids}

    def shadow(self, number: int) -> Path:
        return self.directory / f"shadow-{number}"

    def settings_of(self, number: int) -> dict[str, str]:
        return {**super().settings_of(number), "haBootId": f"boot-{self._boots[number]}"}

    def environment_of(self, number: int) -> dict[str, str]:
        self.store(number).mkdir(parents=True, exist_ok=True)
        return {
            "LD_PRELOAD": str(library()),
            "SHIM_ROOT": str(self.store(number).resolve()),
            "SHIM_SHADOW": str(self.shadow(number)),
        }

    def cut_power(self, *numbers: int) -> dict[int, int]:
        """Of these machines at once; how many pages each has lost."""
        for number in numbers:
            self.kill(number)
        return {number: self._lose(number) for number in numbers}

    def wipe(self, number: int) -> None:
        """Another disk: the old one's shadow is gone too."""
        super().wipe(number)
        shutil.rmtree(self.shadow(number), ignore_errors=True)
        _pending(self.shadow(number)).unlink(missing_ok=True)

    def _lose(self, number: int) -> int:
        self._boots[number] += 1
        return lose_power(self.store(number), self.shadow(number))


def lose_power(store: Path, shadow: Path) -> int:
    """The process has ended; its files become what a disk may have of them. How many pages are lost."""
    shadow.mkdir(exist_ok=True)
    undone = _apply_some_names(store.resolve(), shadow)
    _restore(store, shadow, undone)
    _lose_names(store, shadow)
    paths = (_files(store) | _files(shadow)) - undone
    lost = sum(_lose_pages(store, shadow, path) for path in paths)
    sync_all(store, shadow)
    return lost


def sync_all(store: Path, shadow: Path) -> None:
    """All of this is on disk now."""
    shutil.rmtree(shadow)
    shutil.copytree(store, shadow)


def _files(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*") if path.is_file()}


def _pending(shadow: Path) -> Path:
    return shadow.with_name(shadow.name + ".pending")


def _apply_some_names(store: Path, shadow: Path) -> set[Path]:
    """Renames, links and removals whose directory was not synced: the first few took place; names of the others."""
    pending = _pending(shadow)
    lines = pending.read_text().splitlines() if pending.exists() else []
    count = random.randint(0, len(lines))
    undone: set[Path] = set()
    for number, line in enumerate(lines):
        kind, *names = line.split("\t")
        paths = [Path(name).relative_to(store) for name in names if name.startswith(str(store))]
        if kind.islower() and not _was_done(kind, [store / path for path in paths]):
            continue  # killed before the call
        if number >= count:
            undone.update(paths)
        else:
            _apply(kind.upper(), [shadow / path for path in paths])
    pending.unlink(missing_ok=True)
    return undone


def _was_done(kind: str, paths: list[Path]) -> bool:
    """The last thing that a process did: did it get there?"""
    return paths[1].exists() if kind == "l" else not paths[0].exists()


def _apply(kind: str, paths: list[Path]) -> None:
    first, *rest = paths
    if not first.exists():
        return
    if kind == "U":
        first.unlink()
    elif rest:
        rest[0].parent.mkdir(parents=True, exist_ok=True)
        if kind == "R":
            first.rename(rest[0])
        else:
            rest[0].unlink(missing_ok=True)
            rest[0].hardlink_to(first)


def _restore(store: Path, shadow: Path, names: set[Path]) -> None:
    """What was not renamed or removed after all is what it was: the old file, not a mixture with the new one."""
    for name in names:
        here, safe = store / name, shadow / name
        if safe.is_dir() or here.is_dir():
            if safe.is_dir() and not here.exists():
                shutil.copytree(safe, here)
            elif here.is_dir() and not safe.exists():
                shutil.rmtree(here)
            continue
        here.unlink(missing_ok=True)
        if safe.exists():
            here.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(safe, here)


def _lose_names(store: Path, shadow: Path) -> None:
    """New files whose directory was not synced. Of numbered ones the first few are there: journals keep an order."""
    new: dict[Path, list[Path]] = {}
    for path in sorted(_files(store) | _files(shadow)):
        if not path.name.isdigit():
            if not (shadow / path).exists() and random.random() < 0.5:
                (store / path).unlink()
        elif (shadow / path).exists():
            new[path.parent] = []  # whatever came before it is there too
        else:
            new.setdefault(path.parent, []).append(path)
    for names in new.values():
        for path in names[random.randint(0, len(names)) :]:
            (store / path).unlink()


def _lose_pages(store: Path, shadow: Path, path: Path) -> int:
    """One file as the disk has it; the number of pages that did not get there."""
    here, safe = store / path, shadow / path
    if not here.exists():  # removed, but the removal was lost
        here.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(safe, here)
        return 0
    written = here.read_bytes()
    synced = safe.read_bytes() if safe.exists() else b""
    size = random.choice((len(written), len(synced))) if safe.exists() else len(written)
    kept = bytearray(synced[:size].ljust(size, b"\0"))
    lost = 0
    for at in range(0, size, PAGE_SIZE):
        page = written[at : min(at + PAGE_SIZE, size)]
        if page == kept[at : at + len(page)]:
            continue
        if random.random() < 0.5:
            kept[at : at + len(page)] = page
        else:
            lost += 1
    here.write_bytes(bytes(kept))
    return lost


def _powered(trial: Trial) -> PoweredGroup:
    assert isinstance(trial.group, PoweredGroup)
    return trial.group


async def of_one(trial: Trial) -> None:
    """F-20: of the master or of a follower."""
    victim = random.choice(trial.group.ids)
    lost = _powered(trial).cut_power(victim)
    trial.note(f"power loss of replica {victim}, pages lost: {lost}")
    await trial.recovered()


async def of_all(trial: Trial) -> None:
    """F-21, F-22."""
    lost = _powered(trial).cut_power(*trial.group.ids)
    trial.note(f"power loss of all, pages lost: {lost}")
    for number in trial.group.ids:
        trial.group.launch(number)
    for number in trial.group.ids:
        trial.group.wait_ready(number)
    await trial.recovered()


async def of_all_and_force(trial: Trial) -> None:
    """F-22: nobody is sure to have everything, so an operator says who is to be master: the longest log."""
    group = _powered(trial)
    lost = group.cut_power(*group.ids)
    await asyncio.sleep(ANSWERS_S)
    trial.note(f"power loss of all, pages lost: {lost}")
    for number in group.ids:
        group.launch(number)
    for number in group.ids:
        group.wait_ready(number)
    await trial.control.until(lambda: _elected_or_forced(trial), "a master, by force if need be", pause_s=0.5)
    await trial.recovered()


async def _elected_or_forced(trial: Trial) -> bool:
    group, control = trial.group, trial.control
    statuses = await control.statuses()
    if any(status["role"] == "MASTER" for status in statuses.values()):
        return True
    if len(statuses) == len(group.ids):
        longest = max(statuses, key=lambda number: statuses[number]["maxOffset"])
        leader = group.controller_address(await control.controller_leader())
        await control.tell(
            leader, ControllerCode.FORCE_ELECT, ForceElectBody(group.name, longest, group.name)
        )
    return False


async def of_the_last(trial: Trial) -> None:
    """F-23: two drop out one after the other, the third loses power; who left when nothing more could be confirmed
    without it is elected."""
    group = _powered(trial)
    first, second = await trial.followers()
    last = await trial.master()
    trial.note(f"killed {first} and {second}, then power loss of {last}")
    group.kill(first)
    await trial.control.until(lambda: _set_is(trial, last, {last, second}), "the first out of the set")
    await trial.load.more(50)
    group.kill(second)
    await trial.control.until(lambda: _set_is(trial, last, {last}), "the second out of the set")
    group.cut_power(last)
    group.start(second)
    group.start(first)
    assert await trial.control.master() == second, "whoever left the set last has all that was confirmed"
    await trial.recovered()


async def _set_is(trial: Trial, number: int, wanted: set[int]) -> bool:
    status = await trial.control.status(number)
    return status is not None and set(status["syncSet"]) == wanted
