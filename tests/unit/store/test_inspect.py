"""What inspect says about the stores of the Java broker."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import StoreError
from cometmq.store.inspect import inspect
from cometmq.store.lock_file import LockFile
from cometmq.store.read_only import DEFAULT_INDEX_SHAPE, StoreFiles

GoldenStore = Callable[[str], Path]


def manifest(golden: Path, name: str) -> Any:
    return json.loads((golden / "store-4.9.7" / f"{name}.manifest.json").read_text())


@pytest.mark.parametrize("name", ["clean", "crash", "features"])
def test_golden_store_is_described_as_its_manifest_lists_it(
    golden: Path, golden_store: GoldenStore, name: str
) -> None:
    expected = manifest(golden, name)
    summary = inspect(golden_store(name))
    log = summary.log
    assert log.file_size == 262144
    assert log.min_physical_offset == expected["expectedRecovery"]["commitLogMinOffset"]
    assert log.max_physical_offset == expected["expectedRecovery"]["commitLogMaxOffset"]
    assert log.first_store_timestamp_ms == expected["messages"][0]["storeTimestamp"]
    assert log.last_store_timestamp_ms == expected["messages"][-1]["storeTimestamp"]
    assert summary.aborted == expected["abortFilePresent"]
    found = {f"{q.topic}-{q.queue_id}": {"min": q.min_offset, "max": q.max_offset} for q in summary.queues}
    assert found == expected["expectedRecovery"]["queues"]
    for index, listed in zip(summary.index, expected["indexFiles"], strict=True):
        assert index.name == listed["file"]
        assert index.entry_count == listed["indexCount"] - 1
        assert index.end_physical_offset == listed["endPhyOffset"]
    assert summary.problems == []


def test_time_range_of_a_queue_is_that_of_its_records(golden: Path, golden_store: GoldenStore) -> None:
    messages = [
        m for m in manifest(golden, "clean")["messages"] if (m["topic"], m["queueId"]) == ("TopicFill", 1)
    ]
    queue = next(
        q for q in inspect(golden_store("clean")).queues if (q.topic, q.queue_id) == ("TopicFill", 1)
    )
    assert queue.first_store_timestamp_ms == messages[0]["storeTimestamp"]
    assert queue.last_store_timestamp_ms == messages[-1]["storeTimestamp"]
    assert (queue.file_count, queue.file_size, queue.message_count) == (3, 2000, 233)


def test_expired_entries_do_not_count(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    (root / "commitlog" / f"{0:020d}").unlink()
    summary = inspect(root)
    assert summary.log.min_physical_offset == 262144
    queue = next(q for q in summary.queues if (q.topic, q.queue_id) == ("TopicFill", 0))
    assert 0 < queue.min_offset < queue.max_offset == 234


def test_state_tells_stopped_crashed_and_in_use(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    assert inspect(root).state == "not in use; the last broker stopped in order"
    (root / "abort").touch()
    assert "did not stop in order" in inspect(root).state
    lock = LockFile(root / "lock")
    lock.acquire()
    assert inspect(root).state == f"in use by process {os.getpid()}"
    lock.release()


@pytest.mark.parametrize("name", ["clean", "features"])
def test_shape_of_index_files_is_found_from_their_content(golden_store: GoldenStore, name: str) -> None:
    assert StoreFiles(golden_store(name)).index_shape() == (100, 400)


def test_shape_of_a_single_odd_index_file_is_found_by_its_last_entry(tmp_path: Path) -> None:
    from cometmq.store.index import Index

    (tmp_path / "commitlog").mkdir()
    index = Index(tmp_path / "index", hash_slot_count=33, index_count_max=70, submit=None)
    index.load()
    for number in range(5):
        index.put_key("T", f"k{number}", number * 1000, 1_794_778_447_789)
    index.close()
    assert StoreFiles(tmp_path).index_shape() == (33, 70)


def test_default_index_shape_is_known(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "index").mkdir()
    path = tmp_path / "index" / "20261115213407803"
    with path.open("wb") as file:
        file.write(struct.pack(">qqqqii", 1, 2, 0, 0, 1, 2))
        file.truncate(DEFAULT_INDEX_SHAPE.file_size)
    assert StoreFiles(tmp_path).index_shape() == DEFAULT_INDEX_SHAPE


def test_odd_files_are_listed_as_problems(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    (root / "commitlog" / "notes.txt").write_text("")
    os.truncate(root / "commitlog" / f"{262144:020d}", 1000)
    (root / "consumequeue" / "TopicFill" / "0" / f"{2000:020d}").unlink()
    problems = inspect(root).problems
    assert len(problems) == 3
    assert "notes.txt does not belong here" in problems[0]
    assert "00262144 has 1000 bytes, the others 262144" in problems[1]
    assert "files between are missing" in problems[2]


def test_inspect_writes_nothing(golden_store: GoldenStore) -> None:
    root = golden_store("crash")

    def state() -> dict[Path, tuple[int, int, int]]:
        stats = {path: path.stat() for path in root.rglob("*")}
        return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}

    before = state()
    inspect(root)
    assert state() == before


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: None, "does not exist: give the storePathRootDir"),
        (lambda root: root.write_text(""), "is not a directory"),
        (lambda root: root.mkdir(), "has no commit log"),
        (lambda root: (root.mkdir(), (root / "commitlog").write_text("")), "is a file: move it away"),
    ],
)
def test_a_directory_that_is_no_store_is_refused(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / "store")
    with pytest.raises(StoreError, match=words):
        inspect(tmp_path / "store")


def test_the_commit_log_itself_is_recognised(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    with pytest.raises(StoreError, match=f"is a commit log: give the directory above, {root}"):
        inspect(root / "commitlog")
    moved = root.parent / "elsewhere"
    (root / "commitlog").rename(moved)
    assert inspect(root, moved).log.file_count == 5
