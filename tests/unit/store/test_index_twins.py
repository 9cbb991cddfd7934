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


def record(source: random.Random, position: int) -> bytes:
    sys_flag = source.choice((0, 0x10, 0x20, 0x30, 0x4, 0x8, 0xC, 0x1))
    hosts = bytes(20 if sys_flag & 0x10 else 8), bytes(20 if sys_flag & 0x20 else 8)
    body = source.randbytes(source.randrange(20))
    topic = source.choice((b"T", b"TopicA", "Tör".encode()))
    items = [
        b"a\x01b",
        b"KEYS\x01k1 k2",
        "KEYS\x01schlüssel  ☃ ".encode(),
        b"UNIQ_KEY\x01ABC",
        b"KEYS\x01",
        b"\x01x",
    ]
    properties = b"\x02".join(source.choices(items, k=source.randrange(6)))
    size = 75 + len(hosts[0]) + len(hosts[1]) + len(body) + len(topic) + len(properties)
    return (
        struct.pack(">iIiiiqqiq", size, 0xDAA320A7, 0, 0, 0, 0, position, sys_flag, 0)
        + hosts[0]
        + struct.pack(">q", 1_794_778_447_789 + position)
        + hosts[1]
        + struct.pack(">iqi", 0, 0, len(body))
        + body
        + bytes([len(topic)])
        + topic
        + struct.pack(">h", len(properties))
        + properties
    )


@pytest.mark.parametrize("seed", range(30))
def test_collecting_keys_agrees_even_on_damaged_records(
    twins: tuple[ModuleType, ModuleType], seed: int
) -> None:
    source = random.Random(seed)
    log = bytearray()
    for _ in range(20):
        log += record(source, len(log))
    for _ in range(50):
        damaged = bytearray(log)
        for _ in range(source.randrange(4)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        end = source.choice((len(log), source.randrange(len(log))))
        room = source.choice((3 * 100, 3 * source.randrange(40)))
        keys = [memoryview(array.array("q", bytes(8 * room))) for _twin in twins]
        results = [
            twin.collect_keys(memoryview(bytes(damaged)), 0, end, 1000, out)
            for twin, out in zip(twins, keys, strict=True)
        ]
        assert results[0] == results[1]
        assert keys[0] == keys[1]
