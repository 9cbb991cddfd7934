"""The short way of a send: many requests in flight on one connection, few objects each.

A request of the ordinary way costs a command object, two dictionaries, a timer and callbacks. Sends are most of what a
producer does, so they go past that: the frame is made from a prepared template (``send_frames``), frames of one
turn of the loop leave in one write, answers are decoded straight into a small struct, and one timer per connection
watches all deadlines.

Loop thread only. ``fast_path`` is installed in the RemotingClient; it takes the answers of sends and leaves every other
frame to the ordinary way.
"""

from __future__ import annotations

import asyncio
import struct
import time

import msgspec

from cometmq.errors import ConnectionLost, RemoteProtocolError, Timeout
from cometmq.net.connection import Connection
from cometmq.net.metrics import CloseReason
from cometmq.protocol.command import RemotingCommand, decode_frame

_WORDS = struct.Struct(">iI")
_HEADER_MASK = 0xFFFFFF
_KEY = "send_pipe"
_HEARD = "heard_at"


class SendFields(msgspec.Struct, gc=False):
    """The ext fields of an answer to a send. Numbers arrive as text, the decoder turns them into numbers."""

    msgId: str = ""
    queueId: int = 0
    queueOffset: int = 0
    transactionId: str | None = None
    MSG_REGION: str | None = None
    TRACE_ON: str | None = None
    masterAddr: str = ""  # of a broker that is not the master of its group


class SendAnswer(msgspec.Struct, gc=False):
    """The header of an answer to a send."""

    code: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    extFields: SendFields | None = None


_decode = msgspec.json.Decoder(SendAnswer, strict=False).decode
SendFuture = asyncio.Future[SendAnswer]


class SendPipe:
    """Sends of one connection."""

    __slots__ = ("_address", "_connection", "_loop", "_out", "_pending", "_sweep_at", "_timer")

    def __init__(self, connection: Connection, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._address = address
        self._loop = loop
        self._out: list[bytes | bytearray | memoryview] = []
        self._pending: dict[int, tuple[SendFuture, float, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        connection.attachments[_KEY] = self
        connection.on_close.append(self._closed)

    @classmethod
    def of(cls, connection: Connection, address: str, loop: asyncio.AbstractEventLoop) -> SendPipe:
        pipe = connection.attachments.get(_KEY)
        return pipe if pipe is not None else cls(connection, address, loop)

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def next_opaque(self) -> int:
        return self._connection.next_opaque()

    def expect(self, opaque: int, timeout_s: float) -> SendFuture:
        """The future of the answer with this opaque."""
        now = time.monotonic()
        deadline = now + timeout_s
        future: SendFuture = self._loop.create_future()
        self._pending[opaque] = (future, deadline, now)
        if self._timer is None or deadline < self._sweep_at:
            self._watch(deadline)
        return future

    def write(self, frame: bytes | bytearray | memoryview) -> None:
        """Queue a frame; everything queued in this turn of the loop leaves together."""
        out = self._out
        if not out:
            self._loop.call_soon(self.flush)
        out.append(frame)

    def flush(self) -> None:
        """Send what is queued now."""
        out, self._out = self._out, []
        if out:
            self._connection.write(out)

    def answered(self, answer: SendAnswer) -> bool:
        """False when nobody waits for this opaque here."""
        waiting = self._pending.pop(answer.opaque, None)
        if waiting is None:
            return False
        if not waiting[0].done():
            waiting[0].set_result(answer)
        return True

    # --- deadlines: one timer, set to the earliest ---

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sweep_at = deadline
        self._timer = self._loop.call_later(deadline - time.monotonic(), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = time.monotonic()
        silent = False
        for opaque, (future, deadline, sent_at) in list(self._pending.items()):
            if future.done():
                del self._pending[opaque]
            elif deadline <= now:
                del self._pending[opaque]
                silent = silent or silent_since(self._connection, sent_at)
                future.set_exception(
                    Timeout(f"no answer from {self._address} within {deadline - sent_at:.1f} s")
                )
        if self._pending:
            self._watch(min(deadline for _, deadline, _ in self._pending.values()))
        if silent:
            # Nothing at all came back since: the connection is dead (a firewall forgot it), others must not wait.
            self._connection.close(CloseReason.REQUEST_TIMEOUT)

    def _closed(self, _connection: Connection) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for future, _, _ in pending.values():
            if not future.done():
                future.set_exception(
                    ConnectionLost(f"the connection to {self._address} was lost before the answer")
                )


def fast_path(connection: Connection, view: memoryview, start: int, end: int) -> int:
    """Take answers of sends from the front of what was read; returns the number of bytes taken."""
    attachments = connection.attachments
    attachments[_HEARD] = time.monotonic()
    pipe: SendPipe | None = attachments.get(_KEY)
    if pipe is None:
        return 0
    at = start
    while end - at >= 8:
        length, word = _WORDS.unpack_from(view, at)
        frame_end = at + 4 + length
        if frame_end > end or word & _HEADER_MASK != length - 4:
            break  # incomplete, or with a body: not an answer of a send
        answer = _answer(view[at:frame_end], word >> 24)
        if answer is None or not answer.flag & 1 or not pipe.answered(answer):
            break
        at = frame_end
    return at - start


def silent_since(connection: Connection, moment: float) -> bool:
    """Whether nothing at all came over a connection since a moment (of the monotonic clock)."""
    heard_at: float = connection.attachments.get(_HEARD, 0.0)
    return heard_at < moment


def _answer(frame: memoryview, serialize_type: int) -> SendAnswer | None:
    if serialize_type == 0:
        try:
            return _decode(frame[8:])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
    try:
        return answer_of(decode_frame(frame))
    except (RemoteProtocolError, msgspec.ValidationError):
        return None


def answer_of(command: RemotingCommand) -> SendAnswer:
    """An ordinary response as the answer of a send."""
    fields = msgspec.convert(command.ext_fields or {}, SendFields, strict=False)
    return SendAnswer(command.code, command.opaque, command.flag, command.remark, fields)
