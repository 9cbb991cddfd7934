"""Pump: the plain sockets of one endpoint, read and written for all that are ready in one call.

Theory of operation. uvloop gives every socket a stream of its own: a callback, a buffer request and a queued write for
each visit. A broker is visited by many connections with a few frames each, so that is what it would spend its time
on. Here the sockets of an endpoint stand in one epoll set, and uvloop watches that set. When something is ready,
``turn`` reads every ready socket once into the shared buffer and offers the bytes to the endpoint's batch path, which
stores the sends of many connections as one batch; their answers leave at the end of the turn, one write a connection.
Frames that the batch path does not take go to the connection, in order, after the batch is finished.

An answer of many messages takes as long as twenty sends. So a turn has rounds: links whose last answer was bulky come
after the others, one of them and one more for every 16 others, those first that have waited longest, and then the set
is asked again who is ready. A producer waits for one consumer that reads old messages, not for all of them; nobody can
keep another out. Before the bulky ones the producers that were answered get the processor: an answer wakes its reader
on the processor of whoever wrote it, in the belief that the writer is about to sleep, and a loop that has bulky answers
to write does not sleep.

``Link`` is the transport of one such connection, with the part of asyncio's interface that Connection uses. TLS, clients and
systems without epoll have the transports of the loop; Connection cannot tell the difference. Loop thread only.
See docs/decisions/009-pump.md for what this saves.
"""

from __future__ import annotations

import logging
import select
from operator import attrgetter
from typing import Any, Optional

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.clock import wall_ms
    from cython.cimports.cometmq.epoll import wait_ready
    from cython.cimports.cometmq.scheduler import sched_yield
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.libc.errno import errno
    from cython.cimports.posix.unistd import read, write
else:
    from os import sched_yield

    from cometmq.clock import now_ms as wall_ms

from cometmq.clock import now_ms as wall_clock
from cometmq.net.receive import incomplete

log = logging.getLogger(__name__)

LINKS_PER_ROUND = 64  # that are asked for (READY_MAX in epoll.pxd); the others are ready in the next
LINKS_PER_BATCH = 16  # whose sends share a commit: more would keep the first ones waiting for their answers
# Bytes of an answer; who got one that is longer than the question is served after the others next time
BULK_SIZE = 8 << 10
OTHERS_PER_BULK = 16  # that take about as long as one bulky answer
ROUNDS_PER_TURN = 8  # then the loop looks at its timers and its other sockets
PARTS_PER_WRITE = 512  # of an answer; the system takes 1,024

READABLE = cython.declare(cython.uint, getattr(select, "EPOLLIN", 0))
WRITABLE = cython.declare(cython.uint, getattr(select, "EPOLLOUT", 0))

_LAST_SERVED = attrgetter("served_at")


def pump_class() -> Any:
    """Pump, or None where the system has no epoll."""
    return Pump if hasattr(select, "epoll") else None


@cython.cclass
class Traffic:
    """Bytes that an endpoint has received and sent."""

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0


@cython.cclass
class Served:
    """What every read and every answer changes of a connection; Connection is this and the rest."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.born_host = b""
        self.closed = False
        self.last_active_ms = 0
        self.partial_since_ms = 0
        self.bytes_written = 0

    @cython.ccall
    def answer(self, frames: bytes) -> object:
        """Write the answers of a batch: whole frames that nothing else waits with."""
        return self.write_answer(frames)

    @cython.cfunc
    def write_answer(self, frames: bytes) -> object:
        link: Link
        if self.closed:
            return None
        self.bytes_written += len(frames)
        self.traffic.bytes_out += len(frames)
        if isinstance(self.transport, Link):
            link = self.transport
            link.write(frames)
        else:
            self.transport.write(frames)
        return None


@cython.cclass
class BatchPath:
    """A fast path for many connections at once: their frames are taken one after the other, then answered together."""

    def serve(
        self, connection: Served, view: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> int:
        """The same for one connection by itself (a FastPath)."""
        taken: cython.Py_ssize_t = self.take(connection, view, start, end)
        self.finish()
        return taken

    @cython.ccall
    def take(
        self, connection: Served, view: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Handle frames at the front of ``view[start:end]``; how many bytes. Answers may wait for ``settle``."""
        raise NotImplementedError

    @cython.ccall
    def settle(self) -> object:
        """Commit what was taken and answer it."""
        raise NotImplementedError

    @cython.ccall
    def finish(self) -> object:
        """As ``settle``, before somebody else handles frames."""
        raise NotImplementedError


