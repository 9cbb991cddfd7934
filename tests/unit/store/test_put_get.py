"""Messages in, messages out: records, queue entries, statuses, filters, limits."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from store_kit import (
    BASE_TIME_MS,
    Clock,
    bodies,
    body_of,
    message,
    opened,
    properties,
    read_all,
    small_config,
)

from cometmq.protocol.hashing import java_string_hash
from cometmq.protocol.host import encode_host
from cometmq.protocol.record_cy import decode_records
from cometmq.store.append_cy import write_record
from cometmq.store.model import LOCALHOST, BatchItem, GetStatus, PutStatus, StoreBatch
from cometmq.store.store import MessageStore


def test_message_is_there_in_the_same_call(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        first = store.put(message("a"))
        second = store.put(message("b"))
        assert (first.queue_offset, second.queue_offset) == (0, 1)
        assert second.physical_offset == first.end_offset
        assert bodies(store) == [b"a", b"b"]
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 2)


def test_record_holds_every_field(tmp_path: Path) -> None:
    v6, v4 = encode_host("::1", 1234), encode_host("10.1.2.3", 10911)
    with opened(small_config(tmp_path), now_ms=Clock()) as store:
        result = store.put(
            message(
                b"body", topic="Topic", queue_id=3, properties=b"TAGS\x01A", flag=-7, sys_flag=0x301,
                born_timestamp_ms=99, born_host=v6, store_host=v4, reconsume_times=2,
                prepared_transaction_offset=77,
            )
        )  # fmt: skip
        record = store.read_record(result.physical_offset)
    assert record is not None
    assert struct.unpack_from(">IIIiiqqiq", record)[3:] == (3, -7, 0, 0, 0x311, 99)
    assert bytes(record[48:68]) == v6
    assert struct.unpack_from(">q", record, 68)[0] == result.store_timestamp_ms
    assert bytes(record[76:84]) == v4
    assert struct.unpack_from(">iqi", record, 84) == (2, 77, 4)
    assert bytes(record[100:]) == b"body\x05Topic\x00\x06TAGS\x01A"
    assert result.size == len(record)


def test_batch_is_contiguous_with_one_store_time(tmp_path: Path) -> None:
    items = [BatchItem(b"x%d" % n, b"n\x01%d" % n, n) for n in range(5)]
    with opened(small_config(tmp_path), now_ms=Clock()) as store:
        store.put(message("before", topic="B", queue_id=1))
        result = store.put_batch(StoreBatch("B", 1, items, properties=b"CLUSTER\x01c"))
        assert result.ok
        assert result.queue_offset == 1
        assert len(result.offsets) == 5
        records = read_all(store, "B", 1)[1:]
        assert [body_of(record) for record in records] == [b"x0", b"x1", b"x2", b"x3", b"x4"]
        assert [record[-len(b"n\x010\x02CLUSTER\x01c") :] for record in records] == [
            b"n\x01%d\x02CLUSTER\x01c" % n for n in range(5)
        ]
        assert {struct.unpack_from(">q", record, 56)[0] for record in records} == {result.store_timestamp_ms}
        pull = store.get("B", 1, 1, 32)
        assert len(pull.slices) == 1


def test_separator_between_item_and_header_properties_is_not_doubled(tmp_path: Path) -> None:
    items = [BatchItem(b"x", b"n\x011\x02"), BatchItem(b"y", b"")]
    with opened(small_config(tmp_path)) as store:
        store.put_batch(StoreBatch("B", 0, items, properties=b"CLUSTER\x01c"))
        first, second = read_all(store, "B", 0)
    assert first.endswith(b"n\x011\x02CLUSTER\x01c")
    assert second.endswith(b"\x00\x09CLUSTER\x01c")


# Rolling and size limits


def test_record_that_does_not_fit_closes_the_file_with_a_blank(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        first = store.put(message(b"x" * 3000))
        second = store.put(message(b"y" * 3000))
        assert second.physical_offset == 4096
        tail = store.read_log(first.end_offset, 8)
        assert tail is not None
        assert struct.unpack(">II", tail) == (4096 - first.end_offset, 0xCBD43194)
        assert bodies(store) == [b"x" * 3000, b"y" * 3000]


def test_batch_never_spans_two_files(tmp_path: Path) -> None:
    items = [BatchItem(b"x" * 500)] * 4
    with opened(small_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        store.put(message(b"y" * 2500))
        result = store.put_batch(StoreBatch("T", 0, items))
        assert result.offsets[0] == 4096
        assert len(bodies(store)) == 5


def test_record_of_exactly_the_largest_size_is_stored(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096)
    largest = 4096 - 8 - 91 - len("T")
    with opened(config) as store:
        assert store.put(message(b"x" * (largest + 1))).status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == 0
        assert store.put(message(b"x" * largest)).ok
        assert store.put(message(b"z")).physical_offset == 4096
        assert [len(body) for body in bodies(store)] == [largest, 1]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"topic": "t" * 127}, PutStatus.PUT_OK),
        ({"topic": "t" * 128}, PutStatus.MESSAGE_ILLEGAL),
        ({"topic": ""}, PutStatus.MESSAGE_ILLEGAL),
        ({"queue_id": -1}, PutStatus.MESSAGE_ILLEGAL),
        ({"properties": b"n\x01" + b"v" * 32765}, PutStatus.PUT_OK),
        ({"properties": b"n\x01" + b"v" * 32766}, PutStatus.MESSAGE_ILLEGAL),
        ({"properties": b"n\x01" + "é".encode() * 16383}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ({"body": b"b" * 1000}, PutStatus.PUT_OK),
        ({"body": b"b" * 1001}, PutStatus.MESSAGE_ILLEGAL),
        ({"body": b""}, PutStatus.PUT_OK),
    ],
)
def test_limits_of_one_message(tmp_path: Path, fields: dict[str, object], status: PutStatus) -> None:
    with opened(small_config(tmp_path, max_message_size=1000)) as store:
        result = store.put(message(**fields))  # type: ignore[arg-type]
        assert result.status is status
        assert (store.max_physical_offset > 0) == (status is PutStatus.PUT_OK)


def test_batch_with_one_bad_item_is_refused_whole(tmp_path: Path) -> None:
    items = [BatchItem(b"good"), BatchItem(b"bad", b"n\x01" + b"v" * 32766)]
    with opened(small_config(tmp_path)) as store:
        assert store.put_batch(StoreBatch("T", 0, items)).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put_batch(StoreBatch("T", 0, [])).status is PutStatus.MESSAGE_ILLEGAL
        huge = StoreBatch("T", 0, [BatchItem(b"x" * 200_000)] * 2)
        assert store.put_batch(huge).status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == 0


# Entries


def test_tags_code_is_javas_hash_of_the_tags(tmp_path: Path) -> None:
    tags = ["TagA", "标签", "A || B", "", "x" * 200]
    with opened(small_config(tmp_path)) as store:
        for tag in tags:
            store.put(message(properties=properties(TAGS=tag, KEYS="k")))
        store.put(message(properties=properties(TAGS="first") + b"\x02" + properties(TAGS="last")))
        codes = [entry.tags_code for entry in store.queue_entries("T", 0, 0, 10)]
    assert codes == [java_string_hash(tag) if tag else 0 for tag in [*tags, "last"]]


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1000), ("18", 7_200_000), ("30", 7_200_000), ("0", None)]
)
def test_delayed_message_carries_its_delivery_time(tmp_path: Path, level: str, delay_ms: int | None) -> None:
    with opened(small_config(tmp_path), now_ms=Clock()) as store:
        result = store.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties(DELAY=level, TAGS="t")))
        code = store.queue_entries("SCHEDULE_TOPIC_XXXX", 0, 0, 1)[0].tags_code
    assert code == (java_string_hash("t") if delay_ms is None else result.store_timestamp_ms + delay_ms)


@pytest.mark.parametrize(("sys_flag", "entered"), [(0, 1), (4, 0), (8, 1), (12, 0)])
def test_prepared_and_rolled_back_records_stand_in_no_queue(
    tmp_path: Path, sys_flag: int, entered: int
) -> None:
    with opened(small_config(tmp_path)) as store:
        store.put(message(sys_flag=sys_flag, properties=properties(KEYS="key")))
        assert store.max_offset("T", 0) == entered
        assert len(store.query("T", "key", 10, 0, 1 << 62).offsets) == (0 if sys_flag == 12 else 1)


def test_light_queues_get_an_entry_at_the_stored_offset(tmp_path: Path) -> None:
    config = small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True)
    with opened(config) as store:
        wanted = properties(INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b", TAGS="L")
        store.put(message("1", queue_id=2, properties=wanted))
        store.put(message("2", queue_id=1, properties=properties(INNER_MULTI_DISPATCH="%LMQ%b")))
        assert bodies(store, "%LMQ%a") == [b"1"]
        assert bodies(store, "%LMQ%b") == [b"1", b"2"]
        last = read_all(store, "T", 1)[0]
        assert last.endswith(b"INNER_MULTI_QUEUE_OFFSET\x011")
        assert store.queue_entries("%LMQ%a", 0, 0, 1)[0].tags_code == java_string_hash("L")
    with opened(config) as store:
        assert bodies(store, "%LMQ%b") == [b"1", b"2"]


def test_number_of_light_queues_is_limited(tmp_path: Path) -> None:
    config = small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=2)
    with opened(config) as store:
        for names, status in [
            ("%LMQ%a,%LMQ%b", PutStatus.PUT_OK),
            ("%LMQ%c", PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED),
            ("%LMQ%a", PutStatus.PUT_OK),
        ]:
            assert store.put(message(properties=properties(INNER_MULTI_DISPATCH=names))).status is status


def test_topic_that_cannot_be_a_directory_gets_no_queue_and_harms_nobody(tmp_path: Path) -> None:
    with opened(small_config(tmp_path / "store")) as store:
        for topic in ("../../escape", "..", "a/b"):
            assert store.put(message(topic=topic)).ok
        assert store.put(message("fine")).ok
        assert bodies(store) == [b"fine"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["T"]


def test_queue_that_begins_late_is_filled_with_blank_entries(tmp_path: Path) -> None:
    """A replica that starts in the middle of a queue: 250 is the 51st entry of its third file."""
    with opened(small_config(tmp_path)) as store:
        queue = store.table.find_or_make("T", 0)
        store.table.append(store.table.topics[b"T"], 0, 250, 0, 100, 0)
        assert (queue.min_offset, queue.max_offset, queue.first_start) == (250, 251, 4000)
        path = tmp_path / "consumequeue" / "T" / "0" / f"{4000:020d}"
        assert path.read_bytes()[: 50 * 20] == struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 50


def test_lost_entries_leave_a_gap_of_blanks_and_offsets_stay_true(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        first = store.put(message("0"))
        space = store.reserve(200)
        assert space is not None
        far_offset = space.physical_base + space.position
        end = write_record(
            space.buffer, space.position, far_offset, 130, 1000, b"T", 0, b"far", b"", -1, 0, 0, LOCALHOST,
            LOCALHOST, 0, 0,
        )  # fmt: skip
        store.commit(end)
        assert store.max_offset("T", 0) == 131
        assert store.queue_entries("T", 0, 130, 1)[0].physical_offset == far_offset
        result = store.get("T", 0, 0, 32)
        assert (result.count, result.next_offset) == (2, 131)
        assert first.ok


# Reading


def test_statuses_outside_of_the_queue(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        assert store.get("T", 0, 5, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
        for _ in range(3):
            store.put(message())
        table = [(-1, "OFFSET_TOO_SMALL", 0), (3, "OFFSET_OVERFLOW_ONE", 3), (4, "OFFSET_OVERFLOW_BADLY", 3)]
        for offset, status, next_offset in table:
            result = store.get("T", 0, offset, 32)
            assert (result.status.name, result.next_offset) == (status, next_offset)
            assert (result.min_offset, result.max_offset, result.slices) == (0, 3, [])


def test_adjacent_records_are_one_slice_of_the_map_and_short_runs_are_copied_together(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        for n in range(6):
            store.put(message(f"{n}"))
            if n == 2:
                store.put(message("between", topic="Other"))
        adjacent = store.get("T", 0, 0, 3)
        assert (adjacent.count, len(adjacent.slices), adjacent.slices[0].readonly) == (3, 1, False)
        result = store.get("T", 0, 0, 32)
        assert (result.count, len(result.slices), result.slices[0].readonly) == (6, 1, True)
        assert [m.stored_body for m in decode_records(result.slices[0])] == [b"%d" % n for n in range(6)]


def test_long_runs_stay_slices_of_the_map(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        for _ in range(2):
            store.put(message(b"x" * 40_000))
            store.put(message("between", topic="Other"))
        result = store.get("T", 0, 0, 32)
        assert (result.count, len(result.slices)) == (2, 2)


def test_batch_ends_at_count_and_bytes_but_never_before_the_first(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, max_transfer_bytes_on_message_in_memory=3000)) as store:
        for _ in range(50):
            store.put(message(b"x" * 908))  # a record of 1000 bytes
        assert store.get("T", 0, 0, 2).count == 2
        assert store.get("T", 0, 0, 100).count == 3
        assert store.get("T", 0, 0, 100, max_bytes=2500).count == 2
        assert store.get("T", 0, 0, 100, max_bytes=10).count == 1
    with opened(small_config(tmp_path)) as store:
        assert store.get("T", 0, 0, 100).count == 32


class TagFilter:
    needs_record = False

    def __init__(self, *tags: str) -> None:
        self.codes = {java_string_hash(tag) for tag in tags}

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code in self.codes

    def matches_record(self, record: memoryview) -> bool:
        raise AssertionError("not needed")


class FastTagFilter(TagFilter):
    @property
    def tags_codes(self) -> set[int]:
        return self.codes


class BodyFilter:
    needs_record = True

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: memoryview) -> bool:
        return body_of(record).endswith(b"7")


def test_filters_choose_and_step_over_the_rest(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        for n in range(300):
            store.put(message(f"{n}", properties=properties(TAGS="even" if n % 2 == 0 else "odd")))
        for chosen in (TagFilter("even"), FastTagFilter("even")):
            result = store.get("T", 0, 1, 32, filter=chosen)
            assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 32, 65)
            none = store.get("T", 0, 0, 32, filter=type(chosen)("other"))
            assert (none.status, none.count, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 0, 300)
        by_body = store.get("T", 0, 0, 5, filter=BodyFilter())
        found = [m.stored_body for part in by_body.slices for m in decode_records(part)]
        assert found == [b"7", b"17", b"27", b"37", b"47"]


def test_filtered_scan_looks_at_a_bounded_number_of_entries(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        for _ in range(1000):
            store.put(message(b"", properties=properties(TAGS="a")))
        result = store.get("T", 0, 0, 32, filter=TagFilter("b"))
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)


def test_messages_that_left_the_log_are_stepped_over(tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=4096)
    with opened(config) as store:
        for n in range(8):
            store.put(message(b"%d" % n * 1500))
        assert len(store.commit_log.files) == 4
        removed = store.commit_log.remove_first()
        assert removed is not None
        result = store.get("T", 0, 0, 32)
        assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 6, 8)
        assert store.get("T", 0, 0, 32, filter=BodyFilter()).count == 1
        while store.commit_log.remove_first():
            pass
        gone = store.get("T", 0, 0, 5)
        assert gone.status is GetStatus.FOUND  # the last file stays
        store.table.find_or_make("T", 0).correct_min_offset(store.min_physical_offset)
        assert store.min_offset("T", 0) == 6


def test_slice_of_a_deleted_file_stays_readable(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        store.put(message(b"keep" * 700))
        held = store.get("T", 0, 0, 1).slices[0]
        store.put(message(b"x" * 2500))
        file = store.commit_log.remove_first()
        assert file is not None
        file.delete()
        assert body_of(held) == b"keep" * 700
        assert store.read_record(0) is None


def test_store_times_and_offsets_by_time(tmp_path: Path) -> None:
    clock = Clock(step_ms=0)
    with opened(small_config(tmp_path), now_ms=clock) as store:
        times = [10, 20, 20, 20, 35, 60]
        for time_ms in times:
            clock.now_ms = BASE_TIME_MS + time_ms
            store.put(message())
        expected = {0: 0, 10: 0, 14: 0, 15: 0, 16: 1, 20: 1, 27: 3, 28: 4, 35: 4, 47: 4, 48: 5, 60: 5, 99: 5}
        found = {at: store.offset_by_time("T", 0, BASE_TIME_MS + at) for at in expected}
        assert found == expected
        assert store.offset_by_time("Unknown", 0, BASE_TIME_MS) == 0
        assert store.store_time("T", 0, 4) == BASE_TIME_MS + 35
        assert store.store_time("T", 0, 6) == -1
        assert store.earliest_time("T", 0) == BASE_TIME_MS + 10
        assert store.earliest_time("Unknown", 0) == -1


def test_watch_is_called_within_the_commit_and_once(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        calls: list[tuple[str, int, int]] = []
        watch = store.watch(
            "T", 1, lambda topic, queue_id: calls.append((topic, queue_id, store.max_offset(topic, queue_id)))
        )
        store.put(message(queue_id=0))
        store.put_batch(StoreBatch("T", 1, [BatchItem(b"a"), BatchItem(b"b")]))
        assert calls == [("T", 1, 2)]
        watch.cancel()
        watch.cancel()
        store.put(message(queue_id=1))
        assert len(calls) == 1


def test_reading_an_unknown_queue_creates_nothing(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        store.get("Nothing", 3, 0, 32)
        assert (store.min_offset("Nothing", 3), store.max_offset("Nothing", 3)) == (0, 0)
        assert store.queue_ids("Nothing") == []
        assert store.topics_on_disk() == []


# Hot path


def test_reserved_space_is_written_by_the_caller_and_dispatched_by_commit(tmp_path: Path) -> None:
    from cometmq.store.append_cy import write_record

    host = encode_host("127.0.0.1", 1)
    with opened(small_config(tmp_path)) as store:
        offsets = store.queue_offsets(b"T", 4)
        epoch = store.offsets_epoch
        space = store.reserve(1000)
        assert space is not None
        position = space.position
        for n in range(3):
            queue_id = n % 2
            position = write_record(
                space.buffer, position, space.physical_base + position, offsets[queue_id], 1, b"T", queue_id,
                b"%d" % n, b"", 0, 0, 0, host, host, 0, 0,
            )  # fmt: skip
            offsets[queue_id] += 1
        assert store.commit(position) == store.max_physical_offset == space.physical_base + position
        assert list(offsets[:2]) == [2, 1]
        assert (bodies(store), bodies(store, queue_id=1)) == ([b"0", b"2"], [b"1"])
        # The other way of writing keeps the same table up to date.
        store.put(message(queue_id=1))
        assert offsets[1] == 2
        assert store.offsets_epoch == epoch
        assert len(store.queue_offsets(b"T", 100)) >= 100
        assert store.offsets_epoch != epoch


def test_reserve_refuses_what_no_file_can_hold(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        assert store.reserve(4096 - 7) is None
        assert store.reserve(4096 - 8) is not None


def test_closed_store_refuses(tmp_path: Path) -> None:
    store = MessageStore(small_config(tmp_path))
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.open()
    assert store.put(message()).ok
    store.close()
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.reserve(100) is None


def test_deleted_topic_begins_anew(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        for queue_id in range(3):
            store.put(message(queue_id=queue_id))
        assert store.topics_on_disk() == ["T"]
        assert store.delete_topic("T") == 3
        assert not (tmp_path / "consumequeue" / "T").exists()
        assert store.topics_on_disk() == []
        assert store.put(message("new")).queue_offset == 0
        assert bodies(store) == [b"new"]


def test_expired_queues_are_removed_on_demand(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, mapped_file_size_commit_log=4096)) as store:
        store.put(message(topic="Old"))
        for _ in range(3):
            store.put(message(b"x" * 3000, topic="New"))
        while len(store.commit_log.files) > 1:
            store.commit_log.remove_first()
        assert store.clean_expired() == 1
        assert store.topics_on_disk() == ["New"]


def test_runtime_info_gives_text_only(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        store.put(message())
        info = store.runtime_info()
        assert info["commitLogMaxOffset"] == str(store.max_physical_offset)
        assert all(isinstance(value, str) for value in info.values())
