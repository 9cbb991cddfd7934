"""Durability: group commit, timeouts, and what happens after a failed sync."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faulty_files import IO_ERROR, FaultyOps
from store_kit import bodies, message, opened, small_config

from cometmq.store import flush
from cometmq.store.config import FlushDiskType, StoreConfig
from cometmq.store.model import PutStatus
from cometmq.store.store import MessageStore


def sync_config(root: Path, **settings: Any) -> StoreConfig:
    return small_config(root, flush_disk_type=FlushDiskType.SYNC_FLUSH, **settings)


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.002)


def wait_flushed(store: MessageStore, end_offset: int) -> bool:
    done = threading.Event()
    answers: list[bool] = []

    def callback(ok: bool) -> None:
        answers.append(ok)
        done.set()

    store.flush_waiter(end_offset, callback)
    assert done.wait(10)
    return answers[0]


def test_waiter_is_served_when_its_bytes_are_on_disk(tmp_path: Path) -> None:
    ops = FaultyOps()
    with opened(sync_config(tmp_path), ops=ops) as store:
        result = store.put(message())
        assert wait_flushed(store, result.end_offset)
        assert store.flushed_offset >= result.end_offset
        assert ops.sync_count > 0
        # What is on disk already needs no thread.
        answers: list[bool] = []
        store.flush_waiter(result.end_offset, answers.append)
        assert answers == [True]


def test_waiters_that_came_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    ops = FaultyOps("commitlog")
    with opened(sync_config(tmp_path), ops=ops) as store:
        store.put(message())
        assert wait_flushed(store, store.max_physical_offset)
        before = ops.sync_count
        ops.hold_sync.clear()
        answers: list[bool] = []
        for _ in range(100):
            store.flush_waiter(store.put(message()).end_offset, answers.append)
        ops.hold_sync.set()
        until(lambda: len(answers) == 100)
        assert all(answers)
        assert ops.sync_count - before <= 3


def test_waiter_across_two_files_waits_for_both(tmp_path: Path) -> None:
    with opened(sync_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        for _ in range(5):
            result = store.put(message(b"x" * 3000))
        assert wait_flushed(store, result.end_offset)
        assert store.flushed_offset == store.max_physical_offset


def test_waiter_of_a_hanging_sync_times_out(tmp_path: Path) -> None:
    ops = FaultyOps("commitlog")
    with opened(sync_config(tmp_path, sync_flush_timeout=1), ops=ops) as store:
        ops.hold_sync.clear()
        answers: list[bool] = []
        store.flush_waiter(store.put(message()).end_offset, answers.append)
        time.sleep(0.005)
        store.tick()
        assert answers == [False]
        ops.hold_sync.set()
        until(lambda: store.flushed_offset == store.max_physical_offset)
        assert answers == [False]


def test_async_flush_follows_within_its_interval(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, flush_interval_commit_log=5)) as store:
        store.put(message())  # less than four pages: waits for the thorough flush
        until(lambda: store._flusher.flushed_offset == 0)
        for _ in range(20):
            store.put(message(b"x" * 1000))
        until(lambda: store.flushed_offset > 16384)


def test_what_is_told_to_be_on_disk_ends_with_a_record(tmp_path: Path) -> None:
    """A flush in between leaves the page out that is being written; replicas keep and tell where it ended."""
    ends = {0}
    with opened(small_config(tmp_path)) as store:
        for number in range(60):
            ends.add(store.put(message(body=bytes(300 + number))).end_offset)
            store._flusher.flush(whole=False)
            assert store.flushed_offset in ends
        assert 0 < store.flushed_offset < max(ends)
        store._flusher.flush()
        assert store.flushed_offset == max(ends)


def test_thorough_flush_takes_the_last_byte(tmp_path: Path) -> None:
    config = small_config(tmp_path, flush_interval_commit_log=5, flush_commit_log_thorough_interval=10)
    with opened(config) as store:
        store.put(message())
        until(lambda: store.flushed_offset == store.max_physical_offset)


def test_checkpoint_moves_on_with_the_flushes(tmp_path: Path) -> None:
    config = small_config(
        tmp_path, flush_interval_consume_queue=5, flush_consume_queue_thorough_interval=10,
        flush_interval_commit_log=5, flush_commit_log_thorough_interval=10,
    )  # fmt: skip
    with opened(config) as store:
        result = store.put(message())
        until(lambda: store.checkpoint.logics_msg_timestamp_ms == result.store_timestamp_ms)
        until(lambda: store.checkpoint.physic_msg_timestamp_ms == result.store_timestamp_ms)


# A failed sync


def test_failed_sync_fails_waiters_and_stops_writes_until_the_log_is_known_good(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(flush, "REPAIR_INTERVAL_S", 0.01)
    ops = FaultyOps("commitlog")
    with opened(sync_config(tmp_path), ops=ops) as store:
        good = store.put(message("good"))
        assert wait_flushed(store, good.end_offset)
        ops.fail_sync = IO_ERROR
        bad = store.put(message("bad"))
        assert not wait_flushed(store, bad.end_offset)
        assert store.flushed_offset == good.end_offset
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.reserve(100) is None
        assert not store.writable
        assert (tmp_path / "fsync-failed").read_text() == f"{good.end_offset}\n"
        assert not wait_flushed(store, bad.end_offset)  # nothing is acknowledged in the meantime
        assert bodies(store) == [b"good", b"bad"]  # reading goes on
        ops.fail_sync = 0
        until(lambda: store.writable)
        assert store.flushed_offset == bad.end_offset
        assert not (tmp_path / "fsync-failed").exists()
        assert wait_flushed(store, store.put(message("again")).end_offset)


def test_one_failed_sync_is_enough_even_if_the_next_would_succeed(tmp_path: Path) -> None:
    """The kernel reports an error once; a second, successful sync does not prove anything."""
    ops = FaultyOps("commitlog")
    rewritten: list[int] = []
    with opened(sync_config(tmp_path), ops=ops) as store:
        ops.fail_sync = IO_ERROR
        store.put(message())
        until(lambda: not store._flusher.healthy)
        ops.fail_sync = 0
        original = flush.os.pwrite

        def pwrite(descriptor: int, data: bytes, offset: int) -> int:
            rewritten.append(len(data))
            return original(descriptor, data, offset)

        flush.os.pwrite = pwrite  # type: ignore[assignment]
        try:
            until(lambda: store.writable)
        finally:
            flush.os.pwrite = original
        assert rewritten == [store.max_physical_offset]


def test_store_closed_after_a_failed_sync_is_looked_at_closely_and_written_again(tmp_path: Path) -> None:
    ops = FaultyOps("commitlog")
    store = MessageStore(sync_config(tmp_path), ops=ops)
    store.open()
    store.put(message("one"))
    ops.fail_sync = IO_ERROR
    store.put(message("two"))
    until(lambda: not store._flusher.healthy)
    store.close()
    assert (tmp_path / "abort").exists()
    assert (tmp_path / "fsync-failed").exists()
    with opened(sync_config(tmp_path)) as again:
        assert bodies(again) == [b"one", b"two"]
        assert again.writable
    assert not (tmp_path / "fsync-failed").exists()


def test_queue_that_cannot_be_synced_keeps_the_checkpoint_and_the_abort_file(tmp_path: Path) -> None:
    ops = FaultyOps("consumequeue")
    store = MessageStore(small_config(tmp_path), ops=ops)
    store.open()
    store.put(message("one"))
    ops.fail_sync = IO_ERROR
    store.close()
    assert store.checkpoint.logics_msg_timestamp_ms == 0
    assert (tmp_path / "abort").exists()
    with opened(small_config(tmp_path)) as again:
        assert bodies(again) == [b"one"]


def test_after_a_crash_everything_is_synced_before_the_checkpoint_moves(tmp_path: Path) -> None:
    """Queues that get no more messages may be in memory only when the process was killed."""
    store = MessageStore(small_config(tmp_path))
    store.open()
    store.put(message("old", topic="Old"))
    store.kill_for_test()
    ops = FaultyOps("commitlog")
    again = MessageStore(small_config(tmp_path), ops=ops)
    again.open()
    assert ops.sync_count >= 1  # the log, before anything is acknowledged behind the old messages
    assert again._queue_flusher.sync_all_first
    again.put(message("new"))
    assert again._queue_flusher.flush_all()
    assert not again._queue_flusher.sync_all_first
    again.close()


def test_file_deleted_before_its_flush_is_no_failure(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        store.put(message(b"x" * 3000))
        store.put(message(b"y" * 3000))
        file = store.commit_log.remove_first()
        assert file is not None
        file.delete()
        assert store._flusher.flush()
        assert store.writable
