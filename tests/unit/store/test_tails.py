"""A clean restart believes its note of the queues' ends only while nothing has changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import bodies, message, opened, queue_ranges, small_config

from cometmq.store.config import StoreConfig
from cometmq.store.store import MessageStore


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    config = small_config(tmp_path)
    with opened(config) as store:
        for n in range(250):
            store.put(message(f"{n}", topic=f"T{n % 3}", queue_id=n % 2))
    return config


def reopen(config: StoreConfig) -> tuple[bool, dict[str, dict[str, int]]]:
    store = MessageStore(config)
    trusted = store.open().tails_trusted
    ranges = queue_ranges(store)
    store.close()
    return trusted, ranges


def test_unchanged_store_opens_without_a_look_into_its_queues(config: StoreConfig) -> None:
    store = MessageStore(config)
    report = store.open()
    assert (report.tails_trusted, report.records_scanned) == (True, 0)
    assert not (config.store_path_root_dir / "queue-tails").exists()  # a crash must not find it
    assert len(bodies(store, "T0", 0)) == 42
    assert store.put(message("next", topic="T0")).queue_offset == 42
    store.close()
    (config.store_path_root_dir / "queue-tails").unlink()
    trusted, ranges = reopen(config)
    assert not trusted
    assert ranges["T0-0"] == {"min": 0, "max": 43}
    assert reopen(config) == (True, ranges)


def test_killed_store_has_no_note(config: StoreConfig) -> None:
    store = MessageStore(config)
    store.open()
    store.kill_for_test()
    assert not reopen(config)[0]


def spoil_note(root: Path) -> None:
    path = root / "queue-tails"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)


def append_record_as_another_broker(root: Path) -> None:
    """Keeps all time stamps, like a mapped write on some file systems."""
    path = root / "commitlog" / f"{0:020d}"
    times = path.stat()
    note = (root / "queue-tails").read_bytes()
    end = int.from_bytes(note[16:24], "big")
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"\0\0\0\x64\xda\xa3\x20\xa7")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def damage_last_record(root: Path) -> None:
    path = root / "commitlog" / f"{0:020d}"
    times = path.stat()
    end = int.from_bytes((root / "queue-tails").read_bytes()[16:24], "big")
    with path.open("r+b") as file:
        file.seek(end - 6)
        file.write(b"\xff")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], None]] = {
    "note damaged": spoil_note,
    "note cut short": lambda root: os.truncate(root / "queue-tails", 50),
    "record appended": append_record_as_another_broker,
    "last record damaged": damage_last_record,
    "log file touched": lambda root: os.utime(root / "commitlog" / f"{0:020d}", ns=(1, 1)),
    "queue file touched": lambda root: os.utime(root / "consumequeue/T1/0" / f"{0:020d}", ns=(1, 1)),
    "queue removed": lambda root: shutil.rmtree(root / "consumequeue/T1/0"),
    "topic removed": lambda root: shutil.rmtree(root / "consumequeue/T1"),
    "topic added": lambda root: (root / "consumequeue/T9").mkdir(),
    "queue added": lambda root: (root / "consumequeue/T1/5").mkdir(),
    "queues removed": lambda root: shutil.rmtree(root / "consumequeue"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_store_is_recovered_the_long_way(config: StoreConfig, change: str) -> None:
    CHANGES[change](config.store_path_root_dir)
    trusted, ranges = reopen(config)
    assert not trusted
    if change == "last record damaged":
        assert sum(found["max"] for found in ranges.values()) == 249
    elif change == "queue removed" or change == "topic removed":
        assert ranges["T0-0"] == {"min": 0, "max": 42}
    else:
        assert sum(found["max"] for found in ranges.values()) == 250
