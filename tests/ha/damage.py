"""Faults of disks that need no special disk: a replica is killed, its files are damaged,
and it is started again. What is damaged must be noticed, never served, never elected, and mended by the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from ha.faults import Fault, Trial

PAGE_SIZE = 4096
ENTRY_SIZE = 20  # of a ConsumeQueue
PLACE_SIZE = 12  # of physical offset and size in it
SUMMED_UP_S = 4.0  # so old must bytes outside of bodies be to be in the checksums of the log
QUERY_MS = 5_000
QUERIES = 30


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
    flip_bit(path, random.randrange(used_size(path) // 4))


def flip_in_head(store: Path) -> None:
    """In the part of a record that its CRC does not cover: queue, offset, times, hosts, before the body."""
    path = _newest(store / "commitlog")
    data, at, places = path.read_bytes(), 0, [0]
    while (size := int.from_bytes(data[at : at + 4], "big")) and at + size < len(data) // 2:
        at += size
        places.append(at)
    flip_bit(path, random.choice(places[: max(len(places) // 4, 1)]) + random.randrange(8, 84))


def flip_in_tail(store: Path) -> None:
    path = _newest(store / "commitlog")
    size = used_size(path)
    flip_bit(path, random.randrange(max(size - 1_000, 0), size))


def flip_in_queue(store: Path) -> None:
    path = _newest(store / "consumequeue" / "Orders")
    flip_bit(path, random.randrange(used_size(path)))


def flip_places_in_queue(store: Path) -> None:
    """Some bits of physical offsets and sizes, in any of the files."""
    files = [
        path for path in (store / "consumequeue" / "Orders").rglob("*") if path.is_file() and used_size(path)
    ]
    for path in random.sample(files, min(4, len(files))):
        entry = random.randrange(max(used_size(path) // ENTRY_SIZE, 1))
        flip_bit(path, entry * ENTRY_SIZE + random.randrange(PLACE_SIZE))


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
        await asyncio.sleep(SUMMED_UP_S)
        if master:
            victim = await trial.master()
        trial.note(f"killed replica {victim}, then: {damage.__name__}")
        trial.group.kill(victim)
        await trial.recovered()
        damage(trial.group.store(victim))

    fault.__name__ = f"{damage.__name__} of {'the master' if master else 'a follower'}"
    return fault


def while_running(damage: Callable[[Path], None], *, master: bool) -> Fault:
    """Bits flip under a running replica, which then is asked for all it has."""

    async def fault(trial: Trial) -> None:
        victim = await trial.master() if master else random.choice(await trial.followers())
        trial.note(f"{damage.__name__} under the running replica {victim}")
        damage(trial.group.store(victim))
        await trial.load.read_all(victim)
        await trial.recovered()

    return fault


async def damaged_index(trial: Trial) -> None:
    """F-25: queries by key of a damaged index find nothing but messages with that key, and come to an end."""
    victim = await trial.master()
    trial.note(f"bits flip in the index of replica {victim}")
    for _ in range(20):
        flip_in_index(trial.group.store(victim))
    keys = random.sample(sorted(trial.load.sent), QUERIES)
    found = [await trial.load.query(victim, key, QUERY_MS) for key in keys]
    wrong = [(key, got) for key, got in zip(keys, found, strict=True) if set(got) - {key}]
    assert not wrong, f"queries found other messages: {wrong}"
    assert any(found), "the index is damaged, not gone"
    await trial.recovered()
