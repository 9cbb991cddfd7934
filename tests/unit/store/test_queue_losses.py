"""ConsumeQueue files that are missing, short or empty: recovery makes them anew from the log, at the same offsets."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import Clock, bodies, message, opened, queue_ranges, small_config

from cometmq.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.config import StoreConfig
from cometmq.store.file_ops import FileOps
from cometmq.store.recovery import Recovery
from cometmq.store.store import MessageStore

COUNT = 650  # seven files of 100 entries: recovery looks at the last three by itself


def queue_file(root: Path, number: int, queue: str = "T/0") -> Path:
    return root / "consumequeue" / queue / f"{number * 2000:020d}"


def fill(store: MessageStore) -> None:
    for number in range(COUNT):
        assert store.put(message(f"t{number}".ljust(200, "."))).ok
        assert store.put(message(f"u{number}", topic="U", queue_id=3)).ok
    assert store.put(message("idle", topic="I")).ok
    for number in range(500):  # T is older than the last files of the log
        assert store.put(message(f"v{number}".ljust(1500, "."), topic="V")).ok


@pytest.fixture(scope="module", params=["orderly stop", "crash"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store") / "store"
    store = MessageStore(small_config(root))
    store.open()
    fill(store)
    store._queue_flusher.flush_all()  # the checkpoint vouches for everything
    store.close() if request.param == "orderly stop" else store.kill_for_test()
    return root


@pytest.fixture
def config(made: Path, tmp_path: Path) -> StoreConfig:
    shutil.copytree(made, tmp_path / "store", copy_function=shutil.copy2)
    for directory in sorted((tmp_path / "store").rglob("*")):  # time stamps of directories are looked at too
        times = (made / directory.relative_to(tmp_path / "store")).stat()
        os.utime(directory, ns=(times.st_atime_ns, times.st_mtime_ns))
    return small_config(tmp_path / "store")


def empty(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def make_hole(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def empty_part(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:400] + bytes(800) + data[1200:])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "first file missing": lambda root: queue_file(root, 0).unlink(),
    "first files missing": lambda root: [queue_file(root, number).unlink() for number in range(3)],
    "second file missing": lambda root: queue_file(root, 1).unlink(),
    "every other file missing": lambda root: [queue_file(root, number).unlink() for number in (1, 3, 5)],
    "last file missing": lambda root: queue_file(root, 6).unlink(),
    "last two files missing": lambda root: [queue_file(root, number).unlink() for number in (5, 6)],
    "first file short": lambda root: os.truncate(queue_file(root, 0), 700),
    "middle file short": lambda root: os.truncate(queue_file(root, 3), 1000),
    "last file short": lambda root: os.truncate(queue_file(root, 6), 60),
    "middle file of length 0": lambda root: os.truncate(queue_file(root, 4), 0),
    "file too long": lambda root: os.truncate(queue_file(root, 2), 4000),
    "first file empty": lambda root: empty(queue_file(root, 0)),
    "old file empty": lambda root: empty(queue_file(root, 2)),
    "old file is a hole": lambda root: make_hole(queue_file(root, 1)),
    "new file empty": lambda root: empty(queue_file(root, 5)),
    "last file empty": lambda root: empty(queue_file(root, 6)),
    "part of a new file empty": lambda root: empty_part(queue_file(root, 5)),
    "everything empty": lambda root: [empty(queue_file(root, number)) for number in range(7)],
    "only file of an idle queue empty": lambda root: empty(queue_file(root, 0, "I/0")),
    "queue missing": lambda root: shutil.rmtree(root / "consumequeue" / "T" / "0"),
    "queue of the last records missing": lambda root: shutil.rmtree(root / "consumequeue" / "V"),
    "all queues missing": lambda root: shutil.rmtree(root / "consumequeue"),
}
# The checkpoint vouches for these entries, and nothing that is left tells of them.
UNNOTICED_AFTER_CRASH = {"last file missing", "last two files missing", "last file empty", "queue missing"}


def check(store: MessageStore) -> None:
    assert bodies(store, "T") == [f"t{number}".ljust(200, ".").encode() for number in range(COUNT)]
    assert bodies(store, "U", 3) == [f"u{number}".encode() for number in range(COUNT)]
    assert bodies(store, "I") == [b"idle"]
    assert len(bodies(store, "V")) == 500
    assert queue_ranges(store)["T-0"] == {"min": 0, "max": COUNT}
    assert queue_ranges(store)["I-0"] == {"min": 0, "max": 1}


@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_entries_are_made_anew(config: StoreConfig, damage: str) -> None:
    root = config.store_path_root_dir
    crashed = (root / "abort").exists()
    DAMAGES[damage](root)
    if crashed and damage in UNNOTICED_AFTER_CRASH:
        pytest.skip("a crash leaves no note of where queues ended")
    with opened(config) as store:
        check(store)
        assert store.put(message("next")).queue_offset == COUNT
    with opened(config) as store:  # and it lasts
        assert len(bodies(store, "T")) == COUNT + 1


def test_a_start_that_dies_while_it_makes_entries_anew_is_made_up_for(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_file(config.store_path_root_dir, 2).unlink()

    def die(recovery: Recovery, physical_offset: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Recovery, "dispatch", die)
        with pytest.raises(KeyboardInterrupt):
            MessageStore(config).open()
    assert not queue_file(
        config.store_path_root_dir, 3
    ).exists()  # what stood behind the hole is gone already
    assert Checkpoint.load(config.store_path_root_dir / "checkpoint").min_timestamp_ms == 0
    with opened(config) as store:
        check(store)


def test_a_queue_that_goes_on_after_a_crash_is_whole_although_its_directory_is_lost(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    fill(store)
    store._queue_flusher.flush_all()
    assert store.put(message("last")).queue_offset == COUNT
    store.kill_for_test()
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    with opened(config) as store:
        assert len(bodies(store)) == COUNT + 1
        assert queue_ranges(store)["T-0"] == {"min": 0, "max": COUNT + 1}


def test_entries_that_a_crash_took_although_the_checkpoint_had_promised_them_are_found(
    tmp_path: Path,
) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    fill(store)
    store._queue_flusher.flush_all()
    assert store.put(message("last")).queue_offset == COUNT
    store.kill_for_test()
    empty(queue_file(tmp_path, 6))  # it had entries 600 to 650
    with opened(config) as store:
        assert len(bodies(store)) == COUNT + 1


def test_a_new_queue_whose_page_was_lost_takes_no_walk_through_the_whole_log(tmp_path: Path) -> None:
    config = small_config(tmp_path, message_index_enable=False)
    store = MessageStore(config, now_ms=Clock(step_ms=100))
    store.open()
    fill(store)
    assert store._flusher.flush()
    store._queue_flusher.flush_all()
    assert store.put(message("first", topic="N")).ok
    total = store.table.record_count
    store.kill_for_test()
    empty(queue_file(tmp_path, 0, "N/0"))
    store = MessageStore(config)
    report = store.open()
    assert bodies(store, "N") == [b"first"]
    assert 0 < report.records_dispatched < total / 2
    store.close()


@pytest.mark.parametrize("orderly", [True, False])
def test_files_that_have_left_with_the_log_are_not_missed(tmp_path: Path, orderly: bool) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    fill(store)
    for path in store.table.expire(store.commit_log.files[3].start):
        os.unlink(path)
    for file in store.commit_log.files[:3]:
        file.delete()
    del store.commit_log.files[:3]
    ranges = queue_ranges(store)["V-0"]
    assert 100 < ranges["min"] < 400
    directory = queue_file(tmp_path, 0, "V/0").parent
    before = sorted(os.listdir(directory))
    store.close() if orderly else store.kill_for_test()
    (tmp_path / "queue-tails").unlink(missing_ok=True)
    store = MessageStore(config)
    report = store.open()
    assert not report.notes
    assert queue_ranges(store)["V-0"] == ranges
    assert sorted(os.listdir(directory)) == before
    store.close() if orderly else store.kill_for_test()
    (directory / before[0]).unlink()
    with opened(config) as store:  # but this one is
        assert queue_ranges(store)["V-0"] == ranges
        assert len(bodies(store, "V")) == ranges["max"] - ranges["min"]
        assert sorted(os.listdir(directory)) == before


def test_a_wrong_setting_is_told_and_nothing_is_touched(config: StoreConfig) -> None:
    root = config.store_path_root_dir
    before = {path: path.read_bytes() for path in (root / "consumequeue").rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="2000 bytes instead of 4000: set mappedFileSizeCommitLog and"):
        MessageStore(dataclasses.replace(config, mapped_file_size_consume_queue=4000)).open()
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_that_cannot_be_read_is_named(config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str, size: int) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (config.store_path_root_dir / "queue-tails").unlink(missing_ok=True)
    monkeypatch.setattr("cometmq.store.consume_queue.looks_full", broken)
    with pytest.raises(
        StoreError, match=r"consumequeue/./\d cannot be read \(Input/output error\): check who may"
    ):
        MessageStore(config).open()


def test_directories_of_new_queues_are_synced_with_those_above_before_the_checkpoint(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(FileOps):
        def sync_directory(self, path: Path | str) -> None:
            synced.append(os.path.relpath(path, tmp_path))
            super().sync_directory(path)

    with opened(small_config(tmp_path), ops=Watched()) as store:
        assert store.put(message("one")).ok
        assert {".", "commitlog"} <= set(synced)  # before anything is counted as flushed
        synced.clear()
        assert store._queue_flusher.flush_all()
        assert {"consumequeue/T/0", "consumequeue/T", "consumequeue", "."} <= set(synced)
        synced.clear()
        assert store.put(message("two")).ok
        assert store._queue_flusher.flush_all()
        assert set(synced) - {"commitlog"} == {"consumequeue/T/0"}  # the next log file may be made meanwhile
