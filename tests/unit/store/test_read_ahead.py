"""Messages on disk: what is read in, what is read ahead, and that the loop touches none of it before."""

from __future__ import annotations

import ctypes
import mmap
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cold_pages import drop_file, drop_pages, resident_share
from store_kit import body_of, message, opened, small_config, split_records
from twins import twins

from cometmq.store import read_ahead
from cometmq.store import window as window_module
from cometmq.store.config import StoreConfig
from cometmq.store.model import GetResult, GetStatus
from cometmq.store.page_reader import PARTS_MAX, PageReader
from cometmq.store.read_ahead import BELIEVED_S, LOG_AHEAD_SIZE, LOG_BLOCK_SIZE, ReadAhead
from cometmq.store.reader import COLD_SPAN_MAX
from cometmq.store.residency_cy import is_resident, read_in
from cometmq.store.store import MessageStore
from cometmq.store.window import Window

residency = twins("cometmq.store.residency_cy")

MIB = 1 << 20
BODY_SIZE = 8000
COUNT = 2600  # 20 MiB of records


def config_of(root: Path, **settings: Any) -> StoreConfig:
    sizes = {"mapped_file_size_commit_log": 8 * MIB, "mapped_file_size_consume_queue": 100_000 * 20}
    return small_config(root, **sizes | settings)


def body(number: int) -> bytes:
    return f"{number:08d}".encode().ljust(BODY_SIZE, b".")


def fill(config: StoreConfig, count: int = COUNT, queues: int = 2) -> None:
    with opened(config) as store:
        for number in range(count):
            assert store.put(message(body(number), queue_id=number % queues)).ok


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """Of a store whose messages are all on disk."""
    config = config_of(tmp_path)
    fill(config)
    drop_pages(tmp_path)
    return config


def queue_file(config: StoreConfig, queue_id: int = 0) -> Path:
    return config.store_path_root_dir / "consumequeue" / "T" / str(queue_id) / f"{0:020d}"


def address(part: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(part))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def warm(result: GetResult) -> None:
    for part in result.cold_parts:
        read_in(part)


def pull(store: MessageStore, queue_id: int, queue_offset: int, count: int = 32) -> Iterator[GetResult]:
    """Ask until the answer is there, as a broker does; all results, the last one with messages."""
    while True:
        result = store.get("T", queue_id, queue_offset, count)
        yield result
        if not result.cold:
            return
        assert not result.slices
        warm(result)


def bodies_in(result: GetResult) -> list[bytes]:
    return [body_of(record) for part in result.slices for record in split_records(part)]


def read_queue(store: MessageStore, queue_id: int, start: int = 0) -> tuple[list[bytes], list[GetResult]]:
    """A queue to its end: its bodies, and all results on the way."""
    found: list[bytes] = []
    results: list[GetResult] = []
    while start < store.max_offset("T", queue_id):
        results += pull(store, queue_id, start)
        assert results[-1].status is GetStatus.FOUND
        found += bodies_in(results[-1])
        start = results[-1].next_offset
    return found, results


def test_entries_on_disk_are_not_touched(config: StoreConfig) -> None:
    path = queue_file(config)
    assert resident_share(path) == 0
    with opened(config) as store:
        result = store.get("T", 0, 0, 32)
        assert result.cold
        assert resident_share(path) < 0.01
        warm(result)
        assert all(map(is_resident, result.cold_parts))
        assert store.get("T", 0, 400, 32).cold  # in the same block of entries, but its records are on disk
        result.cold_parts.clear()


def test_records_on_disk_are_read_in_by_blocks(config: StoreConfig) -> None:
    with opened(config) as store:
        entries, records, answer = pull(store, 0, 0)
        assert [len(part) for part in records.cold_parts] == [LOG_BLOCK_SIZE]
        assert bodies_in(answer) == [body(number) for number in range(0, 64, 2)]
        others, other = pull(store, 1, 0)  # the other queue has its messages in the same block
        assert bodies_in(other) == [body(number) for number in range(1, 64, 2)]
        for result in (entries, records, answer, others, other):
            result.cold_parts.clear()
            result.slices.clear()


def test_everything_is_read(config: StoreConfig) -> None:
    with opened(config) as store:
        for queue_id in range(2):
            found, results = read_queue(store, queue_id)
            assert found == [body(number) for number in range(queue_id, COUNT, 2)]
            results.clear()
        assert store.page_reader.done > 0


