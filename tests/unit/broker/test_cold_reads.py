"""Cold reads: everybody is told on the loop, in whatever order, when the pages are in memory."""

from __future__ import annotations

import asyncio
import mmap
from pathlib import Path

from cometmq.broker.cold_reads import LANES, ColdReads
from cometmq.store.residency_cy import is_resident

FILE_SIZE = 4 << 20
PART_SIZE = 256 << 10


def mapped(path: Path) -> memoryview:
    path.write_bytes(bytes(FILE_SIZE))
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), FILE_SIZE))


def test_each_reader_is_told_when_its_parts_are_there(tmp_path: Path) -> None:
    asyncio.run(_each_reader_is_told(tmp_path))


async def _each_reader_is_told(tmp_path: Path) -> None:
    view, reads = mapped(tmp_path / "file"), ColdReads()
    told: list[int] = []
    everybody = asyncio.Event()

    def done(number: int) -> None:
        told.append(number)
        if len(told) == 3 * LANES:
            everybody.set()

    for number in range(3 * LANES):
        first = view[number * PART_SIZE : number * PART_SIZE + PART_SIZE // 2]
        second = view[number * PART_SIZE + PART_SIZE // 2 : (number + 1) * PART_SIZE]
        reads.read([first, second], lambda number=number: done(number))
    assert len(reads) == 6 * LANES
    async with asyncio.timeout(10):
        await everybody.wait()
    assert sorted(told) == list(range(3 * LANES))
    assert len(reads) == 0
    assert is_resident(view[: 3 * LANES * PART_SIZE])
    reads.stop()


def test_nothing_to_read_is_told_in_the_next_turn() -> None:
    asyncio.run(_nothing_to_read())


async def _nothing_to_read() -> None:
    reads, told = ColdReads(), asyncio.Event()
    reads.read([], told.set)
    assert not told.is_set()
    async with asyncio.timeout(10):
        await told.wait()
    reads.stop()


def test_after_the_stop_nobody_is_told(tmp_path: Path) -> None:
    asyncio.run(_stopped(tmp_path))


async def _stopped(tmp_path: Path) -> None:
    view, reads, told = mapped(tmp_path / "file"), ColdReads(), []
    reads.read([view], lambda: told.append(1))
    reads.stop()
    await asyncio.sleep(0.05)
    assert told == []
    assert len(reads) == 0


def test_any_number_of_readers_is_served_and_the_loop_never_waits(tmp_path: Path) -> None:
    asyncio.run(_many(tmp_path, 20_000))


async def _many(tmp_path: Path, count: int) -> None:
    view, reads = mapped(tmp_path / "file"), ColdReads()
    told, everybody = [0], asyncio.Event()

    def done() -> None:
        told[0] += 1
        if told[0] == count:
            everybody.set()

    for _ in range(count):
        reads.read([view[:4096]], done)
    async with asyncio.timeout(60):
        await everybody.wait()
    reads.stop()
