"""The ConsumeQueue extension against the files of the Java broker, and its rules at the ends of files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.consume_queue_ext import ADDRESS_BASE, ConsumeQueueExt, ExtUnit, is_address
from cometmq.store.mapped_file import OpenFiles

FILE_SIZE = 4096
UNIT = ExtUnit(2621, 1_794_779_049_418, bytes(14))


def open_ext(directory: Path, file_size: int = FILE_SIZE) -> ConsumeQueueExt:
    ext = ConsumeQueueExt(directory, file_size, OpenFiles(16))
    ext.load()
    ext.recover()
    return ext


def golden_queues(golden: Path) -> dict[str, list[list[int]]]:
    manifest = json.loads((golden / "store-4.9.7" / "features.manifest.json").read_text())
    found: dict[str, list[list[int]]] = manifest["consumeQueueOnDisk"]
    return found


def test_units_of_java_are_found_by_the_addresses_in_its_queues_and_rewrite_to_the_same_bytes(
    tmp_path: Path, golden: Path, golden_store: Callable[[str], Path]
) -> None:
    store = golden_store("features")
    checked = 0
    for name, entries in golden_queues(golden).items():
        topic, _, queue_id = name.rpartition("-")
        addresses = [entry[3] for entry in entries if is_address(entry[3])]
        if not addresses:
            continue
        javas = open_ext(store / "consumequeue_ext" / topic / queue_id)
        ours = open_ext(tmp_path / "ours" / topic / queue_id)
        for address in addresses:
            unit = javas.get(address)
            assert unit is not None
            assert ours.put(unit) == address
            checked += 1
        assert ours.end == javas.end
        for path in Path(javas.directory).iterdir():
            assert (Path(ours.directory) / path.name).read_bytes() == path.read_bytes()
    assert checked > 40


def test_address_is_the_position_above_the_most_negative_long(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q")
    assert ext.put(UNIT) == ADDRESS_BASE
    assert ext.put(UNIT) == ADDRESS_BASE + 34
    assert ext.get(ADDRESS_BASE + 34) == UNIT
    assert ext.get(ADDRESS_BASE + 68) is None
    assert ext.get(17) is None
    assert is_address(-2147483649)
    assert not is_address(-2147483648)


def test_a_file_is_closed_where_a_unit_and_four_bytes_do_not_fit(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q", 100)
    addresses = [ext.put(UNIT) for _ in range(5)]
    assert addresses == [ADDRESS_BASE + position for position in (0, 34, 100, 134, 200)]
    first = (tmp_path / "q" / f"{0:020d}").read_bytes()
    assert struct.unpack_from(">h", first, 68)[0] == -1
    again = open_ext(tmp_path / "q", 100)
    assert again.end == 234
    assert [again.get(address) for address in addresses] == [UNIT] * 5  # type: ignore[arg-type]
    assert again.put(UNIT) == ADDRESS_BASE + 234


def test_reopening_a_closed_last_file_goes_on_in_the_next(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q", 76)  # two units and their four bytes do not fit: 34 + 34 + 4 <= 76 do
    assert ext.put(UNIT) == ADDRESS_BASE
    assert ext.put(UNIT) == ADDRESS_BASE + 34
    assert ext.put(UNIT) == ADDRESS_BASE + 76
    ext.truncate_after(ADDRESS_BASE + 34)
    assert open_ext(tmp_path / "q", 76).put(UNIT) == ADDRESS_BASE + 76


def test_units_behind_the_last_known_address_are_cut_and_do_not_come_back(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q", 100)
    for _ in range(7):
        ext.put(UNIT)
    ext.truncate_after(ADDRESS_BASE + 100)
    assert ext.end == 134
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == [f"{0:020d}", f"{100:020d}"]
    assert open_ext(tmp_path / "q", 100).end == 134
    ext.truncate_after(5)  # the queue has no address at all: nothing to go by
    assert ext.end == 134
    ext.clear()
    assert list((tmp_path / "q").iterdir()) == []


def test_files_below_the_lowest_address_in_use_expire(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q", 100)
    addresses = [ext.put(UNIT) for _ in range(7)]
    assert ext.expire(12345) == []
    expired = ext.expire(addresses[4] or 0)
    assert [Path(path).name for path in expired] == [f"{0:020d}", f"{100:020d}"]
    assert ext.get(addresses[0] or 0) is None
    assert ext.get(addresses[4] or 0) == UNIT
    for path in expired:
        Path(path).unlink()
    assert open_ext(tmp_path / "q", 100).get(addresses[6] or 0) == UNIT


def test_a_unit_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q", 100)
    assert ext.put(ExtUnit(1, 2, bytes(80))) is None
    assert open_ext(tmp_path / "r", 50_000).put(ExtUnit(1, 2, bytes(32_748))) is None
    assert not (tmp_path / "q").exists()


def test_sync_names_each_written_file_once(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "q", 100)
    for _ in range(3):
        ext.put(UNIT)
    assert len(ext.take_unsynced()) == 2
    assert ext.take_unsynced() == []
    ext.put(UNIT)
    ext.sync()
    assert ext.take_unsynced() == []


@pytest.mark.parametrize(
    ("name", "size", "words"), [("x.txt", 4096, "is not a file"), (f"{0:020d}", 7, "7 bytes")]
)
def test_foreign_files_and_wrong_lengths_are_named(tmp_path: Path, name: str, size: int, words: str) -> None:
    (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(StoreError, match=words):
        open_ext(tmp_path)


def test_destroy_leaves_nothing(tmp_path: Path) -> None:
    ext = open_ext(tmp_path / "topic" / "0")
    ext.put(UNIT)
    ext.destroy()
    assert not (tmp_path / "topic").exists()
