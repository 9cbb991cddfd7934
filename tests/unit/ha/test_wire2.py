"""Frames between replicas: in pieces, large, damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.broker.ha.epochs import Epochs
from cometmq.broker.ha.wire2 import (
    BUFFER_SIZE,
    HEAD_SIZE,
    PREAMBLE,
    FrameBuffer,
    FrameType,
    decode_flushed,
    decode_greeting,
    encode_flushed,
    encode_greeting,
    encode_head,
)
from cometmq.errors import RemoteProtocolError

Seen = tuple[int, int, int, int, bytes]


def frame(kind: FrameType, epoch: int = 1, offset: int = 2, confirm: int = 3, body: bytes = b"") -> bytes:
    return encode_head(kind, epoch, offset, confirm, body) + body


def receive(buffer: FrameBuffer, data: bytes) -> list[Seen]:
    seen: list[Seen] = []
    while data:
        room = buffer.room()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        seen += [(f.type, f.epoch, f.offset, f.confirm, bytes(f.body)) for f in buffer.received(size)]
    return seen


def test_the_layout_is_forty_bytes_and_the_preamble_is_no_report() -> None:
    assert HEAD_SIZE == 40
    assert int.from_bytes(PREAMBLE, "big", signed=True) < 0
    head = frame(FrameType.ACK, 5, 6, 7, encode_flushed(9))
    assert head[:8].hex() == "4832" + "04" + "00" + "00000008"
    assert head[8:32] == (5).to_bytes(8, "big") + (6).to_bytes(8, "big") + (7).to_bytes(8, "big")
    assert decode_flushed(memoryview(head[40:])) == 9


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8), st.data())
def test_frames_come_whole_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(FrameType.DATA, 1, number, 0, body) for number, body in enumerate(bodies))
    buffer, seen = FrameBuffer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += receive(buffer, stream[:size])
        stream = stream[size:]
    assert [(offset, body) for _, _, offset, _, body in seen] == list(enumerate(bodies))


def test_a_frame_larger_than_the_buffer_comes_whole() -> None:
    body = bytes(range(256)) * (3 * BUFFER_SIZE // 256)
    seen = receive(
        FrameBuffer(), frame(FrameType.PING) + frame(FrameType.DATA, body=body) + frame(FrameType.PING)
    )
    assert [len(one[4]) for one in seen] == [0, len(body), 0]
    assert seen[1][4] == body


@pytest.mark.parametrize("position", [0, 2, 7, 15, 30, 39, 45])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    data = bytearray(frame(FrameType.DATA, body=b"hello world"))
    data[position] ^= 4
    with pytest.raises(RemoteProtocolError):
        receive(FrameBuffer(), bytes(data) + frame(FrameType.PING) * 100)


def test_greetings_carry_epochs() -> None:
    epochs = Epochs().with_epoch(1, 0).with_epoch(7, 4096)
    fields, found = decode_greeting(memoryview(encode_greeting({"group": "G"}, epochs)))
    assert (fields["group"], found) == ("G", epochs)
    with pytest.raises(RemoteProtocolError):
        decode_greeting(memoryview(b'{"epochs": [[2, 5], [1, 9]]}'))
