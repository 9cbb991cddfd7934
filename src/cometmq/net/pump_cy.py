"""Pump: the plain sockets of one endpoint, read and written for all that are ready in one call.

Theory of operation. uvloop gives every socket a stream of its own: a callback, a buffer request and a queued write for
each visit. A broker is visited by many connections with a few frames each, so that is what it would spend its time
on. Here the sockets of an endpoint stand in one epoll set, and uvloop watches that set. When something is ready,
``turn`` reads every ready socket once into the shared buffer and offers the bytes to the endpoint's batch path, which
stores the sends of many connections as one batch; their answers leave at the end of the turn, one write a connection.
Frames that the batch path does not take go to the connection, in order, after the batch is finished.

An answer of many messages takes as long as twenty sends. So a turn has rounds: links whose last answer was bulky come
after the others, as many of them as of the others and one more, and then the set is asked again who is ready. A
producer waits for one consumer that reads old messages, not for all of them; neither can keep the other out.

``Link`` is the transport of one such connection, with the part of asyncio's interface that Connection uses. TLS, clients and
systems without epoll have the transports of the loop; Connection cannot tell the difference. Loop thread only.
See docs/decisions/009-pump.md for what this saves.
"""

from __future__ import annotations

import logging
import select
from typing import Any

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.libc.errno import errno
    from cython.cimports.posix.unistd import read, write

from cometmq.net.metrics import CloseReason
from cometmq.net.receive import incomplete

log = logging.getLogger(__name__)

LINKS_PER_ROUND = 64  # that are asked for; the others are ready in the next
LINKS_PER_BATCH = 16  # whose sends share a commit: more would keep the first ones waiting for their answers
BULK_SIZE = 8 << 10  # bytes of an answer; who got one is served after the others next time
ROUNDS_PER_TURN = 8  # then the loop looks at its timers and its other sockets
PARTS_PER_WRITE = 512  # of an answer; the system takes 1,024

READABLE = getattr(select, "EPOLLIN", 0)
WRITABLE = getattr(select, "EPOLLOUT", 0)


def pump_class() -> Any:
    """Pump, or None where the system has no epoll."""
    return Pump if hasattr(select, "epoll") else None


@cython.cclass
class Pump:
    """One per endpoint. ``add`` makes the transport of an accepted socket."""

    _endpoint: object
    _loop: object
    _epoll: object
    _links: dict
    _dirty: list
    _in_turn: cython.bint

    def __init__(self, endpoint: Any, loop: Any) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._epoll = select.epoll()
        self._links = {}
        self._dirty = []  # have something to write at the end of this turn
        self._in_turn = False
        loop.add_reader(self._epoll.fileno(), self.turn)

    def add(self, sock: Any, connection: Any) -> None:
        """Serve an accepted, non-blocking socket. Raises OSError when it is gone already."""
        link: Link = Link(self, sock, connection)
        link._watch()
        self._links[link._fd] = link
        connection.connection_made(link)

    def close(self) -> None:
        link: Link
        for link in list(self._links.values()):
            link._lose(None)
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def turn(self) -> None:
        endpoint = self._endpoint
        batch = endpoint.batch_path if endpoint.fast_path is not None else None
        now_ms = endpoint.now_ms()
        rounds: cython.int = 0
        self._in_turn = True
        try:
            while rounds < ROUNDS_PER_TURN and self._round(batch, now_ms):
                rounds += 1
        finally:
            self._in_turn = False
            self._finish(batch)

    @cython.cfunc
    def _round(self, batch, now_ms) -> cython.bint:
        """Serve all links that are ready, those with bulky answers last and not all of them; True if some are left."""
        link: Link
        taking: cython.int = 0
        bulky: list = []
        for fd, event in self._epoll.poll(0, LINKS_PER_ROUND):
            link = self._links.get(fd)
            if link is None:
                continue  # closed by one before it
            if event & WRITABLE:
                link._write_out()
            if event & ~WRITABLE:
                if link._bulky and link._reading:
                    bulky.append(link)
                    continue
                link._read(batch, now_ms)
                taking += 1
                if taking % LINKS_PER_BATCH == 0:
                    self._finish(batch)
        if not bulky:
            return False
        self._finish(batch)
        for link in bulky[: taking + 1]:
            if link._reading:
                link._bulky = False
                link._read(batch, now_ms)
        self._finish(batch)
        return len(bulky) > taking + 1

    @cython.cfunc
    def _finish(self, batch) -> object:
        """Commit what the links of this batch sent, and write all answers."""
        link: Link
        if batch is not None:
            batch.finish()
        if self._dirty:
            dirty = self._dirty
            self._dirty = []
            for link in dirty:
                link._dirty = False
                link._write_out()
        return None


