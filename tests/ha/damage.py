"""Faults of disks that need no special disk: a replica is killed, its files are damaged,
and it is started again. What is damaged must be noticed, never served, never elected, and mended by the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from ha.faults import Fault, Trial

PAGE_SIZE = 4096


def used_size(path: Path) -> int:
    """Files have their full size from the begin; the rest is zeros."""
    return len(path.read_bytes().rstrip(b"\0"))


def flip_bit(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ (1 << random.randrange(8)),)))


def _newest(directory: Path) -> Path:
    """The last file that holds something."""
    return max(path for path in directory.rglob("*") if path.is_file() and used_size(path))


def cut_tail(store: Path) -> None:
    """F-24: the end of the log never reached the disk."""
    path = _newest(store / "commitlog")
    size = used_size(path)
    cut = random.randrange(max(size - 3 * PAGE_SIZE, 1), size)
    with path.open("r+b") as file:
        file.seek(cut)
        file.write(bytes(size - cut))


def flip_in_log(store: Path) -> None:
    """Well below what is confirmed."""
    path = _newest(store / "commitlog")
    flip_bit(path, random.randrange(used_size(path) // 2))


def flip_in_tail(store: Path) -> None:
    path = _newest(store / "commitlog")
    size = used_size(path)
    flip_bit(path, random.randrange(max(size - 1_000, 0), size))


def flip_in_queue(store: Path) -> None:
    path = _newest(store / "consumequeue" / "Orders")
    flip_bit(path, random.randrange(used_size(path)))


def flip_in_index(store: Path) -> None:
    path = _newest(store / "index")
    flip_bit(path, random.randrange(used_size(path)))


def flip_in_epochs(store: Path) -> None:
    path = store / "ha" / "epochs"
    flip_bit(path, random.randrange(path.stat().st_size))


def flip_in_voters_log(store: Path) -> None:
    path = store / "ha" / "controller" / "log"
    flip_bit(path, random.randrange(path.stat().st_size))


def flip_in_hard_state(store: Path) -> None:
    path = store / "ha" / "controller" / "hard-state"
    flip_bit(path, random.randrange(path.stat().st_size))


def killed_and(damage: Callable[[Path], None], *, master: bool) -> Fault:
    """Kill the master or a follower, damage its store; healing starts it again."""

    async def fault(trial: Trial) -> None:
        victim = await trial.master() if master else random.choice(await trial.followers())
        trial.note(f"killed replica {victim}, then: {damage.__name__}")
        trial.group.kill(victim)
        await trial.recovered()
        damage(trial.group.store(victim))

    return fault
