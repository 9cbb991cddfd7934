"""The key index against files of the Java broker, and its own rules."""

from __future__ import annotations

import array
import itertools
import json
import os
import random
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cold_pages import drop_file, resident_share

from cometmq.errors import StoreError
from cometmq.store.config import StoreConfig
from cometmq.store.delay_levels import DelayLevels
from cometmq.store.index import Index, key_hash
from cometmq.store.index_file import IndexHeader
from cometmq.store.mapped_file import OpenFiles
from cometmq.store.queue_table import QueueTable
from cometmq.store.scan_cy import scan_records

FOREVER_MS = (1 << 63) - 1
SLOTS, ENTRIES = 100, 400
T0_MS = 1_794_778_447_789


def open_index(directory: Path, **options: object) -> Index:
    options.setdefault("submit", None)
    index = Index(directory, hash_slot_count=SLOTS, index_count_max=ENTRIES, **options)  # type: ignore[arg-type]
    index.load()
    return index


def build_from_log(index: Index, store: Path, scratch: Path) -> None:
    """Index all records through the dispatcher; the queues go to a scratch directory."""
    config = StoreConfig(store_path_root_dir=scratch)
    table = QueueTable(config, OpenFiles(64), DelayLevels(config.message_delay_level))
    table.index = index
    for path in sorted((store / "commitlog").iterdir()):
        data = memoryview(path.read_bytes())
        table.dispatch(data, 0, scan_records(data, 0, len(data), int(path.name), True).end, int(path.name))


def test_index_built_from_golden_log_is_identical_to_the_files_of_java(
    tmp_path: Path, golden_store: Callable[[str], Path]
) -> None:
    store = golden_store("clean")
    index = open_index(tmp_path / "index")
    build_from_log(index, store, tmp_path / "scratch")
    index.close()
    ours = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
    javas = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    assert ours == javas


def test_queries_on_golden_index_find_at_least_what_java_found(golden: Path, golden_store) -> None:  # type: ignore[no-untyped-def]
    store = golden_store("clean")
    manifest = json.loads((golden / "store-4.9.7" / "clean.manifest.json").read_text())
    index = open_index(store / "index")
    probes = [probe for probe in manifest["probes"] if probe["op"] == "indexQuery"]
    assert probes
    messages = {message["phyOffset"]: message for message in manifest["messages"]}
    for probe in probes:

        def really(offset: int, probe: dict[str, object] = probe) -> bool:
            message = messages[offset]
            keys = [message["uniqKey"], *(message["keys"] or "").split(" ")]
            in_time = probe["begin"] <= message["storeTimestamp"] <= probe["end"]  # type: ignore[operator]
            return message["topic"] == probe["topic"] and probe["key"] in keys and in_time

        arguments = probe["topic"], probe["key"], min(probe["maxNum"], 64), probe["begin"], probe["end"]
        result = index.query(*arguments, accept=really)
        should = [offset for offset in messages if really(offset)]
        assert result.offsets == should[-min(probe["maxNum"], 64) :]
        # Java errs at the edges of the time window by up to a second, both ways; inside they agree.
        java = {offset for offset in probe["phyOffsets"] if really(offset)}
        assert java <= set(result.offsets)


