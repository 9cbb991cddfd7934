"""A disk without space: the caller gets an error, the log stays sound, service returns by itself."""

from __future__ import annotations

from pathlib import Path

from faulty_files import NO_SPACE, FaultyOps
from store_kit import bodies, message, opened, properties, small_config

from cometmq.store.model import PutStatus


def test_first_file_cannot_be_made(tmp_path: Path) -> None:
    ops = FaultyOps("commitlog")
    ops.fail_create = NO_SPACE
    with opened(small_config(tmp_path), ops=ops) as store:
        assert store.put(message()).status is PutStatus.CREATE_MAPPED_FILE_FAILED
        ops.fail_create = 0
        assert store.put(message("now")).ok
        assert bodies(store) == [b"now"]


def test_next_file_cannot_be_made(tmp_path: Path) -> None:
    ops = FaultyOps("commitlog")
    config = small_config(tmp_path, mapped_file_size_commit_log=4096)
    with opened(config, ops=ops) as store:
        kept = store.put(message(b"x" * 700))
        ops.fail_allocate = NO_SPACE
        while (last := store.put(message(b"x" * 700))).ok:
            kept = last
        assert last.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert store.max_physical_offset == kept.end_offset
        assert store.put(message(b"small")).ok  # what fits into the current file is still taken
        ops.fail_allocate = 0
        assert store.put(message(b"y" * 3000)).ok
        count = len(bodies(store))
    with opened(config) as store:
        assert len(bodies(store)) == count


def test_space_is_allocated_before_it_is_handed_out(tmp_path: Path) -> None:
    ops = FaultyOps("commitlog")
    with opened(small_config(tmp_path), ops=ops) as store:
        store.put(message())
    # What lies behind the last record may be a hole: a new process must ask the disk before it writes there.
    ops.fail_allocate = NO_SPACE
    with opened(small_config(tmp_path), ops=ops) as store:
        assert store.put(message(b"x" * 5000)).status is PutStatus.CREATE_MAPPED_FILE_FAILED
        ops.fail_allocate = 0
        assert store.put(message(b"x" * 5000)).ok
        assert bodies(store) == [b"hello", b"x" * 5000]


def test_queue_cannot_grow_stops_writes_and_is_made_up_for(tmp_path: Path) -> None:
    ops = FaultyOps("consumequeue")
    with opened(small_config(tmp_path), ops=ops) as store:
        ops.fail_allocate = NO_SPACE
        assert store.put(message("in the log")).ok
        assert store.max_offset("T", 0) == 0
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        store.tick()
        assert not store.writable
        ops.fail_allocate = 0
        store.tick()
        assert store.writable
        assert store.put(message("next")).queue_offset == 1
        assert bodies(store) == [b"in the log", b"next"]


def test_queue_file_cannot_be_created(tmp_path: Path) -> None:
    ops = FaultyOps("consumequeue")
    with opened(small_config(tmp_path), ops=ops) as store:
        for n in range(99):
            store.put(message(f"{n}"))
        ops.fail_create = NO_SPACE
        assert store.put(message("99")).ok
        assert store.put(message("100")).ok  # needs the second file
        assert not store.writable
        ops.fail_create = 0
        store.tick()
        assert store.put(message("101")).queue_offset == 101
        assert bodies(store) == [str(n).encode() for n in range(102)]


def test_store_closed_while_queues_are_behind_catches_up_at_the_next_start(tmp_path: Path) -> None:
    ops = FaultyOps("consumequeue")
    with opened(small_config(tmp_path), ops=ops) as store:
        store.put(message("a", properties=properties(KEYS="k")))
        ops.fail_allocate = ops.fail_create = NO_SPACE
        store.put(message("b", queue_id=1, properties=properties(KEYS="k")))
    assert (tmp_path / "abort").exists()
    with opened(small_config(tmp_path)) as store:
        assert bodies(store, queue_id=1) == [b"b"]
        assert len(store.query("T", "k", 10, 0, 1 << 62).offsets) == 2


def test_full_disk_refuses_messages_and_returns_to_service(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        store.retention.disk.full = True
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert not store.writable
        assert store.readable
        store.retention.disk.full = False
        assert store.put(message()).ok