def test_who_reads_on_waits_only_in_the_beginning(config: StoreConfig) -> None:
    with opened(config) as store:
        waits, queue_offset = 0, 0
        while queue_offset < store.max_offset("T", 0):
            for result in pull(store, 0, queue_offset):
                waits += result.cold
            queue_offset = result.next_offset
            wait_until(lambda: store.page_reader.idle)
        # Its entries, the first block, and what lies before the first part that was read ahead.
        assert waits <= 2 + LOG_AHEAD_SIZE // LOG_BLOCK_SIZE


def test_nothing_is_handed_out_twice(config: StoreConfig) -> None:
    handed_out: list[int] = []
    with opened(config) as store:
        ahead = ReadAhead(store.commit_log, lambda part: not handed_out.append(address(part)), lambda: 1000.0)
        for physical_offset in range(0, 20 * MIB, 10_000):
            ahead.missing_records(physical_offset, physical_offset + 30_000)
            ahead.expect_records(physical_offset, 20 * MIB)
    assert len(handed_out) == 4
    assert len(set(handed_out)) == 4


def test_one_pull_does_not_read_ahead(config: StoreConfig) -> None:
    with opened(config) as store:
        results = list(pull(store, 0, 530, count=4))
        assert results[-1].count == 4
        entry = store.queue_entries("T", 0, 534, 1)[0]
        assert entry.physical_offset % LOG_BLOCK_SIZE < LOG_BLOCK_SIZE // 2  # in the first half of a block
        assert store.page_reader.idle
        assert store.page_reader.done == 0
        assert sum(len(part) for part in results[1].cold_parts) <= 2 * LOG_BLOCK_SIZE
        results.clear()