def test_query_finds_messages_of_the_first_second_that_java_misses(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    index.put_key("T", "first", 0, T0_MS)
    index.put_key("T", "k", 1000, T0_MS + 1999)  # stored as 1 s
    assert index.query("T", "k", 10, T0_MS + 1500, FOREVER_MS).offsets == [1000]
    assert index.query("T", "k", 10, 0, T0_MS + 1000).offsets == [1000]  # a candidate; its real time decides
    assert index.query("T", "k", 10, 0, T0_MS + 1000, lambda _offset: False).offsets == []
    assert index.query("T", "k", 10, T0_MS + 2000, FOREVER_MS).offsets == []
    assert index.query("T", "k", 10, 0, T0_MS + 999).offsets == []


def test_newest_records_come_first_when_the_count_is_limited(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(1000):
        index.put_key("T", "same", number * 100, T0_MS + number)
    assert len(index.paths) == 3
    assert index.query("T", "same", 3, 0, FOREVER_MS).offsets == [99700, 99800, 99900]
    result = index.query("T", "same", 2000, 0, FOREVER_MS)
    assert result.offsets == [number * 100 for number in range(1000)]
    assert result[1:] == (T0_MS + 999, 99900)


def test_colliding_keys_are_left_to_accept(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    assert key_hash("T", "FB") == key_hash("T", "Ea")
    index.put_key("T", "FB", 10, T0_MS)
    index.put_key("T", "Ea", 20, T0_MS)
    assert index.query("T", "FB", 10, 0, FOREVER_MS).offsets == [10, 20]
    assert index.query("T", "FB", 1, 0, FOREVER_MS, lambda offset: offset == 10).offsets == [10]


def test_hash_of_min_int_becomes_zero() -> None:
    # "polygenelubricants" hashes to Integer.MIN_VALUE: the one value without an absolute value.
    from cometmq.store.index_cy import fold_hash, text_hash

    assert text_hash(0, "polygenelubricants") == 0x80000000
    assert fold_hash(0x80000000) == 0
    assert fold_hash(0xFFFFFFFF) == 1
    assert text_hash(0, "\U0001f600") == (0xD83D * 31 + 0xDE00) & 0xFFFFFFFF


def test_reopened_index_passes_over_what_it_has(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(5):
        index.put_key("T", f"k{number}", number * 100, T0_MS)
    index.close()
    index = open_index(tmp_path / "index")
    assert index.indexed_to == 401
    for number in range(7):
        index.put_key("T", f"k{number}", number * 100, T0_MS)
    file = index.paths[0].read_bytes()
    assert IndexHeader.parse(file).index_count == 8
    assert index.query("T", "k6", 10, 0, FOREVER_MS).offsets == [600]


def test_keys_of_one_record_may_come_in_two_batches(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    index.put_key("T", "a", 100, T0_MS)
    index.put_key("T", "b", 100, T0_MS)
    assert index.query("T", "b", 10, 0, FOREVER_MS).offsets == [100]


def test_names_are_unique_and_ascending_even_if_the_clock_goes_back(tmp_path: Path) -> None:
    clock = itertools.count(T0_MS + 3_600_000, -3_600_000)
    index = open_index(tmp_path / "index", now_ms=lambda: next(clock))
    for number in range(4 * ENTRIES):
        index.put_key("T", "k", number, T0_MS)
    names = [path.name for path in index.paths]
    assert len(names) == 5
    assert names == sorted(set(names))
    assert all(len(name) == 17 and name.isdigit() for name in names)


def test_expire_removes_files_below_the_log_but_never_the_newest(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(1000):
        index.put_key("T", "k", number * 10, T0_MS)
    first, second, third = index.paths
    assert index.expire(3980) == 0  # the last record of the first file stands at 3980
    assert index.expire(3981) == 1
    assert not first.exists()
    assert index.expire(1 << 40) == 1
    assert not second.exists()
    assert third.exists()
    assert index.query("T", "k", 2000, 0, FOREVER_MS).offsets == [n * 10 for n in range(798, 1000)]


def test_truncate_forgets_records_behind_the_end_of_the_log(tmp_path: Path) -> None:
    reference = open_index(tmp_path / "reference")
    index = open_index(tmp_path / "index")
    source = random.Random(7)
    keys = [(f"key{source.randrange(200)}", number * 50, T0_MS + number * 40) for number in range(700)]
    for name, offset, time_ms in keys:
        index.put_key("T", name, offset, time_ms)
        if offset < 15000:
            reference.put_key("T", name, offset, time_ms)
    index.truncate(15000)
    assert index.indexed_to == 14951
    assert len(index.paths) == 1
    ours, theirs = index.paths[0].read_bytes(), reference.paths[0].read_bytes()
    assert ours[16:] == theirs[16:]  # the end time is known to a second only
    assert struct.unpack_from(">q", ours, 8)[0] >= struct.unpack_from(">q", theirs, 8)[0]
    # What is written over the cut offsets is indexed again; the original would pass over it.
    index.put_key("T", "new", 15000, T0_MS + 60_000)
    assert index.query("T", "new", 10, 0, FOREVER_MS).offsets == [15000]


def test_recover_keeps_what_was_synced_and_says_where_to_go_on(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(300):
        index.put_key("T", f"k{number}", number * 50, T0_MS + number * 100)
    index.abandon()
    index = open_index(tmp_path / "index")
    go_on = index.recover(T0_MS + 20_000)
    assert go_on == 199 * 50 + 1
    assert index.query("T", "k199", 10, 0, FOREVER_MS).offsets == [199 * 50]
    assert index.query("T", "k200", 10, 0, FOREVER_MS).offsets == []


def test_recover_stops_at_entries_that_never_reached_the_disk(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(300):
        index.put_key("T", f"k{number}", number * 50, T0_MS + number * 100)
    index.abandon()
    (path,) = index.paths
    with path.open("r+b") as file:  # a page that the power cut left as zeros
        file.seek(40 + 4 * SLOTS + 20 * 151)
        file.write(bytes(20 * 20))
    index = open_index(tmp_path / "index")
    assert index.recover(T0_MS + 29_000) == 149 * 50 + 1
    assert IndexHeader.parse(path.read_bytes()).index_count == 151


def test_recover_drops_files_that_were_never_synced(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(900):
        index.put_key("T", "k", number * 50, T0_MS + number)
    first = index.paths[0]
    header = IndexHeader.parse(first.read_bytes())
    index.abandon()
    index = open_index(tmp_path / "index")
    assert index.recover(header.end_timestamp_ms) == header.end_physical_offset + 1
    assert index.paths == [first]
    assert open_index(tmp_path / "index").recover(0) == 0
    assert list((tmp_path / "index").iterdir()) == []


def test_flush_tells_only_times_that_are_complete(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    assert index.flush() == 0
    index.put_key("T", "k", 0, T0_MS)
    assert index.flush() == T0_MS - 1
    for number in range(ENTRIES):
        index.put_key("T", "k", number, T0_MS + number)
    assert index.flush() == T0_MS + ENTRIES - 2  # the first file is full and whole, the second begun
    index.close()


def test_a_full_disk_ends_in_a_sentence_and_the_index_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path / "index")
    index.put_key("T", "a", 0, T0_MS)
    real = os.posix_fallocate

    def full(*_arguments: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    batch = memoryview(
        array.array("q", itertools.chain(*((key_hash("T", "a"), n, T0_MS) for n in range(1, 800))))
    )
    with pytest.raises(StoreError, match="No space left on device"):
        index.put(batch, 799)
    monkeypatch.setattr(os, "posix_fallocate", real)
    for number in range(2 * ENTRIES):
        index.put_key("T", "a", number, T0_MS)
    assert index.query("T", "a", 2000, 0, FOREVER_MS).offsets == list(range(2 * ENTRIES))


def test_space_is_allocated_ahead_in_the_background(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as background:
        index = Index(
            tmp_path / "index", hash_slot_count=1000, index_count_max=1_000_000, submit=background.submit
        )
        index.load()
        batch = memoryview(array.array("q", [5, 0, T0_MS] * 1000))
        for start in range(500):
            for number in range(1000):
                batch[number * 3 + 1] = start * 1000 + number
            index.put(batch, 1000)
        index.close()
        status = index.paths[0].stat()
    assert status.st_size == 40 + 4 * 1000 + 20 * 1_000_000
    assert 500_000 * 20 <= status.st_blocks * 512 < status.st_size + 65536


def test_a_file_that_is_opened_again_gets_its_pages_made_ready(tmp_path: Path) -> None:
    batch = memoryview(array.array("q", [5, 0, T0_MS]))
    with ThreadPoolExecutor(1) as background:
        for _ in range(2):
            index = Index(
                tmp_path / "index", hash_slot_count=1000, index_count_max=1_000_000, submit=background.submit
            )
            index.load()
            for path in index.paths:
                drop_file(path)
            index.put(batch, 1)
            index.close()  # waits for the background
            batch[1] += 1
    assert resident_share(index.paths[0]) > 0.7  # of this chunk and the next, 16 of 20 MiB


def test_queries_in_another_thread_see_a_consistent_index(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    stop = threading.Event()
    problems: list[object] = []

    def ask() -> None:
        while not stop.is_set():
            offsets = index.query("T", "k", 10_000, 0, FOREVER_MS).offsets
            if offsets != list(range(len(offsets))):
                problems.append(offsets)

    thread = threading.Thread(target=ask)
    thread.start()
    for number in range(3000):
        index.put_key("T", "k", number, T0_MS)
    stop.set()
    thread.join()
    assert problems == []


def test_a_damaged_chain_does_not_loop(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    for number in range(10):
        index.put_key("T", "k", number, T0_MS)
    index.close()
    path = index.paths[0]
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 40 + 4 * SLOTS + 20 * 5 + 16, 9)  # entry 5 points forward
    path.write_bytes(data)
    assert open_index(tmp_path / "index").query("T", "k", 100, 0, FOREVER_MS).offsets == [4, 5, 6, 7, 8, 9]
