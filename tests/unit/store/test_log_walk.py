"""Walks through commit log files in steps of any size, over holes, with bodies of every length."""

from __future__ import annotations

import random
from pathlib import Path

from twins import load_twin

from cometmq.protocol.host import encode_host
from cometmq.store.append_cy import write_record
from cometmq.store.log_walk import walk_segment
from cometmq.store.read_only import Segment

HOST = encode_host("127.0.0.1", 80)
MIB = 1 << 20


def write_bodies(bodies: list[bytes], start: int = 0) -> bytes:
    """Records one behind the other; the first stands at ``start``."""
    data = bytearray(sum(len(body) + 200 for body in bodies))
    position = 0
    for number, body in enumerate(bodies):
        position = write_record(
            memoryview(data), position, start + position, number, 1000 + number, b"T", 0, body, b"", -1,
            0, 5, HOST, HOST, 0, 0,
        )  # fmt: skip
    return bytes(data[:position])


def write_file(path: Path, data: bytes, size: int) -> Segment:
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)
    return Segment(path, 0, size)


def test_sums_of_bodies_of_every_length_are_right() -> None:
    generator = random.Random(1)
    lengths = [*range(300), 1023, 1024, 1025, 4095, 70_000]
    data = bytearray(write_bodies([generator.randbytes(length) for length in lengths]))
    for kind in ("py", "c"):
        scan = load_twin("cometmq.store.scan_cy", kind).scan_records(data, 0, len(data), 0, True)
        assert (scan.count, scan.reason) == (len(lengths), "")
    for bit in (0, 7):
        data[-50_000] ^= 1 << bit
        scan = load_twin("cometmq.store.scan_cy", "c").scan_records(data, 0, len(data), 0, True)
        assert (scan.count, scan.reason) == (len(lengths) - 1, "the CRC of the body is wrong")
        data[-50_000] ^= 1 << bit


def test_steps_end_at_records_and_grow_for_a_long_one(tmp_path: Path) -> None:
    data = write_bodies([b"a" * 500, b"b" * 9000, b"c" * 500, b"d" * 500, b"e" * 500])
    segment = write_file(tmp_path / "0", data, MIB)
    pieces = list(walk_segment(segment, check_crc=True, chunk_size=1300))
    assert [piece.record_count for piece in pieces][:1] == [1]
    assert sum(piece.record_count for piece in pieces) == 5
    assert not any(piece.reason for piece in pieces)
    assert pieces[-1].end == len(data)


def test_record_behind_a_hole_is_found_and_holes_to_the_end_are_not_read(tmp_path: Path) -> None:
    first, behind = write_bodies([b"first"]), 8 * MIB
    segment = write_file(tmp_path / "0", first, 64 * MIB)
    assert [piece.record_count for piece in walk_segment(segment, check_crc=True)] == [1]
    with segment.path.open("r+b") as file:
        file.seek(behind)
        file.write(write_bodies([b"second"], behind))
    pieces = list(walk_segment(segment, check_crc=True))
    assert [(piece.start, piece.record_count) for piece in pieces] == [(0, 1), (len(first), 0), (behind, 1)]
    assert "zero" in pieces[1].reason
