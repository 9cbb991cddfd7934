"""Opening a store again: clean, killed, cut, damaged, or not a store at all."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest
from store_kit import Clock, bodies, message, opened, properties, queue_ranges, read_all, small_config

from cometmq.errors import StoreError
from cometmq.store.config import StoreConfig
from cometmq.store.model import BatchItem, StoreBatch
from cometmq.store.store import MessageStore


def killed(config: StoreConfig, count: int = 30) -> list[bytes]:
    """A store that was killed after `count` messages in three queues; the bodies of queue 0."""
    store = MessageStore(config)
    store.open()
    for n in range(count):
        store.put(message(f"{n}" * 50, queue_id=n % 3, properties=properties(KEYS=f"k{n}")))
    expected = bodies(store)
    store.kill_for_test()
    return expected


def log_file(root: Path, start: int = 0) -> Path:
    return root / "commitlog" / f"{start:020d}"


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_orderly_stop_leaves_no_abort_and_no_file_made_ahead(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with opened(config) as store:
        store.put(message())
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    assert (tmp_path / "checkpoint").stat().st_size == 4096


@pytest.mark.parametrize("lost", [1, 4])
def test_record_whose_last_properties_never_reached_the_disk_is_not_taken(tmp_path: Path, lost: int) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    store.put(message("first", properties=b""))
    end = store.put(message("second", properties=properties(KEYS="k"))).end_offset
    store.kill_for_test()
    patch(log_file(tmp_path), end - lost, bytes(lost))
    with opened(config) as store:
        assert bodies(store) == [b"first"]  # it ends with zeros too, which are the length of its properties


def test_killed_store_loses_nothing(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    expected = killed(config)
    store = MessageStore(config)
    report = store.open()
    assert not report.clean
    assert bodies(store) == expected
    assert len(store.query("T", "k7", 10, 0, 1 << 62).offsets) == 1
    assert store.put(message("next")).queue_offset == len(expected)
    store.close()


def test_killed_twice_in_a_row_loses_nothing(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    first = killed(config, 10)
    second = killed(config, 300)
    assert second[: len(first)] == first
    with opened(config) as store:
        assert bodies(store) == second


def test_queues_and_index_lost_in_a_crash_are_made_again(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    expected = killed(config, 500)
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")
    with opened(config) as store:
        assert bodies(store) == expected
        assert all(len(store.query("T", f"k{n}", 10, 0, 1 << 62).offsets) == 1 for n in range(0, 500, 17))


def test_half_written_record_is_cut_and_its_place_is_zeroed(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    first = store.put(message(b"a" * 100))
    second = store.put(message(b"b" * 100))
    store.put(message(b"c" * 100))
    store.kill_for_test()
    patch(log_file(tmp_path), second.physical_offset + 120, bytes(20))
    report = (again := MessageStore(config)).open()
    assert report.cut_offset == first.end_offset
    assert bodies(again) == [b"a" * 100]
    assert again.max_physical_offset == first.end_offset
    again.close()
    assert set(log_file(tmp_path).read_bytes()[first.end_offset :]) == {0}


def test_record_behind_a_bad_one_does_not_come_back(tmp_path: Path) -> None:
    """In the original a new record of the same length joins up with the old ones after the next crash."""
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    results = [store.put(message(b"%d" % n * 100)) for n in range(5)]
    store.kill_for_test()
    patch(log_file(tmp_path), results[1].physical_offset + 100, b"!")
    store = MessageStore(config)
    store.open()
    assert bodies(store) == [b"0" * 100]
    assert store.put(message(b"n" * 100)).physical_offset == results[1].physical_offset
    store.kill_for_test()
    with opened(config) as store:
        assert bodies(store) == [b"0" * 100, b"n" * 100]
        assert store.max_physical_offset == results[1].end_offset


def test_record_of_another_place_is_not_taken_for_one_of_here(tmp_path: Path) -> None:
    """The original does not compare the physical offset in a record with its position."""
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    first, second = store.put(message(b"a" * 100)), store.put(message(b"b" * 100))
    record = bytes(store.read_record(first.physical_offset) or b"")
    store.kill_for_test()
    patch(log_file(tmp_path), second.end_offset, record)
    with opened(config) as store:
        assert store.max_physical_offset == second.end_offset
        assert bodies(store) == [b"a" * 100, b"b" * 100]


def test_wrong_crc_in_an_old_file_is_not_looked_at_but_cut_in_a_recent_one(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096)
    with opened(config) as store:
        results = [store.put(message(b"%d" % n * 1200)) for n in range(15)]
    patch(log_file(tmp_path), 500, b"!")
    with opened(config) as store:
        assert store.max_offset("T", 0) == 15
    target = results[12].physical_offset
    patch(log_file(tmp_path, target - target % 4096), target % 4096 + 500, b"!")
    (tmp_path / "queue-tails").unlink(missing_ok=True)
    with opened(config) as store:
        assert store.max_offset("T", 0) == 12


def test_queue_entries_are_kept_when_the_log_is_cut_in_an_earlier_file(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=100)
    store = MessageStore(config)
    store.open()
    results = [store.put(message(b"%02d" % n * 300, queue_id=n % 2)) for n in range(40)]
    store.kill_for_test()
    target = results[23].physical_offset
    patch(log_file(tmp_path, target - target % 4096), target % 4096 + 4, b"\0\0\0\0")
    with opened(config) as store:
        assert queue_ranges(store) == {"T-0": {"min": 0, "max": 12}, "T-1": {"min": 0, "max": 11}}
        assert bodies(store, queue_id=1) == [b"%02d" % n * 300 for n in range(1, 23, 2)]
        assert store.put(message("x", queue_id=1)).queue_offset == 11


def test_everything_behind_the_first_record_lost(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    killed(config)
    patch(log_file(tmp_path), 0, bytes(8))
    with opened(config) as store:
        assert store.max_physical_offset == 0
        assert queue_ranges(store) == {f"T-{n}": {"min": 0, "max": 0} for n in range(3)}
        assert store.put(message("first")).queue_offset == 0


def test_blank_record_with_no_file_behind_is_written_over(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096)
    store = MessageStore(config)
    store.open()
    first = store.put(message(b"x" * 3000))
    store.put(message(b"y" * 3000))
    store.kill_for_test()
    for start in (4096, 8192):
        log_file(tmp_path, start).unlink(missing_ok=True)
    with opened(config) as store:
        assert store.max_physical_offset == first.end_offset
        assert store.put(message(b"small")).physical_offset == first.end_offset
        assert bodies(store) == [b"x" * 3000, b"small"]


def test_empty_file_behind_a_closed_one_is_the_next_place(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096)
    store = MessageStore(config)
    store.open()
    store.put(message(b"x" * 3000))
    store.put(message(b"y" * 3000))
    store.kill_for_test()
    patch(log_file(tmp_path, 4096), 0, bytes(4096))
    with opened(config) as store:
        assert store.max_physical_offset == 4096
        assert store.put(message(b"z")).physical_offset == 4096
    with opened(config) as store:
        assert bodies(store) == [b"x" * 3000, b"z"]


def test_recovery_starts_where_the_checkpoint_says(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096, message_index_enable=False)
    clock = Clock(step_ms=1000)
    store = MessageStore(config, now_ms=clock)
    store.open()
    for n in range(40):
        store.put(message(b"%d" % n * 500))
    assert store._flusher.flush()
    assert store._queue_flusher.flush_all()
    for n in range(3):
        store.put(message(b"%d" % n * 500))
    store.kill_for_test()
    again = MessageStore(config)
    report = again.open()
    assert 0 < report.records_scanned < 15
    assert again.max_offset("T", 0) == 43
    again.close()


def test_lost_entries_of_one_queue_are_dispatched_again(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    expected = killed(config, 60)
    patch(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 20 * 15, bytes(100))
    with opened(config) as store:
        assert bodies(store) == expected


def test_rebuild_is_byte_identical(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with opened(config, now_ms=Clock()) as store:
        for n in range(700):
            store.put(message(f"{n}", queue_id=n % 3, properties=properties(KEYS=f"a{n} b{n}", TAGS="t")))
        store.put_batch(StoreBatch("B", 0, [BatchItem(b"x")] * 20))
        store.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties(DELAY="3")))
    files = {path: path.read_bytes() for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()}
    index = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")
    with opened(config):
        pass
    assert {path: path.read_bytes() for path in files} == files
    assert [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())] == index


# A replica


def raw_bytes(store: MessageStore) -> bytes:
    data, offset = b"", 0
    while (part := store.read_log(offset, 32768)) is not None and len(part):
        data += bytes(part)
        offset += len(part)
    return data


def test_raw_bytes_of_another_log_give_the_same_store(tmp_path: Path) -> None:
    master_config = small_config(tmp_path / "master", mapped_file_size_commit_log=16384)
    slave_config = small_config(tmp_path / "slave", mapped_file_size_commit_log=16384)
    with opened(master_config) as master, opened(slave_config) as slave:
        slave.become_slave()
        for n in range(200):
            master.put(message(f"{n}" * 30, queue_id=n % 3, properties=properties(KEYS=f"k{n}")))
        data = raw_bytes(master)
        assert len(data) == master.max_physical_offset
        for start in range(0, len(data), 777):
            slave.append_raw(start, data[start : start + 777])
        assert slave.max_physical_offset == master.max_physical_offset
        assert queue_ranges(slave) == queue_ranges(master)
        assert [read_all(slave, "T", n) for n in range(3)] == [read_all(master, "T", n) for n in range(3)]
        assert len(slave.query("T", "k150", 10, 0, 1 << 62).offsets) == 1
        with pytest.raises(StoreError, match="ends at"):
            slave.append_raw(5, b"x")
    with opened(slave_config) as slave:
        assert bodies(slave)[:2] == [b"0" * 30, b"3" * 30]


# Bad input: one clear sentence each


def broken(root: Path, kind: str) -> str:
    """Break a store; what the sentence must name."""
    queue = root / "consumequeue" / "T" / "0"
    if kind == "short log file":
        os.truncate(log_file(root), 1000)
        return f"{log_file(root)} has 1000 bytes instead of 262144"
    if kind == "stray file in the log":
        (root / "commitlog" / "notes.txt").touch()
        return f"{root / 'commitlog' / 'notes.txt'} is not a commit log file"
    if kind == "missing log file":
        log_file(root, 2 * 262144).write_bytes(bytes(262144))
        return f"{log_file(root, 262144)} is missing"
    if kind == "log file at an odd place":
        log_file(root).rename(log_file(root, 1000))
        return "does not begin at a multiple of mappedFileSizeCommitLog"
    if kind == "short queue file":
        os.truncate(queue / f"{0:020d}", 10)
        return f"{queue / f'{0:020d}'} has 10 bytes instead of 2000"
    if kind == "stray file in a queue":
        (queue / "x").touch()
        return f"{queue / 'x'} is not a ConsumeQueue file"
    if kind == "checkpoint of a wrong length":
        (root / "checkpoint").write_bytes(b"x")
        return f"{root / 'checkpoint'} has 1 bytes instead of 4096"
    assert kind == "root is a file"
    shutil.rmtree(root)
    root.touch()
    return str(root)


@pytest.mark.parametrize(
    "kind",
    [
        "short log file", "stray file in the log", "missing log file", "log file at an odd place",
        "short queue file", "stray file in a queue", "checkpoint of a wrong length", "root is a file",
    ],
)  # fmt: skip
def test_store_that_cannot_be_opened_says_which_file_and_what_to_do(tmp_path: Path, kind: str) -> None:
    config = small_config(tmp_path / "store")
    with opened(config) as store:
        store.put(message())
    (tmp_path / "store" / "queue-tails").unlink(missing_ok=True)
    named = broken(tmp_path / "store", kind)
    with pytest.raises(StoreError) as caught:
        MessageStore(config).open()
    text = str(caught.value)
    assert named in text
    assert text.endswith(".")
    assert "\n" not in text


def test_store_in_use_is_refused(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)), pytest.raises(StoreError, match="in use"):
        MessageStore(small_config(tmp_path)).open()
    with opened(small_config(tmp_path)) as store:
        assert store.put(message()).ok


def test_foreign_bytes_in_the_log_are_refused_after_an_orderly_stop_and_cut_after_a_crash(
    tmp_path: Path,
) -> None:
    config = small_config(tmp_path)
    (tmp_path / "commitlog").mkdir()
    foreign = b"PK" + os.urandom(262142)
    log_file(tmp_path).write_bytes(foreign)
    with pytest.raises(StoreError, match="does not begin with a record of its own"):
        MessageStore(config).open()
    assert log_file(tmp_path).read_bytes() == foreign
    (tmp_path / "abort").touch()
    with opened(config) as store:
        assert store.max_physical_offset == 0
        assert store.put(message("fresh")).ok
        assert bodies(store) == [b"fresh"]


def test_record_with_an_absurd_length_ends_the_log(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    result = store.put(message())
    store.kill_for_test()
    for size in (0xFFFFFFFF, 0x7FFFFFFF, 0, 90, 262144):
        patch(log_file(tmp_path), result.end_offset, struct.pack(">II", size, 0xDAA320A7))
        with opened(config) as store:
            assert store.max_physical_offset == result.end_offset


def test_files_that_a_crash_left_without_a_byte_are_made_again(tmp_path: Path) -> None:
    """Killed between the creation of a file and giving it its length."""
    config = small_config(tmp_path)
    expected = killed(config)
    log_file(tmp_path, 262144).unlink(missing_ok=True)
    log_file(tmp_path, 262144).touch()
    (tmp_path / "consumequeue" / "T" / "9").mkdir()
    (tmp_path / "consumequeue" / "T" / "9" / f"{0:020d}").touch()
    (tmp_path / "index" / "20991231235959999").touch()
    with opened(config) as store:
        assert bodies(store) == expected
        assert store.put(message(queue_id=9)).queue_offset == 0
        assert len(store.query("T", "k3", 10, 0, 1 << 62).offsets) == 1


def test_a_log_file_that_lost_its_length_before_one_that_was_made_ahead_is_the_end(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open()
    for number in range(20):
        assert store.put(message(f"{number}")).ok
    store.kill_for_test()
    (tmp_path / "commitlog" / f"{262144:020d}").write_bytes(b"")
    (tmp_path / "commitlog" / f"{524288:020d}").write_bytes(bytes(262144))
    with opened(config) as store:
        assert len(bodies(store)) == 20
        assert store.put(message("next")).queue_offset == 20


def test_a_log_file_that_lost_its_length_before_one_with_records_is_missed(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with opened(config) as store:
        for number in range(600):
            assert store.put(message(f"{number}".ljust(1500, "."))).ok
    second = tmp_path / "commitlog" / f"{262144:020d}"
    later = second.with_name(f"{524288:020d}").read_bytes()
    os.truncate(second, 0)
    with pytest.raises(StoreError, match="00000000000000262144 has 0 bytes instead of 262144"):
        MessageStore(config).open()
    assert second.exists()
    assert second.with_name(f"{524288:020d}").read_bytes() == later