@cython.cclass
class Pump:
    """One per endpoint. ``add`` makes the transport of an accepted socket."""

    _endpoint: object
    _loop: object
    _epoll: object
    _set: cython.int
    _watched: cython.int  # what the loop watches: the set, or the socket of the only link
    _clock: object
    _links: dict
    _only: Optional[Link]  # the link, where there is one
    _dirty: list
    _in_turn: cython.bint
    _descriptors: cython.int[64]
    _events: cython.uint[64]
    _now_ms: cython.longlong
    _bulks: cython.longlong  # visits to links with bulky answers so far
    _shared: object  # the view that all read into
    _room: cython.p_uchar
    _room_size: cython.Py_ssize_t

    def __init__(self, endpoint: Any, loop: Any) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._epoll = select.epoll()
        self._set = self._epoll.fileno()
        self._clock = None if endpoint.now_ms is wall_clock else endpoint.now_ms
        self._links = {}
        self._only = None
        self._dirty = []  # have something to write at the end of this turn
        self._in_turn = False
        self._now_ms = 0
        self._bulks = 0
        if not cython.compiled:
            self._descriptors = [0] * LINKS_PER_ROUND
            self._events = [0] * LINKS_PER_ROUND
        self._shared = endpoint.shared_buffer.view
        if cython.compiled:
            self._find_room()
        self._watched = self._set
        loop.add_reader(self._set, self.turn)

    @cython.cfunc
    def _find_room(self) -> object:
        # The pointer stays valid while the view keeps the memory alive.
        buffer: Py_buffer
        PyObject_GetBuffer(self._shared, cython.address(buffer), PyBUF_WRITABLE)
        self._room = cython.cast(cython.p_uchar, buffer.buf)
        self._room_size = buffer.len
        PyBuffer_Release(cython.address(buffer))
        return None

    def add(self, sock: Any, connection: Any) -> None:
        """Serve an accepted, non-blocking socket. Raises OSError when it is gone already."""
        link: Link = Link(self, sock, connection)
        link._watch()
        self._links[link._fd] = link
        self._look_for_only()
        connection.connection_made(link)

    @cython.cfunc
    def _look_for_only(self) -> object:
        self._only = next(iter(self._links.values())) if len(self._links) == 1 else None
        self._watch()
        return None

    @cython.cfunc
    def _watch(self) -> object:
        """A link that is alone is watched by the loop itself: a set in a set costs every turn.

        Not one whose answers had to wait: it would change hands with each of them.
        """
        only: Optional[Link] = self._only
        wanted: cython.int = self._set
        if only is not None and only._events == READABLE and not only._has_waited:
            wanted = only._fd
        if wanted != self._watched:
            self._loop.remove_reader(self._watched)
            self._loop.add_reader(wanted, self.turn)
            self._watched = wanted
        return None

    def close(self) -> None:
        link: Link
        for link in list(self._links.values()):
            link._lose(None)
        self._loop.remove_reader(self._watched)
        self._epoll.close()

    def turn(self) -> None:
        endpoint = self._endpoint
        batch: Optional[BatchPath] = endpoint.batch_path if endpoint.fast_path is not None else None
        rounds: cython.int = 0
        self._in_turn = True
        try:
            while rounds < ROUNDS_PER_TURN and self._round(batch):
                rounds += 1
        finally:
            self._in_turn = False
            self._settle(batch)

    @cython.cfunc
    def _ask(self) -> cython.int:
        """Which links are ready: their number; descriptors and events are noted."""
        only: Optional[Link] = self._only
        self._now_ms = wall_ms() if self._clock is None else self._clock()
        if only is not None and only._events == READABLE:  # it must be that one
            self._descriptors[0] = only._fd
            self._events[0] = READABLE
            return 1
        if cython.compiled:
            return wait_ready(self._set, self._descriptors, self._events)
        ready = self._epoll.poll(0, LINKS_PER_ROUND)
        for i, (descriptor, event) in enumerate(ready):
            self._descriptors[i] = descriptor
            self._events[i] = event
        return len(ready)

    @cython.cfunc
    def _round(self, batch: Optional[BatchPath]) -> cython.bint:
        """Serve all links that are ready, those with bulky answers last and not all of them; True if some are left."""
        link: Link
        i: cython.int
        event: cython.uint
        taking: cython.int = 0
        bulky: Optional[list] = None  # not made for every send that comes alone
        for i in range(self._ask()):
            link = self._links.get(self._descriptors[i])
            if link is None:
                continue  # closed by one before it
            event = self._events[i]
            if event & WRITABLE:
                link._write_out()
            if event & ~WRITABLE:
                if link._bulky and link._reading:
                    if bulky is None:
                        bulky = []
                    bulky.append(link)
                    continue
                link._read(batch)
                taking += 1
                if taking % LINKS_PER_BATCH == 0:
                    self._settle(batch)
        if bulky is None:
            return False
        self._settle(batch)
        if taking:
            sched_yield()
        served: cython.int = 1 + taking // OTHERS_PER_BULK
        if len(bulky) > served:
            bulky.sort(key=_LAST_SERVED)  # who asks again at once may be the first of the set every time
        for link in bulky[:served]:
            if link._reading:
                link._bulky = False
                self._bulks += 1
                link.served_at = self._bulks
                link._read(batch)
        self._settle(batch)
        return len(bulky) > served

    @cython.cfunc
    def _settle(self, batch: Optional[BatchPath]) -> object:
        """Commit what the links of this batch sent, and write all answers."""
        if batch is not None:
            batch.settle()
        self._write_answers()
        return None

    @cython.cfunc
    def _write_answers(self) -> object:
        link: Link
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
    _connection: Served
    _receiver: object
    _out: list
    _unsent: cython.Py_ssize_t
    _high: cython.Py_ssize_t
    _low: cython.Py_ssize_t
    _events: cython.uint  # what the epoll set watches this socket for
    _reading: cython.bint
    _dirty: cython.bint
    _asked_size: cython.Py_ssize_t  # bytes of the last read
    _bulky: cython.bint  # its last answer was
    served_at = cython.declare(cython.longlong, visibility="readonly")  # the last visit to it as one of those
    _has_waited: cython.bint  # to write, at least once
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
        self._asked_size = 0
        self._bulky = False
        self.served_at = 0
        self._has_waited = False
        self._full = False
        self._closing = False
        self._lost = False

    # --- in ---

    @cython.cfunc
    def _read(self, batch: Optional[BatchPath]) -> object:
        """One read, and what the batch path or the connection makes of it."""
        if not self._reading:
            self._break(None)  # it is not watched for data: the peer has hung up
            return None
        connection: Served = self._connection
        pump: Pump = self._pump
        receiver = self._receiver
        fresh: cython.bint = receiver.fresh
        view = pump._shared if fresh else receiver.buffer()
        count: cython.Py_ssize_t
        taken: cython.Py_ssize_t
        try:
            count = self._receive(view, fresh)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self._break(error)
            return None
        if count == 0:
            connection.eof_received()
            self.close()
            return None
        self._asked_size = count
        if batch is None or connection.closed:
            connection.buffer_updated(count)
            return None
        connection.last_active_ms = pump._now_ms
        connection.traffic.bytes_in += count
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
            batch.finish()
            pump._write_answers()
        connection.received(view, taken, count, offered=True)
        return None

    @cython.cfunc
    def _receive(self, view, shared: cython.bint) -> cython.Py_ssize_t:
        if cython.compiled:
            count: cython.Py_ssize_t
            if shared:
                count = read(self._fd, self._pump._room, self._pump._room_size)
            else:
                room: cython.uchar[::1] = view
                count = read(self._fd, cython.address(room[0]), room.shape[0])
            if count < 0:
                raise OSError(errno, "read")
            return count
        return self._sock.recv_into(view)

    @cython.cfunc
    def _offer(self, batch: BatchPath, view, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        try:
            return batch.take(self._connection, view, 0, end)
        except Exception:
            log.exception("peer=%s failed and is closed", self._connection.peer)
            self._connection.fail()
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
        events: cython.uint = 0
        if self._reading:
            events |= READABLE
        if self._unsent and not self._dirty:
            events |= WRITABLE
            self._has_waited = True
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
        if self._pump._only is self:
            self._pump._watch()
        return None

    # --- out ---

    @cython.ccall
    def write(self, data) -> object:
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
        if size >= BULK_SIZE and size > self._asked_size:  # not the answers to many sends
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
        self._pump._look_for_only()
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
