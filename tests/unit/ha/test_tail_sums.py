"""Checksums of what was appended last: any flipped bit is found after a kill, and nothing after a loss of power."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cometmq.broker.ha import tail_sums
from cometmq.broker.ha.tail_sums import RUN_ID_SIZE, SLOT_COUNT, TailSums
from cometmq.store.model import StoreMessage
from cometmq.store.store import MessageStore

SLOT_LOG_SIZE = 10_000


@pytest.fixture
def sums(store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TailSums:
    monkeypatch.setattr(tail_sums, "SLOT_LOG_SIZE", SLOT_LOG_SIZE)
    sums = TailSums(tmp_path / "tail-sums", "run 1")
    sums.begin(store.max_physical_offset)
    store.on_append = lambda: sums.grew(store.read_log, store.max_physical_offset)
    return sums


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        assert store.put(StoreMessage("T", number % 3, b"x" * (number % 700), b"KEYS\x01k%d" % number)).ok


def after_a_kill(tmp_path: Path, store: MessageStore, run_id: str = "run 1") -> int | None:
    return TailSums(tmp_path / "tail-sums", run_id).first_wrong(store.read_log)


def flip(store: MessageStore, at: int, bit: int) -> None:
    byte = store.read_log(at, 1)
    assert byte is not None
    byte[0] ^= 1 << bit


def test_any_flipped_bit_is_found_up_to_the_last_one(
    store: MessageStore, sums: TailSums, tmp_path: Path
) -> None:
    fill(store, 400)
    assert len(store.commit_log.files) > 1
    assert after_a_kill(tmp_path, store) is None
    end, generator = store.max_physical_offset, random.Random(3)
    for at in [0, end - 1, end - 2, *(generator.randrange(end) for _ in range(60))]:
        bit = generator.randrange(8)
        flip(store, at, bit)
        wrong = after_a_kill(tmp_path, store)
        assert wrong is not None
        assert wrong <= at < wrong + 2 * SLOT_LOG_SIZE
        flip(store, at, bit)


def test_after_a_loss_of_power_the_page_says_nothing(
    store: MessageStore, sums: TailSums, tmp_path: Path
) -> None:
    fill(store, 20)
    flip(store, store.max_physical_offset - 1, 0)
    assert after_a_kill(tmp_path, store) == 0
    assert after_a_kill(tmp_path, store, "run 2") is None


def test_slots_are_used_again_and_older_bytes_are_left_to_others(
    store: MessageStore, sums: TailSums, tmp_path: Path
) -> None:
    while store.max_physical_offset < (SLOT_COUNT + 5) * SLOT_LOG_SIZE:
        fill(store, 200)
    flip(store, 0, 0)
    assert after_a_kill(tmp_path, store) is None
    flip(store, store.max_physical_offset - 1, 0)
    assert after_a_kill(tmp_path, store) is not None


def test_a_log_that_was_cut_or_begun_anew_is_not_wrong(
    store: MessageStore, sums: TailSums, tmp_path: Path
) -> None:
    fill(store, 30)
    middle = store.max_physical_offset
    fill(store, 10)
    store.truncate(middle)
    assert after_a_kill(tmp_path, store) is None  # killed before the sums knew of the cut
    sums.begin(middle)
    fill(store, 15)
    assert after_a_kill(tmp_path, store) is None
    flip(store, middle + 50, 1)
    assert after_a_kill(tmp_path, store) == middle


def test_a_torn_slot_is_left_out(store: MessageStore, sums: TailSums, tmp_path: Path) -> None:
    fill(store, 5)
    path = tmp_path / "tail-sums"
    page = bytearray(path.read_bytes())
    page[RUN_ID_SIZE + 3] ^= 1
    path.write_bytes(page)
    assert after_a_kill(tmp_path, store) is None


def test_without_room_for_the_page_nothing_is_checked(tmp_path: Path, store: MessageStore) -> None:
    sums = TailSums(tmp_path / "missing" / "tail-sums", "run 1")
    sums.begin(0)
    fill(store, 3)
    sums.grew(store.read_log, store.max_physical_offset)
    assert sums.first_wrong(store.read_log) is None
