"""Bits that flip in ConsumeQueue and index files: nobody gets a message that is not the one, and none gets lost."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import bodies, body_of, message, opened, properties, read_all, small_config

from cometmq.protocol.hashing import java_string_hash
from cometmq.store.config import StoreConfig
from cometmq.store.model import GetStatus
from cometmq.store.store import MessageStore

COUNT = 250  # three files of 100 entries
QUEUE_FILES = ("00000000000000000000", "00000000000000002000", "00000000000000004000")


def fill(store: MessageStore) -> list[bytes]:
    """Two topics and two queues in turn; what queue T 0 should give."""
    wanted = []
    for number in range(COUNT):
        body = f"{number:04d}".encode() * (1 + number % 7)
        assert store.put(message(body, properties=properties(TAGS="AB"[number % 2], KEYS=f"k{number}"))).ok
        wanted.append(body)
        assert store.put(message(f"u{number}", topic="U")).ok
        assert store.put(message(f"q{number}", queue_id=1)).ok
    return wanted


def queue_path(root: Path, queue_offset: int) -> tuple[Path, int]:
    return root / "consumequeue" / "T" / "0" / QUEUE_FILES[queue_offset // 100], queue_offset % 100 * 20


def flip(root: Path, queue_offset: int, bit: int) -> None:
    """A bit of an entry, counted from its first byte."""
    path, at = queue_path(root, queue_offset)
    with path.open("r+b") as file:
        file.seek(at + bit // 8)
        byte = file.read(1)[0]
        file.seek(at + bit // 8)
        file.write(bytes((byte ^ (0x80 >> bit % 8),)))


def bodies_of(store: MessageStore, offset: int, count: int = 32) -> list[bytes]:
    result = store.get("T", 0, offset, count)
    return [body_of(record) for part in result.slices for record in _records(part)]


def _records(part: memoryview) -> list[memoryview]:
    found, at = [], 0
    while at < len(part):
        size = struct.unpack_from(">i", part, at)[0]
        found.append(part[at : at + size])
        at += size
    return found


@pytest.mark.parametrize("queue_offset", [0, 99, 180, 249])
def test_any_flipped_bit_of_place_or_size_is_mended_by_a_pull(tmp_path: Path, queue_offset: int) -> None:
    with opened(small_config(tmp_path)) as store:
        wanted = fill(store)
        before = queue_path(tmp_path, queue_offset)[0].read_bytes()
        for bit in range(queue_offset % 3, 96, 3):
            flip(tmp_path, queue_offset, bit)
            assert bodies(store) == wanted, bit
            assert queue_path(tmp_path, queue_offset)[0].read_bytes() == before


def test_an_entry_that_leads_to_another_topic_with_the_same_numbers_is_noticed(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        for number in range(5):
            assert store.put(message(f"t{number}")).ok
            assert store.put(message(f"u{number}", topic="U")).ok
        other = store.queue_entries("U", 0, 3, 1)[0]
        path, at = queue_path(tmp_path, 3)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(struct.pack(">qi", other.physical_offset, other.size))
        assert bodies(store) == [f"t{number}".encode() for number in range(5)]


def test_a_page_of_garbage_in_a_queue_is_made_anew(tmp_path: Path) -> None:
    with opened(small_config(tmp_path)) as store:
        wanted = fill(store)
        path, _ = queue_path(tmp_path, 100)
        before = path.read_bytes()
        path_bytes = bytearray(before)
        path_bytes[400:1600] = random.Random(7).randbytes(1200)
        with path.open("r+b") as file:
            file.write(path_bytes)
        assert bodies(store) == wanted
        # Tags codes too: the whole range between two true neighbours is compared.
        assert path.read_bytes() == before


def test_filtered_pulls_check_what_they_hand_out(tmp_path: Path) -> None:
    class TagA:
        needs_record = False
        tags_codes = frozenset((java_string_hash("A"),))

        def matches_tags_code(self, tags_code: int) -> bool:
            return tags_code in self.tags_codes

        def matches_record(self, record: memoryview) -> bool:
            return True

    class Anything(TagA):
        """Takes the way of filters that look at every entry."""

        tags_codes = None  # type: ignore[assignment]

        def matches_tags_code(self, tags_code: int) -> bool:
            return True

    with opened(small_config(tmp_path)) as store:
        wanted = fill(store)
        for bit in range(0, 96, 5):
            flip(tmp_path, 20, bit)
            for message_filter, step in ((TagA(), 2), (Anything(), 1)):
                result = store.get("T", 0, 10, 32, filter=message_filter)
                got = [body_of(record) for part in result.slices for record in _records(part)]
                assert got == wanted[10::step][: len(got)]
                assert len(got) >= 10 // step  # a size that is wrong may end a batch early


def test_a_record_that_is_nowhere_stops_the_consumer_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(small_config(tmp_path)) as store:
        fill(store)
        entry = store.queue_entries("T", 0, 50, 1)[0]
        view = store.commit_log.file_at(entry.physical_offset)
        assert view is not None
        saved = bytes(view.buffer()[entry.physical_offset - view.start :][:8])
        view.buffer()[entry.physical_offset - view.start :][:8] = bytes(8)
        result = store.get("T", 0, 45, 32)
        assert (result.count, result.next_offset) == (5, 50)
        for _ in range(3):
            result = store.get("T", 0, 50, 32)
            assert (result.status, result.count, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 0, 50)
        assert sum("QUEUE_ENTRY_LOST" in record.message for record in caplog.records) == 1
        view.buffer()[entry.physical_offset - view.start :][:8] = saved
        assert store.get("T", 0, 50, 32).count == 32


def crash(config: StoreConfig, work: Callable[[MessageStore], list[bytes]]) -> list[bytes]:
    store = MessageStore(config)
    store.open()
    try:
        return work(store)
    finally:
        store.kill_for_test()


@pytest.mark.parametrize("queue_offset", [0, 120, 249])
def test_recovery_mends_flipped_bits_tags_included(tmp_path: Path, queue_offset: int) -> None:
    config = small_config(tmp_path)
    wanted = crash(config, fill)
    before = queue_path(tmp_path, queue_offset)[0].read_bytes()
    for bit in (0, 40, 63, 64, 95, 159):
        flip(tmp_path, queue_offset, bit)
        assert crash(config, bodies) == wanted, bit
        assert queue_path(tmp_path, queue_offset)[0].read_bytes() == before, bit


@pytest.mark.parametrize("queue_offset", [0, 99, 120, 249])
def test_flips_before_a_start_after_an_orderly_stop_are_mended_by_pulls(
    tmp_path: Path, queue_offset: int
) -> None:
    config = small_config(tmp_path)
    with opened(config) as store:
        wanted = fill(store)
    for bit in (0, 1, 63, 64, 95):
        flip(tmp_path, queue_offset, bit)
        with opened(config) as store:
            assert bodies(store) == wanted, bit


def test_additional_queues_are_read_although_their_records_belong_to_others(tmp_path: Path) -> None:
    config = small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True)
    with opened(config) as store:
        for number in range(5):
            store.put(message(f"{number}"))
            extra = properties(INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
            store.put(message(f"m{number}", queue_id=number % 2, properties=extra))
        assert bodies(store, "%LMQ%a") == [f"m{number}".encode() for number in range(5)]
    with opened(small_config(tmp_path)) as store:  # whoever has switched it off can still read them
        assert bodies(store, "%LMQ%b") == [f"m{number}".encode() for number in range(5)]
        assert len(read_all(store, "T", 0)) == 8


def test_queries_survive_any_damage_to_the_index(tmp_path: Path) -> None:
    """Nothing but messages with the key is found, and no query fails or runs for ever."""
    generator = random.Random(11)
    with opened(small_config(tmp_path)) as store:
        fill(store)
        paths = sorted((tmp_path / "index").iterdir())
        found = 0
        for _ in range(300):
            path = generator.choice(paths)
            position = generator.randrange(min(path.stat().st_size, 40 + 400 + 20 * 300))
            with path.open("r+b") as file:
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes((byte ^ (1 << generator.randrange(8)),)))
            number = generator.randrange(COUNT)
            result = store.query("T", f"k{number}", 32, 0, 1 << 62)
            for record in result.records:
                assert f"KEYS\x01k{number}\x02".encode() in bytes(record) + b"\x02"
            found += len(result.records)
        assert found  # it is damaged, not dead
