"""The compiled index loops do exactly what their Python branches say."""

from __future__ import annotations

import array
import importlib.machinery
import importlib.util
import random
import struct
from types import ModuleType

import pytest

from cometmq.store import index_cy

SLOTS, ENTRIES = 37, 150
FILE_SIZE = 40 + 4 * SLOTS + 20 * ENTRIES


def source_twin() -> ModuleType:
    path = index_cy.__file__.split(".cpython")[0].removesuffix(".py") + ".py"
    loader = importlib.machinery.SourceFileLoader("index_cy_source", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def twins() -> tuple[ModuleType, ModuleType]:
    if not index_cy.is_compiled():
        pytest.skip("the extension is not compiled here")
    return index_cy, source_twin()


def views(data: bytes = bytes(FILE_SIZE)) -> tuple[memoryview, memoryview]:
    return memoryview(bytearray(data)), memoryview(bytearray(data))


def random_keys(source: random.Random, count: int) -> memoryview:
    keys = array.array("q")
    for number in range(count):
        time_ms = 1_794_778_447_789 + source.randrange(-2000, 100_000)
        keys.extend((source.randrange(200), number * 10 + source.randrange(10), time_ms))
    return memoryview(keys)


@pytest.mark.parametrize("seed", range(30))
def test_put_walk_and_rebuild_agree(twins: tuple[ModuleType, ModuleType], seed: int) -> None:
    source = random.Random(seed)
    files = views()
    writers = [twin.IndexWriter(file, SLOTS, ENTRIES) for twin, file in zip(twins, files, strict=True)]
    keys = random_keys(source, 200)
    start = 0
    while start < 200:
        count = source.randrange(1, 30)
        count = min(count, 200 - start)
        limit = source.randrange(1, ENTRIES + 10)
        for writer in writers:
            writer.limit = limit
        done = {writer.put(keys, start, count) for writer in writers}
        assert len(done) == 1
        assert files[0] == files[1]
        assert writers[0].indexed_to == writers[1].indexed_to
        start += max(done.pop(), 1)
    for _ in range(50):
        arguments = (
            SLOTS,
            ENTRIES,
            source.randrange(200),
            0,
            source.randrange(1 << 62),
            source.randrange(1 << 62),
        )
        found = [memoryview(array.array("q", bytes(8 * 5))) for _twin in twins]
        results = [
            twin.walk_chain(files[0], *arguments, room, 20) for twin, room in zip(twins, found, strict=True)
        ]
        assert results[0] == results[1]
        assert found[0] == found[1]
    data = bytearray(files[0])
    for _ in range(source.randrange(4)):
        data[source.randrange(40, FILE_SIZE)] ^= 0xFF
    trusted_ms = 1_794_778_447_789 + source.randrange(-2000, 100_000)
    trusted = [twin.count_trusted(memoryview(data), SLOTS, ENTRIES, ENTRIES, trusted_ms) for twin in twins]
    assert trusted[0] == trusted[1]
    keep = source.randrange(1, ENTRIES)
    used = [twin.rebuild_slots(file, SLOTS, ENTRIES, keep) for twin, file in zip(twins, files, strict=True)]
    assert used[0] == used[1]
    assert files[0] == files[1]


@pytest.mark.parametrize("seed", range(30))
def test_walking_random_bytes_agrees_and_ends(twins: tuple[ModuleType, ModuleType], seed: int) -> None:
    source = random.Random(seed)
    data = bytearray(source.randbytes(FILE_SIZE))
    struct.pack_into(">i", data, 36, ENTRIES)
    for at in range(40, FILE_SIZE - 4, 4):  # small numbers, so that chains are followed for a while
        if source.random() < 0.8:
            struct.pack_into(">i", data, at, source.randrange(ENTRIES))
    for key_hash in range(100):
        found = [memoryview(array.array("q", bytes(8 * 64))) for _twin in twins]
        results = [
            twin.walk_chain(memoryview(bytes(data)), SLOTS, ENTRIES, key_hash, 0, 0, 1 << 62, room, 1000)
            for twin, room in zip(twins, found, strict=True)
        ]
        assert results[0] == results[1]
        assert found[0] == found[1]
