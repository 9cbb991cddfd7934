"""One remoting connection, on either side: bytes in, frames to the endpoint, answers out.

Loop thread only. The endpoint (server or client) owns the handler table, the limits and the counters;
this class owns the socket's two directions:

* In: whole frames are offered to ``endpoint.fast_path`` first, the rest is decoded and dispatched one by one.
  Everything written while the frames of one read event are handled goes out in one ``writelines``.
* A connection whose frames take long gives way after ``TURN_S``: uvloop reads a busy socket many times in a row, and a
  peer that always has more to say would keep timers and all others waiting for seconds.
* Out: above the high-water mark of unsent bytes the connection is not read any more (``_stash`` keeps what
  was read and not yet handled), until the peer has taken its answers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from cometmq.errors import ConnectionLost, RemoteProtocolError, Timeout
from cometmq.net.addresses import format_address, host_bytes, plain_host
from cometmq.net.metrics import CloseReason
from cometmq.net.pump_cy import Served
from cometmq.net.receive import LENGTH_SIZE, FrameReceiver, bad_length
from cometmq.protocol.command import Buffer, RemotingCommand, decode_frame
from cometmq.protocol.frame_cy import split_frames

if TYPE_CHECKING:
    from cometmq.net.endpoint import Endpoint

log = logging.getLogger(__name__)

CloseCallback = Callable[["Connection"], None]

TURN_S = 0.005  # that the handlers of one connection may take of a turn of the loop; the rest waits
SEPARATE_BODY_SIZE = 8 * 1024  # larger bodies are handed to writelines as they are instead of being copied
OPAQUE_MASK = 0x7FFFFFFF
TLS_HANDSHAKE_BYTE = 0x16

_ids = itertools.count(1)


class Connection(Served, asyncio.BufferedProtocol):
    transport: asyncio.Transport

    __slots__ = (
        *(
            "_close_reason",
            "_corked",
            "_endpoint",
            "_frames_seen",
            "_opaque",
            "_out",
            "_out_size",
            "_pending",
        ),
        *("_resting", "_stash", "_turn_ends", "_write_paused"),
        *("attachments", "closed_at_ms", "drained_at_ms", "drained_bytes", "id", "in_flight"),
        *("on_close", "peer", "peer_host", "peer_port", "receiver", "tls"),
    )

    def __init__(self, endpoint: Endpoint, *, tls: bool = False) -> None:
        super().__init__(endpoint.metrics.traffic)
        self._endpoint = endpoint
        self.receiver = FrameReceiver(endpoint.shared_buffer)
        self._out: list[Buffer] = []
        self._out_size = 0
        self._corked = False
        self._write_paused = False
        self._resting = False
        self._turn_ends = 0.0
        self._stash = b""
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._frames_seen = False
        self._close_reason: str | None = None
        self.id = next(_ids)
        self.tls = tls
        self.peer_host = ""
        self.peer_port = 0
        self.peer = ""
        self.closed_at_ms = 0
        self.last_active_ms = endpoint.now_ms()
        self.drained_bytes = -1  # how much had left the output buffer when the expiry scan looked last
        self.drained_at_ms = 0
        self.in_flight = 0
        self.on_close: list[CloseCallback] = []
        self.attachments: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Connection {self.id} {self.peer}{' closed' if self.closed else ''}>"

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        config = self._endpoint.config
        self.transport.set_write_buffer_limits(config.high_water_bytes, config.low_water_bytes)
        name = transport.get_extra_info("peername") or ("", 0)
        self.peer_host = plain_host(str(name[0]))
        self.peer_port = int(name[1])
        self.peer = format_address(self.peer_host, self.peer_port)
        self.born_host = host_bytes(self.peer_host, self.peer_port)
        self._endpoint.connection_opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        endpoint = self._endpoint
        self.last_active_ms = endpoint.now_ms()
        self.traffic.bytes_in += nbytes
        ready = self.receiver.received(nbytes)
        if ready is None:
            self.bound_memory()
        else:
            self.received(ready[0], 0, ready[1])

    def received(self, view: memoryview, start: int, end: int, *, offered: bool = False) -> None:
        """Handle ``view[start:end]``, the bytes that came; ``offered``: the fast path has left them already."""
        if self.closed:
            self.receiver.clear()
        elif self._stash:  # a transport that delivers although it is paused
            self._set_stash(self._stash + bytes(view[start:end]))
        else:
            self._handle_bytes(view, start, end, offered)
        self.bound_memory()

    def bound_memory(self) -> None:
        """All incomplete frames together have a limit; whoever passes it ends."""
        endpoint = self._endpoint
        held_bytes = endpoint.shared_buffer.held_bytes
        if held_bytes > endpoint.config.receive_bytes_max and self.receiver.partial_bytes:
            self.close(CloseReason.RECEIVE_MEMORY)

    def eof_received(self) -> None:
        """The peer will send no more: asyncio closes the transport."""

    def pause_writing(self) -> None:
        self._write_paused = True
        self.drained_at_ms = self._endpoint.now_ms()
        self._endpoint.metrics.reading_paused += 1
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._go_on()

    def _go_on(self) -> None:
        """Handle what was put aside, then read again."""
        if self.closed or self._paused:
            return
        if self._stash:
            stash = self._stash
            self._set_stash(b"")
            self._handle_bytes(memoryview(stash), 0, len(stash))
        if not self._paused and not self.closed:
            self.transport.resume_reading()

    @property
    def _paused(self) -> bool:
        return self._write_paused or self._resting

    def _rest(self) -> None:
        """Let the others have a turn of the loop."""
        self._resting = True
        self.transport.pause_reading()
        self._endpoint.loop.call_soon(self._end_rest)

    def _end_rest(self) -> None:
        self._resting = False
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._close_reason is None:
            self._close_reason = CloseReason.PEER_CLOSED if exc is None else CloseReason.RESET
        self.closed = True
        self.receiver.clear()
        self._set_stash(b"")
        self._out.clear()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(
                    ConnectionLost(f"Connection to {self.peer} was lost ({self._close_reason}).")
                )
        self._endpoint.connection_closed(self, self._close_reason)

    # --- frames in ---

    def _handle_bytes(self, view: memoryview, start: int, end: int, offered: bool = False) -> None:
        """Handle every whole frame of ``view[start:end]``, keep the rest, send what the handlers wrote."""
        self._corked = True
        try:
            fast_path = self._endpoint.fast_path
            rest = start
            if fast_path is not None and not offered:
                rest += fast_path(self, view, start, end)
            if rest < end:
                rest = self._consume(view, rest, end)
            if rest > start:
                self.partial_since_ms = 0  # a frame was finished; what is left belongs to the next one
            if rest < end and not self.closed:
                self._keep_rest(view, rest, end)
        except Exception:
            log.exception("connection=%s peer=%s failed and is closed", self.id, self.peer)
            self.close(CloseReason.INTERNAL_ERROR)
        finally:
            if self._out:
                self._flush()
            self._corked = False

    def _consume(self, view: memoryview, start: int, end: int) -> int:
        """What the fast path left; returns where the unhandled rest begins."""
        try:
            ends, _ = split_frames(view, start, end, self._endpoint.config.frame_size_max)
        except RemoteProtocolError:
            return start  # the first length word is impossible: the rest is refused
        return self._dispatch_frames(view, start, end, ends) if ends else start

    def _dispatch_frames(self, view: memoryview, start: int, end: int, ends: list[int]) -> int:
        fast_path = self._endpoint.fast_path
        self._turn_ends = time.monotonic() + TURN_S
        for frame_end in ends:
            if frame_end <= start:
                continue  # the fast path took it
            self._frame(view[start:frame_end])
            start = frame_end
            if self.closed or self._must_stop():
                return start
            if fast_path is not None and start < ends[-1]:
                start += fast_path(self, view, start, end)
        return start

    def _frame(self, frame: memoryview) -> None:
        self._frames_seen = True
        try:
            command = decode_frame(frame)
        except RemoteProtocolError as error:
            self._refuse(frame, error)
        else:
            self._endpoint.dispatch(self, command)

    def _must_stop(self) -> bool:
        """True when the peer does not take its answers, or had its turn: the frames left must wait."""
        if self._out_size > self._endpoint.config.high_water_bytes:
            self._flush()
        if time.monotonic() > self._turn_ends and not self._resting:
            self._rest()
        return self._paused

    def _keep_rest(self, view: memoryview, start: int, end: int) -> None:
        if self._paused:
            self._set_stash(bytes(view[start:end]))
            return
        if bad_length(view, start, end, self._endpoint.config.frame_size_max):
            self._refuse(view[start:end], RemoteProtocolError("The length word of a frame is impossible."))
            return
        self.receiver.keep(view, start, end)
        self.partial_since_ms = self.partial_since_ms or self.last_active_ms

    def _set_stash(self, stash: bytes) -> None:
        self._endpoint.shared_buffer.held_bytes += len(stash) - len(self._stash)
        self._stash = stash

    def _refuse(self, rest: memoryview, error: RemoteProtocolError) -> None:
        """Close because of the length word at the begin of ``rest``, or because a frame cannot be decoded."""
        reason = CloseReason.BAD_FRAME
        if not self._frames_seen and rest[0] == TLS_HANDSHAKE_BYTE:
            reason = CloseReason.TLS_REFUSED
        elif int.from_bytes(rest[:LENGTH_SIZE], "big") + LENGTH_SIZE > self._endpoint.config.frame_size_max:
            reason = CloseReason.FRAME_TOO_LARGE
        log.info("connection=%s peer=%s closed reason=%s: %s", self.id, self.peer, reason, error)
        self.close(reason)

    # --- out ---

    def send(self, command: RemotingCommand) -> None:
        body = command.body
        if body and len(body) >= SEPARATE_BODY_SIZE:
            self.write([command.encode_head(len(body)), body])
        else:
            self.write([command.encode()])

    def write(self, parts: list[Buffer]) -> None:
        """Queue bytes of whole frames. During a read event they leave together at its end, else at once."""
        if self.closed:
            return
        self._out += parts
        for part in parts:
            self._out_size += len(part)
        if not self._corked:
            self._flush()

    def _flush(self) -> None:
        if self.closed:
            return
        out, size = self._out, self._out_size
        self._out, self._out_size = [], 0
        self.bytes_written += size
        self.traffic.bytes_out += size
        if not self._corked:
            self.last_active_ms = self._endpoint.now_ms()
        if len(out) == 1:
            self.transport.write(out[0])
        else:
            self.transport.writelines(out)
        if self._write_paused and self.unsent_bytes > self._endpoint.config.output_bytes_max:
            self.close(CloseReason.OUTPUT_FULL)

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    @property
    def write_paused(self) -> bool:
        """The peer does not take its answers; writers that can wait should."""
        return self._write_paused

    @property
    def partial_bytes(self) -> int:
        return self.receiver.partial_bytes

    def give_up_after(self, unacknowledged_ms: int) -> None:
        """Close when the peer's machine takes nothing for so long (Linux): else it may be minutes until that shows."""
        sock = self.transport.get_extra_info("socket")
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if sock is not None and option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, unacknowledged_ms)

    # --- our requests to the peer ---

    def next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & OPAQUE_MASK
        return self._opaque

    def begin(self, command: RemotingCommand, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Send a request now; the future gets the answer, ``Timeout`` or ``ConnectionLost``.

        Cancelling the future forgets the request; a late answer is then counted as unmatched.
        """
        command.opaque = self.next_opaque()
        future = self.expect(command.opaque, timeout_ms)
        self.send(command)
        return future

    def expect(self, opaque: int, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """The future of the response with this opaque, for callers that encode their own frames."""
        loop = self._endpoint.loop
        future: asyncio.Future[RemotingCommand] = loop.create_future()
        if self.closed:
            future.set_exception(ConnectionLost(f"Connection to {self.peer} is closed."))
            return future
        self._pending[opaque] = future
        timer = loop.call_later(timeout_ms / 1000, self._expire_request, opaque, timeout_ms)

        def forget(_: asyncio.Future[RemotingCommand]) -> None:
            timer.cancel()
            self._pending.pop(opaque, None)

        future.add_done_callback(forget)
        return future

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request to the peer and wait for its response."""
        return await self.begin(command, timeout_ms)

    @property
    def requests_pending(self) -> int:
        return len(self._pending)

    def resolve(self, response: RemotingCommand) -> None:
        """Called by the endpoint for every response frame."""
        future = self._pending.get(response.opaque)
        if future is None or future.done():
            self._endpoint.metrics.responses_unmatched += 1
        else:
            future.set_result(response)

    def _expire_request(self, opaque: int, timeout_ms: int) -> None:
        future = self._pending.get(opaque)
        if future is not None and not future.done():
            self._endpoint.metrics.request_timeouts += 1
            future.set_exception(Timeout(f"No answer from {self.peer} within {timeout_ms} ms."))

    # --- end ---

    def close(self, reason: str = CloseReason.LOCAL) -> None:
        """Close once what was written has left, or after ``close_linger_ms``; the reason is counted."""
        if self.closed:
            return
        if self._out and reason not in _NO_LINGER:
            self._flush()
        self.closed = True
        self._close_reason = reason
        self.closed_at_ms = self._endpoint.now_ms()
        if reason in _NO_LINGER:
            self.transport.abort()
        else:
            self.transport.close()

    def fail(self) -> None:
        """Something of ours went wrong: what the peer was told, and what not, is not known."""
        self.close(CloseReason.INTERNAL_ERROR)

    def abort(self) -> None:
        """End at once, dropping what was not sent."""
        if not self.closed:
            self.closed, self._close_reason = True, CloseReason.LOCAL
        self.transport.abort()


_NO_LINGER = frozenset({CloseReason.SLOW_READER, CloseReason.OUTPUT_FULL, CloseReason.RECEIVE_MEMORY})
