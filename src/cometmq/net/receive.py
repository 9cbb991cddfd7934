"""Receive buffers without a socket: where the next bytes go, and which bytes can be parsed now.

Theory of operation
-------------------
A transport asks for a buffer, reads into it and reports the count, all in one turn of the loop. So every
connection of an endpoint can read into the *same* big buffer (`SharedBuffer`), and only bytes of an
incomplete frame are copied aside, into a small ``bytes`` of that connection. An idle connection holds none.

A frame larger than ``LARGE_FRAME_SIZE`` is received straight into a buffer of its own, so that its bytes are
not copied with every read event. That buffer grows with the bytes that really came (doubling), never with
what the length word promises: a peer that announces 16 MiB and sends ten bytes costs 64 KiB.
"""

from __future__ import annotations

SHARED_SIZE = 256 * 1024
LARGE_FRAME_SIZE = 32 * 1024
OWN_SIZE_MIN = 64 * 1024
LENGTH_SIZE = 4
FRAME_SIZE_MIN = 8  # length word and header word


def bad_length(view: memoryview, start: int, end: int, frame_size_max: int) -> bool:
    """True when the frame that begins at ``start`` cannot be one."""
    if end - start < LENGTH_SIZE:
        return False
    size = LENGTH_SIZE + int.from_bytes(view[start : start + LENGTH_SIZE], "big")
    return not FRAME_SIZE_MIN <= size <= frame_size_max


def incomplete(view: memoryview, start: int, end: int) -> bool:
    """True when ``view[start:end]`` is the begin of one frame whose rest has not come yet."""
    return (
        end - start < LENGTH_SIZE
        or LENGTH_SIZE + int.from_bytes(view[start : start + LENGTH_SIZE], "big") > end - start
    )


class SharedBuffer:
    """One per endpoint: the buffer everybody reads into, and the sum of what is held in incomplete frames."""

    __slots__ = ("held_bytes", "view")

    def __init__(self, size: int = SHARED_SIZE) -> None:
        self.view = memoryview(bytearray(size))
        self.held_bytes = 0


class FrameReceiver:
    """The receive side of one connection."""

    __slots__ = ("_filled", "_frame_size", "_own", "_shared", "_tail", "fresh", "shared_view")

    def __init__(self, shared: SharedBuffer) -> None:
        self._shared = shared
        self.shared_view = shared.view
        self.fresh = True  # the next byte begins a frame
        self._tail = b""  # begin of a small frame
        self._own: bytearray | None = None  # begin of a large frame
        self._filled = 0
        self._frame_size = 0

    @property
    def partial_bytes(self) -> int:
        """Bytes of an incomplete frame received so far."""
        return self._filled if self._own is not None else len(self._tail)

    def buffer(self) -> memoryview:
        """Where the transport shall put the next bytes. Never empty."""
        if self._own is not None:
            return memoryview(self._own)[self._filled :]
        tail = self._tail
        if not tail:
            return self._shared.view
        view = self._shared.view
        view[: len(tail)] = tail
        return view[len(tail) :]

    def received(self, count: int) -> tuple[memoryview, int] | None:
        """``(view, end)`` of the bytes to parse from 0, or None while a large frame is incomplete."""
        if self._own is not None:
            return self._received_own(count)
        end = len(self._tail) + count
        if self._tail:
            self._shared.held_bytes -= len(self._tail)
            self._tail = b""
            self.fresh = True
        return self._shared.view, end

    def _received_own(self, count: int) -> tuple[memoryview, int] | None:
        own = self._own
        assert own is not None
        self._filled += count
        if self._filled == self._frame_size:
            self.clear()
            return memoryview(own), len(own)
        if self._filled == len(own):
            self._grow(own)
        return None

    def _grow(self, own: bytearray) -> None:
        # A new object, not a resize: the transport may still hold a view of the old one.
        size = min(self._frame_size, 2 * len(own))
        grown = bytearray(size)
        grown[: self._filled] = own
        self._shared.held_bytes += size - len(own)
        self._own = grown

    def keep(self, view: memoryview, start: int, end: int) -> None:
        """Put aside ``view[start:end]``, the begin of a frame whose rest has not come yet."""
        size = end - start
        frame_size = 0
        self.fresh = False
        if size >= LENGTH_SIZE:
            frame_size = LENGTH_SIZE + int.from_bytes(view[start : start + LENGTH_SIZE], "big")
        if frame_size <= LARGE_FRAME_SIZE:
            self._tail = bytes(view[start:end])
            self._shared.held_bytes += size
            return
        assert size < frame_size, "a complete frame is not a tail"
        own = bytearray(min(frame_size, max(2 * size, OWN_SIZE_MIN)))
        own[:size] = view[start:end]
        self._own, self._filled, self._frame_size = own, size, frame_size
        self._shared.held_bytes += len(own)

    def clear(self) -> None:
        """Forget the incomplete frame."""
        self._shared.held_bytes -= len(self._own) if self._own is not None else len(self._tail)
        self._own, self._tail = None, b""
        self.fresh = True
        self._filled = self._frame_size = 0
