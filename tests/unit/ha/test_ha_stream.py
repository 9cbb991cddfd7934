"""The bytes between master and slave, cut anywhere."""

from __future__ import annotations

import random
import struct

import pytest

from cometmq.broker.ha.stream import FRAME_BODY_SIZE_MAX, FRAME_HEAD, FrameReader, ReportReader
from cometmq.errors import RemoteProtocolError


def cut(data: bytes, seed: int) -> list[bytes]:
    """The same bytes in random pieces."""
    chance = random.Random(seed)
    pieces = []
    while data:
        size = chance.randint(1, 9)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("seed", range(20))
def test_reports_come_out_in_order_however_they_are_cut(seed: int) -> None:
    reports = [0, 1, 2**62, -1, 77]
    reader = ReportReader()
    found = [report for piece in cut(struct.pack(">5q", *reports), seed) for report in reader.feed(piece)]
    assert found == reports


@pytest.mark.parametrize("seed", range(20))
def test_bodies_come_out_at_their_offsets_however_they_are_cut(seed: int) -> None:
    frames = [(100, b"hello"), (105, b""), (105, b"x" * 40), (145, b""), (145, b"end")]
    stream = b"".join(FRAME_HEAD.pack(offset, len(body)) + body for offset, body in frames)
    log, heartbeats = bytearray(100), []
    reader = FrameReader()
    for part in cut(stream, seed):
        for piece in reader.feed(memoryview(part)):
            if piece.data:
                assert piece.physical_offset == len(log)
                log += piece.data
            else:
                heartbeats.append(piece.physical_offset)
    assert bytes(log[100:]) == b"hello" + b"x" * 40 + b"end"
    assert heartbeats == [105, 145]


@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 5), (0, -1), (0, FRAME_BODY_SIZE_MAX + 1), (-(2**63), -(2**31))]
)
def test_a_head_that_cannot_be_one_is_an_error(offset: int, size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="haMasterAddress"):
        list(FrameReader().feed(memoryview(FRAME_HEAD.pack(offset, size))))
