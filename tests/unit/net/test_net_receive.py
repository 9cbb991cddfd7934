"""Receive buffers, without a socket."""

from __future__ import annotations

import random

from cometmq.net.receive import (
    LARGE_FRAME_SIZE,
    OWN_SIZE_MIN,
    SHARED_SIZE,
    FrameReceiver,
    SharedBuffer,
)
from cometmq.protocol.frame_cy import split_frames

FRAME_MAX = 16 * 1024 * 1024


def frame_of(size: int, seed: int = 0) -> bytes:
    return (size - 4).to_bytes(4, "big") + random.Random(seed).randbytes(size - 4)


def feed(receiver: FrameReceiver, data: bytes) -> list[bytes]:
    """Give bytes the way a transport does, cut frames, keep the rest: what a connection does."""
    frames = []
    while data:
        buffer = receiver.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        ready = receiver.received(count)
        if ready is None:
            continue
        view, end = ready
        start = 0
        for frame_end in split_frames(view, 0, end, FRAME_MAX)[0]:
            frames.append(bytes(view[start:frame_end]))
            start = frame_end
        if start < end:
            receiver.keep(view, start, end)
    return frames


def test_frames_come_out_whole_however_the_bytes_are_cut() -> None:
    rng = random.Random(7)
    sizes = [8, 9, 100, LARGE_FRAME_SIZE, LARGE_FRAME_SIZE + 1, SHARED_SIZE, 3 * SHARED_SIZE + 17, 12, 70_000]
    frames = [frame_of(size, seed) for seed, size in enumerate(sizes * 3)]
    stream = b"".join(frames)
    for largest_piece in (3000, 70_000, len(stream)):
        shared = SharedBuffer()
        receiver = FrameReceiver(shared)
        out: list[bytes] = []
        position = 0
        while position < len(stream):
            piece = rng.randint(1, largest_piece)
            out += feed(receiver, stream[position : position + piece])
            position += piece
        assert out == frames
        assert shared.held_bytes == 0
        assert receiver.partial_bytes == 0


def test_two_connections_share_the_buffer_without_mixing_bytes() -> None:
    shared = SharedBuffer()
    one, two = FrameReceiver(shared), FrameReceiver(shared)
    first, second = frame_of(500, 1), frame_of(500, 2)
    assert feed(one, first[:300]) == []
    assert feed(two, second[:100]) == []
    assert shared.held_bytes == 400
    assert feed(one, first[300:]) == [first]
    assert feed(two, second[100:]) == [second]


def test_an_idle_connection_holds_no_buffer() -> None:
    shared = SharedBuffer()
    receiver = FrameReceiver(shared)
    feed(receiver, frame_of(1000))
    assert receiver.buffer() is shared.view
    assert shared.held_bytes == 0


def test_memory_grows_with_the_bytes_that_came_not_with_the_announced_length() -> None:
    shared = SharedBuffer()
    receiver = FrameReceiver(shared)
    feed(receiver, (FRAME_MAX - 4).to_bytes(4, "big") + b"ten bytes.")
    assert shared.held_bytes == OWN_SIZE_MIN
    feed(receiver, bytes(300_000))
    assert shared.held_bytes <= 2 * 300_000 + OWN_SIZE_MIN
    receiver.clear()
    assert shared.held_bytes == 0
