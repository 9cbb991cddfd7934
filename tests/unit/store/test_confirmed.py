"""A replica's store: queues know what is confirmed, free offsets are counted beside them, and the log can be cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_kit import bodies, message, opened, properties, read_all, small_config

from cometmq.store.config import BrokerRole, StoreConfig
from cometmq.store.model import BatchItem, GetStatus, PutStatus, StoreBatch
from cometmq.store.store import MessageStore


@contextmanager
def replica(config: StoreConfig, confirmed: int = 1 << 62) -> Iterator[MessageStore]:
    store = MessageStore(config)
    store.open(confirmed)
    store.become_master()
    try:
        yield store
    finally:
        store.close()


def test_what_is_not_confirmed_is_not_read(tmp_path: Path) -> None:
    with replica(small_config(tmp_path)) as store:
        first = store.put(message("one"))
        second = store.put(message("two"))
        assert (first.queue_offset, second.queue_offset) == (0, 1)
        assert bodies(store) == []
        assert store.max_offset("T", 0) == 0
        store.confirm(first.end_offset)
        assert bodies(store) == [b"one"]
        store.confirm(second.end_offset)
        assert bodies(store) == [b"one", b"two"]


def test_an_offset_that_is_not_confirmed_yet_is_one_to_wait_for(tmp_path: Path) -> None:
    with replica(small_config(tmp_path)) as store:
        store.put(message())
        store.put(message())
        waited = store.get("T", 0, 1, 32)
        assert (waited.status, waited.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
        wrong = store.get("T", 0, 9, 32)
        assert wrong.status is not GetStatus.OFFSET_OVERFLOW_ONE
        store.become_slave()  # a replica that lags corrects nobody
        assert store.get("T", 0, 9, 32).next_offset == 9


def test_a_held_pull_wakes_when_its_message_is_confirmed(tmp_path: Path) -> None:
    woken: list[int] = []
    with replica(small_config(tmp_path)) as store:
        store.watch("T", 0, lambda topic, queue_id: woken.append(queue_id))
        end = store.put(message()).end_offset
        assert woken == []
        store.confirm(end)
        assert woken == [0]


def test_a_new_master_counts_records_that_no_queue_has(tmp_path: Path) -> None:
    """Queue offsets must not be given twice (RocketMQ issue 7689), over the end of a file and in batches."""
    config = small_config(tmp_path)
    with replica(config) as store:
        for number in range(40):
            end = store.put(message(b"x" * 10_000, queue_id=number % 3)).end_offset
            if number == 10:
                store.confirm(end)
        store.put_batch(StoreBatch("T", 1, [BatchItem(b"a"), BatchItem(b"b")]))
        before = [store.put(message(queue_id=queue_id)).queue_offset for queue_id in range(3)]
        store.become_slave()
        store.become_master()
        after = [store.put(message(queue_id=queue_id)).queue_offset for queue_id in range(3)]
        assert after == [offset + 1 for offset in before]
        store.confirm(store.max_physical_offset)
        assert [store.max_offset("T", queue_id) for queue_id in range(3)] == [offset + 1 for offset in after]


def test_the_queues_of_a_killed_replica_begin_where_it_knows_them_confirmed(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open(0)
    store.become_master()
    ends = [
        store.put(message(str(number), properties=properties(KEYS=f"k{number}"))).end_offset
        for number in range(9)
    ]
    store.confirm(ends[5])
    store.kill_for_test()
    with replica(config, confirmed=ends[2]) as again:
        assert again.max_physical_offset == ends[-1]
        assert bodies(again) == [b"0", b"1", b"2"]
        assert again.query("T", "k4", 10, 0, 1 << 62).offsets == []
        assert again.put(message()).queue_offset == 9
        again.confirm(ends[-1])
        assert len(bodies(again)) == 9
        assert len(again.query("T", "k4", 10, 0, 1 << 62).offsets) == 1


def test_an_orderly_stop_with_records_that_are_not_confirmed_is_clean(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with replica(config) as store:
        store.put(message())
    assert not (tmp_path / "abort").exists()
    with replica(config, confirmed=0) as again:
        assert bodies(again) == []
        assert again.put(message()).queue_offset == 1


def test_a_plain_broker_opens_the_store_of_a_replica_and_sees_everything(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with replica(config) as store:
        for number in range(5):
            store.put(message(str(number)))
    with opened(config) as plain:
        assert len(bodies(plain)) == 5
        assert plain.put(message()).queue_offset == 5


@pytest.mark.parametrize("kept", [0, 1, 30, 55])
def test_a_cut_log_is_gone_everywhere_and_stays_gone(tmp_path: Path, kept: int) -> None:
    """Across files; a crash right after it does not bring the records back (RocketMQ issue 10666)."""
    config = small_config(tmp_path)
    store = MessageStore(config)
    store.open(0)
    store.become_master()
    ends = [0]
    for number in range(60):
        put = store.put(message(b"%d" % number * 4000, properties=properties(KEYS=f"k{number}")))
        ends.append(put.end_offset)
    store.confirm(store.max_physical_offset)
    store.become_slave()
    store.truncate(ends[kept])
    assert store.max_physical_offset == ends[kept]
    assert store.flushed_offset == ends[kept]
    assert len(read_all(store, "T", 0)) == kept
    assert store.query("T", "k59", 10, 0, 1 << 62).offsets == []
    store.kill_for_test()
    with replica(config) as again:
        assert again.max_physical_offset == ends[kept]
        assert len(read_all(again, "T", 0)) == kept
        assert again.put(message("next")).queue_offset == kept
        again.confirm(again.max_physical_offset)
        assert bodies(again)[-1] == b"next"


def test_a_log_that_was_cut_grows_again_in_place(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with replica(config) as store:
        ends = [store.put(message(b"x" * 50_000)).end_offset for _ in range(20)]
        store.become_slave()
        store.truncate(ends[3])
        store.become_master()
        for _ in range(20):
            assert store.put(message(b"y" * 50_000)).status is PutStatus.PUT_OK
        store.confirm(store.max_physical_offset)
        assert [body[:1] for body in bodies(store)] == [b"x"] * 4 + [b"y"] * 20
    names = sorted(os.listdir(tmp_path / "commitlog"))
    assert [int(name) for name in names] == list(range(0, len(names) * 262144, 262144))


def test_another_log_begins_where_its_master_says(tmp_path: Path) -> None:
    config = small_config(tmp_path / "one")
    with replica(small_config(tmp_path / "two")) as other:
        for _ in range(10):
            other.put(message(b"x" * 50_000))
        start = 262144
        part = bytes(other.read_log(start, 262144) or b"")
    with replica(config) as store:
        store.put(message("old"))
        store.confirm(store.max_physical_offset)
        store.become_slave()
        assert store.role is BrokerRole.SLAVE
        store.begin_anew(tmp_path / "one" / "aside")
        assert (tmp_path / "one" / "aside" / f"{0:020d}").exists()
        assert bodies(store) == []
        store.append_raw(start, part)
        assert store.min_physical_offset == start
        store.confirm(store.max_physical_offset)
        assert store.max_offset("T", 0) > store.min_offset("T", 0) > 0


def test_nothing_is_taken_while_the_group_does_not_allow_it(tmp_path: Path) -> None:
    with replica(small_config(tmp_path)) as store:
        store.may_append = lambda: False
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.reserve(100) is None
        assert store.max_physical_offset == 0


def killed(config: StoreConfig, count: int = 20) -> list[int]:
    """A killed replica with everything confirmed; where its records end."""
    store = MessageStore(config)
    store.open(0)
    store.become_master()
    ends = [store.put(message(b"%d" % number * 100)).end_offset for number in range(count)]
    store.confirm(ends[-1])
    store.kill_for_test()
    return ends


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 16
    path.write_bytes(data)


def test_a_damaged_record_among_good_ones_is_told_from_an_unfinished_write(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    ends = killed(config)
    log = tmp_path / "commitlog" / f"{0:020d}"
    flip(log, ends[7] + 100)  # inside a body
    store = MessageStore(config)
    report = store.open(ends[-1])
    assert (report.cut_offset, report.damaged) == (ends[7], True)
    store.kill_for_test()


def test_an_unfinished_write_is_no_damage(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    ends = killed(config)
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[ends[-1] : ends[-1] + 60] = data[ends[-2] : ends[-2] + 60]
    log.write_bytes(data)
    store = MessageStore(config)
    report = store.open(ends[-1])
    assert (report.cut_offset, report.damaged) == (ends[-1], False)
    assert len(bodies(store)) == 20
    store.close()


def test_damaged_queue_entries_are_made_anew_after_a_crash(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    ends = killed(config)
    flip(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 5 * 20 + 6)
    with replica(config, ends[-1]) as store:
        assert bodies(store) == [b"%d" % number * 100 for number in range(20)]