def test_records_far_apart_are_read_one_by_one(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with opened(config) as store:
        for _ in range(3):
            assert store.put(message(b"here", queue_id=1)).ok
            for number in range(COLD_SPAN_MAX // BODY_SIZE):
                assert store.put(message(body(number))).ok
    drop_pages(tmp_path)
    with opened(config) as store:
        *_, records, answer = pull(store, 1, 0)
        assert max(len(part) for part in records.cold_parts) < 1000
        assert bodies_in(answer) == [b"here"] * 3
        assert store.page_reader.done == 0


@pytest.mark.parametrize("damaged", [0, 5, 31])
def test_damaged_entries_are_mended(config: StoreConfig, damaged: int) -> None:
    with queue_file(config).open("r+b") as file:
        file.seek(damaged * 20)
        file.write(random.Random(damaged).randbytes(12))
    drop_pages(config.store_path_root_dir)
    with opened(config) as store:
        found, results = read_queue(store, 0)
        assert found == [body(number) for number in range(0, COUNT, 2)]
        results.clear()


def test_after_a_cut_the_new_messages_are_read(config: StoreConfig) -> None:
    with opened(config) as store:
        _, results = read_queue(store, 0)
        results.clear()
        entry = store.queue_entries("T", 0, 100, 1)[0]
        store.truncate(entry.physical_offset)
        for number in range(1000, 1050):
            assert store.put(message(body(number))).ok
        found, results = read_queue(store, 0)
        assert found == [body(number) for number in (*range(0, 200, 2), *range(1000, 1050))]
        results.clear()


def test_messages_of_a_removed_file_are_gone(config: StoreConfig) -> None:
    with opened(config) as store:
        _, results = read_queue(store, 0)
        results.clear()
        first = store.commit_log.remove_first()
        assert first is not None
        store._follow_log(store.commit_log.min_offset)
        assert len(store.reader.ahead) == 0
        min_offset = store.min_offset("T", 0)
        assert store.get("T", 0, 0, 32).status is GetStatus.OFFSET_TOO_SMALL
        found, results = read_queue(store, 0, min_offset)
        assert found == [body(number) for number in range(2 * min_offset, COUNT, 2)]
        results.clear()


def test_a_block_is_believed_in_for_a_while(config: StoreConfig) -> None:
    now, sizes, free = [1000.0], [], True

    def read_later(part: memoryview) -> bool:
        sizes.append(len(part))
        return free

    with opened(config) as store:
        ahead = ReadAhead(store.commit_log, read_later, lambda: now[0])
        half = LOG_BLOCK_SIZE // 2
        ahead.expect_records(half, LOG_AHEAD_SIZE)  # what comes then was written lately
        assert sizes == []
        for _ in range(3):
            ahead.expect_records(half, 20 * MIB)
        assert sizes == [LOG_AHEAD_SIZE] * 4  # up to there, each once
        now[0] += BELIEVED_S + 1
        free = False
        for _ in range(3):  # nobody has time for it: it is asked for again
            ahead.expect_records(half, 20 * MIB)
        assert sizes == [LOG_AHEAD_SIZE] * 7


def test_so_much_is_read_ahead(config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "LOG_AHEAD_COUNT", 2)
    sizes = list[int]()

    def read_later(part: memoryview) -> bool:
        sizes.append(len(part))
        return True

    with opened(config) as store:
        ahead = ReadAhead(store.commit_log, read_later)
        assert ahead.expect_records(LOG_BLOCK_SIZE // 2, 20 * MIB)
        assert sizes == [LOG_AHEAD_SIZE] * 2


def test_what_the_thread_has_not_read_yet_is_not_too_much(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PARTS_MAX * MIB))
    reader = PageReader()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped, memoryview(mapped) as view:
        for _ in range(3):
            with view[:MIB] as part:
                wait_until(lambda part=part: reader.read(part))
                wait_until(lambda: reader.idle)
        assert reader.done == 3
        reader.stop()
        reader.stop()
        assert reader.done == 3
        with view[:MIB] as part:
            assert reader.read(part)  # it begins anew
            reader.stop()
    assert reader.done == 4


def test_only_so_many_blocks_are_remembered(config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "BLOCKS_MAX", 8)
    with opened(config) as store:
        found, results = read_queue(store, 0)
        assert len(found) == COUNT // 2
        assert 0 < len(store.reader.ahead) <= 16
        results.clear()


@pytest.mark.parametrize("size", [300_000, 2 * MIB + 100], ids=["pages", "huge pages"])
def test_pages_are_found_missing_and_read_in(residency: Any, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(random.Random(1).randbytes(3 * MIB + 5000))
    drop_file(path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped, memoryview(mapped) as view:
        if residency.is_resident(view):
            pytest.skip("this file system keeps its files in memory")
        with view[MIB + 100 : MIB + 100 + size] as part, view[:0] as nothing:
            residency.read_in(part)
            residency.read_in(nothing)
            assert residency.is_resident(part)
            assert residency.is_resident(nothing)


def test_only_what_is_in_memory_is_at_hand(config: StoreConfig) -> None:
    with opened(config) as store:
        queue = store.table.find("T", 0)
        assert queue is not None
        assert store.reader.at_hand(queue, 0, 32) is None
        *_, answer = pull(store, 0, 0)
        found = store.reader.at_hand(queue, 0, 32)
        assert found is not None
        assert (found.entries_start, found.file.start) == (0, 0)
        assert found.entries[:20] == queue.read_rest(0, 20)
        assert store.reader.at_hand(queue, 300, 32) is None  # its entries are, its records are not
        answer.slices.clear()
        del found


def test_a_pull_over_the_end_of_a_queue_file_is_not_cut_short(tmp_path: Path) -> None:
    config = small_config(tmp_path)  # 100 entries a file
    fill(config, count=300, queues=1)
    with opened(config) as store:
        queue = store.table.find("T", 0)
        assert queue is not None
        read_queue(store, 0)
        assert store.reader.at_hand(queue, 60, 32) is not None
        assert store.reader.at_hand(queue, 90, 32) is None
        assert store.reader.at_hand(queue, 290, 32) is not None  # there are no more
        assert store.reader.at_hand(queue, 300, 32) is None


def test_a_window_answers_for_the_pulls_behind_the_first(config: StoreConfig) -> None:
    window = Window()
    with opened(config) as store:
        queue = store.table.find("T", 0)
        assert queue is not None
        read_queue(store, 0)
        asked: list[int] = []
        known = store.reader.ahead.missing_records
        store.reader.ahead.missing_records = lambda start, end: asked.append(start) or known(start, end)  # type: ignore
        found = [store.reader.at_hand(queue, offset, 32, window) is not None for offset in range(0, 256, 32)]
        assert all(found)
        assert 0 < len(asked) < len(found)
        without = len(asked)
        assert all(store.reader.at_hand(queue, offset, 32) is not None for offset in range(0, 256, 32))
        assert len(asked) - without == len(found)


def test_a_window_is_believed_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    window, now = Window(), [100.0]
    monkeypatch.setattr(window_module.time, "monotonic", lambda: now[0])
    assert not window.has_entries(0, 20)
    window.move(20, 200, 1000, 2000)
    assert window.has_entries(20, 200)
    assert not window.has_entries(0, 40)
    assert not window.has_entries(180, 220)
    now[0] += window_module.WINDOW_S
    assert not window.has_entries(20, 200)