@cython.cclass
class Link:
    """The transport of one connection."""

    _pump: Pump
    _sock: object
    _fd: cython.int
    _peer_name: tuple
    _connection: object
    _receiver: object
    _out: list
    _unsent: cython.Py_ssize_t
    _high: cython.Py_ssize_t
    _low: cython.Py_ssize_t
    _events: cython.int  # what the epoll set watches this socket for
    _reading: cython.bint
    _dirty: cython.bint
    _bulky: cython.bint  # its last answer was
    _full: cython.bint  # the connection was told to pause writing
    _closing: cython.bint
    _lost: cython.bint

    def __init__(self, pump: Any, sock: Any, connection: Any) -> None:
        self._pump = pump
        self._sock = sock
        self._fd = sock.fileno()
        self._peer_name = sock.getpeername()
        self._connection = connection
        self._receiver = connection.receiver
        self._out = []
        self._unsent = 0
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._events = 0
        self._reading = True
        self._dirty = False
        self._bulky = False
        self._full = False
        self._closing = False
        self._lost = False

    # --- in ---

    @cython.cfunc
    def _read(self, batch, now_ms) -> object:
        """One read, and what the batch path or the connection makes of it."""
        if not self._reading:
            self._break(None)  # it is not watched for data: the peer has hung up
            return None
        connection = self._connection
        receiver = self._receiver
        fresh: cython.bint = receiver.fresh
        view = receiver.shared_view if fresh else receiver.buffer()
        try:
            count = self._receive(view)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self._break(error)
            return None
        if count == 0:
            connection.eof_received()
            self.close()
            return None
        if batch is None or connection.closed:
            connection.buffer_updated(count)
            return None
        connection.last_active_ms = now_ms
        self._pump._endpoint.metrics.bytes_in += count
        if not fresh:
            ready = receiver.received(count)
            if ready is None:
                connection.bound_memory()
                return None
            view, count = ready
        taken = self._offer(batch, view, count)
        if taken:
            connection.partial_since_ms = 0
        if taken == count:
            return None
        if not incomplete(view, taken, count):
            self._pump._finish(batch)
        connection.received(view, taken, count, offered=True)
        return None

    @cython.cfunc
    def _receive(self, view) -> object:
        if cython.compiled:
            room: cython.uchar[::1] = view
            count: cython.Py_ssize_t = read(self._fd, cython.address(room[0]), room.shape[0])
            if count < 0:
                raise OSError(errno, "read")
            return count
        return self._sock.recv_into(view)

    @cython.cfunc
    def _offer(self, batch, view, end) -> object:
        try:
            return batch.take(self._connection, view, 0, end)
        except Exception:
            log.exception("peer=%s failed and is closed", self._connection.peer)
            self._connection.close(CloseReason.INTERNAL_ERROR)
            return end

    def pause_reading(self) -> None:
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        self._reading = not self._closing
        self._watch()

    @cython.cfunc
    def _watch(self) -> object:
        """Tell the epoll set what this socket waits for; nothing at all takes it out of the set."""
        events: cython.int = 0
        if self._reading:
            events |= READABLE
        if self._unsent and not self._dirty:
            events |= WRITABLE
        if events == self._events or self._lost:
            return None
        epoll = self._pump._epoll
        if not events:
            epoll.unregister(self._fd)
        elif not self._events:
            epoll.register(self._fd, events)
        else:
            epoll.modify(self._fd, events)
        self._events = events
        return None

    # --- out ---

    def write(self, data) -> None:
        self._out.append(data)
        self._grow(len(data))

    def writelines(self, parts) -> None:
        size: cython.Py_ssize_t = 0
        for part in parts:
            size += len(part)
        self._out += parts
        self._grow(size)

    @cython.cfunc
    def _grow(self, size: cython.Py_ssize_t) -> object:
        if self._lost:
            self._out.clear()
            return None
        if size >= BULK_SIZE:
            self._bulky = True
        waits: cython.bint = self._unsent > 0
        self._unsent += size
        if self._pump._in_turn and self._unsent <= self._high:
            if not waits:
                self._dirty = True
                self._pump._dirty.append(self)
        elif not waits or self._dirty:
            self._write_out()
        elif self._unsent > self._high:
            self._bound()
        return None

    @cython.cfunc
    def _write_out(self) -> object:
        """Write as much as the socket takes; the rest waits until it takes more."""
        out: list = self._out
        try:
            while out and not self._lost:
                count = self._send(out)
                self._unsent -= count
                if self._unsent == 0:
                    out.clear()
                else:
                    _drop(out, count)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._break(error)
            return None
        self._bound()
        self._watch()
        if self._closing and not self._unsent:
            self._lose_soon(None)
        return None

    @cython.cfunc
    def _send(self, out: list) -> object:
        """Hand parts to the socket; how many bytes it took."""
        if len(out) > 1:
            return self._sock.sendmsg(out[:PARTS_PER_WRITE])
        if cython.compiled and type(out[0]) is bytes:
            data: bytes = out[0]
            count: cython.Py_ssize_t = write(self._fd, cython.cast(cython.p_char, data), len(data))
            if count < 0:
                raise OSError(errno, "write")
            return count
        return self._sock.send(out[0])

    @cython.cfunc
    def _bound(self) -> object:
        """Above the high-water mark the connection stops reading, below the low one it goes on.

        Not at once: it then handles frames that were put aside, and whoever writes may be in the middle of a commit.
        """
        if self._unsent > self._high and not self._full:
            self._full = True
            self._connection.pause_writing()
        elif self._full and self._unsent <= self._low:
            self._pump._loop.call_soon(self._resume)
        return None

    def _resume(self) -> None:
        if self._full and self._unsent <= self._low and not self._lost:
            self._full = False
            self._connection.resume_writing()

    def set_write_buffer_limits(self, high, low) -> None:
        self._high = high
        self._low = low

    def get_write_buffer_size(self) -> int:
        return self._unsent

    # --- end ---

    def get_extra_info(self, name, default=None):
        if name == "socket":
            return self._sock
        if name == "peername":
            return self._peer_name
        return default

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Read no more, and end when what was written has left."""
        if self._closing:
            return
        self._closing = True
        self._reading = False
        self._watch()
        if not self._unsent:
            self._lose_soon(None)

    def abort(self) -> None:
        self._break(None)

    @cython.cfunc
    def _break(self, error) -> object:
        """End without writing the rest."""
        self._closing = True
        self._reading = False
        self._out.clear()
        self._unsent = 0
        self._watch()
        self._lose_soon(error)
        return None

    @cython.cfunc
    def _lose_soon(self, error) -> object:
        """Not now: whoever writes or closes must not be told in the middle of it."""
        self._pump._loop.call_soon(self._lose, error)
        return None

    @cython.ccall
    def _lose(self, error) -> object:
        if self._lost:
            return None
        self._closing = True
        self._reading = False
        self._out.clear()
        self._unsent = 0
        self._watch()
        self._lost = True
        self._pump._links.pop(self._fd, None)
        self._sock.close()
        self._connection.connection_lost(error)
        return None


def _drop(out: list, count) -> None:
    """Take the first ``count`` bytes out of a list of buffers."""
    done: cython.Py_ssize_t = 0
    while count and count >= len(out[done]):
        count -= len(out[done])
        done += 1
    del out[:done]
    if count:
        out[0] = memoryview(out[0])[count:]
