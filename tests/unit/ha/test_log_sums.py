"""Checksums of a replica's log: any flipped bit is found, whatever field it is in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cometmq.broker.ha import log_sums
from cometmq.broker.ha.log_sums import RECORD_SIZE, LogSums, sum_up
from cometmq.store.model import StoreMessage
from cometmq.store.store import MessageStore


def fill(store: MessageStore, count: int = 700) -> None:
    for number in range(count):
        assert store.put(StoreMessage("T", number % 3, b"x" * (number % 1500), b"KEYS\x01k%d" % number)).ok


def summed(store: MessageStore, path: Path) -> LogSums:
    sums = LogSums(path)
    while parts := sums.unsummed(store.read_log, 0, store.max_physical_offset):
        sums.add(sums.version, sum_up(parts))
    return sums


def test_any_flipped_bit_of_the_log_is_found(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sums, "PIECE_SIZE_MAX", 10_000)
    fill(store)
    assert len(store.commit_log.files) > 1
    sums = summed(store, tmp_path / "sums")
    assert sums.end == store.max_physical_offset
    generator = random.Random(5)
    for _ in range(40):
        at = generator.randrange(store.max_physical_offset)
        byte = store.read_log(at, 1)
        assert byte is not None
        right = byte[0]
        byte[0] ^= 1 << generator.randrange(8)
        wrong = LogSums(tmp_path / "sums").first_wrong(store.read_log)
        assert wrong is not None
        assert wrong <= at < wrong + 20_000
        byte[0] = right
    assert LogSums(tmp_path / "sums").first_wrong(store.read_log) is None


def test_sums_go_on_after_a_start_and_end_with_a_cut(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 50)
    first = summed(store, tmp_path / "sums").end
    fill(store, 50)
    sums = summed(store, tmp_path / "sums")
    assert sums.pieces[0].start == 0
    assert sums.end == store.max_physical_offset > first
    late = sum_up(sums.unsummed(store.read_log, 0, store.max_physical_offset))
    version = sums.version
    sums.cut(first)
    sums.add(version, late)  # of a log that is no more
    assert sums.end <= first
    assert LogSums(tmp_path / "sums").pieces == sums.pieces


def test_a_file_of_sums_that_is_cut_short_or_damaged_is_read_as_far_as_it_goes(
    store: MessageStore, tmp_path: Path
) -> None:
    path = tmp_path / "sums"
    for _ in range(3):
        fill(store, 20)
        summed(store, path)
    data = path.read_bytes()
    assert len(data) == 3 * RECORD_SIZE
    path.write_bytes(data[:-5])
    assert len(LogSums(path).pieces) == 2
    path.write_bytes(data[:RECORD_SIZE] + b"\xff" + data[RECORD_SIZE + 1 :])
    assert len(LogSums(path).pieces) == 1
    assert LogSums(path).first_wrong(store.read_log) is None
