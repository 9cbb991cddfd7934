"""Finding frames in received bytes."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from twins import twins

from cometmq.errors import RemoteProtocolError

frame_cy = twins("cometmq.protocol.frame_cy")


def frame(size: int) -> bytes:
    return struct.pack(">I", size - 4) + bytes(size - 4)


def test_whole_frames_are_found_and_the_rest_is_left(frame_cy: ModuleType) -> None:
    data = b"xx" + frame(8) + frame(100) + frame(50)[:20]
    assert frame_cy.split_frames(data, 2, len(data)) == ([10, 110], 110)
    assert frame_cy.split_frames(data, 2, 12) == ([10], 10)
    assert frame_cy.split_frames(memoryview(data), 2, 9) == ([], 2)
    assert frame_cy.split_frames(bytearray(data), 110, 113) == ([], 110)


def test_an_impossible_length_raises_only_after_the_frames_before_it_were_given(frame_cy: ModuleType) -> None:
    data = frame(8) + b"\x16\x03\x01\x02" + bytes(20)
    assert frame_cy.split_frames(data, 0, len(data)) == ([8], 8)
    with pytest.raises(RemoteProtocolError, match="announces 369295618 bytes"):
        frame_cy.split_frames(data, 8, len(data))


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, 97, 2**31 - 1])
def test_lengths_out_of_limits_are_refused(frame_cy: ModuleType, length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="between 4 and 96"):
        frame_cy.split_frames(struct.pack(">i", length) + bytes(200), 0, 204, 100)


def test_the_largest_allowed_frame_passes(frame_cy: ModuleType) -> None:
    assert frame_cy.split_frames(frame(100), 0, 100, 100) == ([100], 100)


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (5, 4), (0, 9)])
def test_positions_outside_of_the_buffer_are_a_mistake_of_the_caller(
    frame_cy: ModuleType, start: int, end: int
) -> None:
    with pytest.raises(ValueError, match="outside"):
        frame_cy.split_frames(bytes(8), start, end)
    with pytest.raises(ValueError, match="outside"):
        frame_cy.decode_ext_fields(bytes(8), start, end)
