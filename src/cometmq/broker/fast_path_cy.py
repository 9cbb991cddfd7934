"""What the network offers first: plain sends and pulls at the front of a receive buffer, without the handler table.

``FastPath.take`` says how many bytes it took. What it leaves, whatever the reason, goes to the handlers one frame at a
time, so every rule is written down there.

``SendBatch`` gathers the plain sends of several connections: ``plain_send_cy`` turns them into records, ``settle``
commits these and writes (or holds back) the answers. Compiled, because a send that comes alone pays for every step of
this way by itself. For the same reason it keeps what it asked for, the leave to take sends and the room in the log,
where answers wait for nothing: for some milliseconds, until somebody else wants to append, or until any frame goes to the
handlers (``finish``). Loop thread only.
"""

# mypy: ignore-errors

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.broker.plain_send_cy import RecordMaker
    from cython.cimports.cometmq.clock import steady_ns, wall_ms
    from cython.cimports.cometmq.net.pump_cy import BatchPath, Served
    from cython.cimports.cometmq.store.commit_cy import QueuesEnd
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.libc.string import memcmp
else:
    from time import monotonic_ns as steady_ns

    from cometmq.broker.plain_send_cy import RecordMaker
    from cometmq.clock import now_ms as wall_ms
    from cometmq.net.pump_cy import BatchPath, Served
    from cometmq.store.commit_cy import QueuesEnd

from cometmq.broker.counters import LATENCY_BOUNDS_US
from cometmq.clock import now_ms as wall_clock
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.pull_frames import PULL_PREFIX, begins_pull

# The first classes of the histograms, up to half a millisecond: what happens all the time on a busy machine
QUICK_CLASSES = cython.declare(cython.int, 4)
# So long the leave to take sends holds, unless somebody else appends
OPEN_MS = cython.declare(cython.longlong, 20)
WORDS_SIZE = cython.declare(cython.Py_ssize_t, 8)  # before the header of a frame


@cython.cclass
class SendBatch(BatchPath):
    """The plain sends since the last ``settle``. PlainSendPath knows which topics take part, and what happens seldom."""

    sends = cython.declare(RecordMaker, visibility="public")  # PlainSends
    at_once = cython.declare(cython.bint, visibility="public")  # answers wait for nothing
    batches = cython.declare(cython.longlong, visibility="public")
    messages = cython.declare(cython.longlong, visibility="public")
    _quick: cython.longlong[4]  # messages of batches whose time lies in one of QUICK_CLASSES
    _quick_ns: cython.longlong[4]  # and their times, added up
    _quick_ends_ns: cython.longlong[4]  # where the class ends
    _queues: QueuesEnd
    _clock: object
    _open: cython.bint  # sends are taken, and there is room in the log
    _begun: cython.bint
    _taken: cython.longlong  # messages in this batch
    _answers: list
    _began_ns: cython.longlong
    _now_ms: cython.longlong
    _opened_ms: cython.longlong

    def __init__(self, sends: RecordMaker, queues: QueuesEnd, now_ms: object) -> None:
        self.sends = sends
        self.at_once = False
        self.batches = 0
        self.messages = 0
        if not cython.compiled:
            self._quick = [0] * QUICK_CLASSES
            self._quick_ns = [0] * QUICK_CLASSES
            self._quick_ends_ns = [0] * QUICK_CLASSES
        for i in range(QUICK_CLASSES):
            self._quick_ends_ns[i] = (LATENCY_BOUNDS_US[i] + 1) * 1_000  # a bound belongs to its class
        self._queues = queues
        self._clock = None if now_ms is wall_clock else now_ms
        self._open = False
        self._begun = False
        self._taken = 0
        self._answers = []
        self._began_ns = 0
        self._now_ms = 0
        self._opened_ms = 0

    # What a subclass does

    def open(self) -> bool:
        """May sends be taken now? Then get room in the log for ``sends``, and say whether answers leave ``at_once``."""
        raise NotImplementedError

    def close(self) -> None:
        """Others may append again."""
        raise NotImplementedError

    def answer_later(self, answers: list, end_offset: int) -> None:
        raise NotImplementedError

    def fail(self, answers: list) -> None:
        """The commit raised an exception, which is being handled."""
        raise NotImplementedError

    def note_slow(self, elapsed_ns: int, count: int) -> None:
        raise NotImplementedError

    # What it is for

    @cython.ccall
    def take(
        self, connection: Served, view: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Write the plain sends at the front of ``view[start:end]``; how many bytes they took.

        They are in the log, and answered, after ``settle``, which the log calls when somebody else wants to append.
        """
        return self.gather(connection, view, start, end)

    @cython.cfunc
    def gather(
        self, connection: Served, view: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        sends: RecordMaker = self.sends
        if not self._begun and not self._begin():
            return 0
        taken: cython.Py_ssize_t = sends.consume(view, start, end, connection.born_host, self._now_ms)
        if taken:
            self._taken += sends.count
            responses = sends.responses
            if responses:
                self._answers.append((connection, responses))
        return taken

    @cython.cfunc
    def _begin(self) -> cython.bint:
        now_ms: cython.longlong = wall_ms() if self._clock is None else self._clock()
        if self._open and now_ms - self._opened_ms >= OPEN_MS:
            self.finish()
        if not self._open:
            self._open = self.open()
            self._opened_ms = now_ms
        self._begun = self._open
        self._now_ms = now_ms
        self._began_ns = steady_ns()
        return self._open

    @cython.ccall
    def settle(self) -> object:
        """Commit and answer what was taken since the last call."""
        return self.commit_taken()

    @cython.cfunc
    def commit_taken(self) -> object:
        self._begun = False
        if not self._taken:
            return None
        connection: Served
        count: cython.longlong = self._taken
        answers: list = self._answers
        self._taken = 0
        self._answers = []
        try:
            end_offset: cython.longlong = self._queues.complete_to(self.sends.position)
        except Exception:  # noqa: BLE001 - logged by fail()
            self.fail(answers)
            self.finish()
            return None
        if self.at_once:
            for connection, frames in answers:
                connection.write_answer(frames)
        else:
            self.answer_later(answers, end_offset)
            self.finish()
        self._count(count, steady_ns() - self._began_ns)
        return None

    @cython.ccall
    def finish(self) -> object:
        """As ``settle``, and let others append."""
        if self._open:
            self._open = False
            self.close()
            self.commit_taken()
        return None

    @cython.cfunc
    def _count(self, count: cython.longlong, elapsed_ns: cython.longlong) -> object:
        self.batches += 1
        self.messages += count
        i: cython.int
        for i in range(QUICK_CLASSES):
            if elapsed_ns < self._quick_ends_ns[i]:  # nearly all: told to the statistics when they are read
                self._quick[i] += count
                self._quick_ns[i] += elapsed_ns * count
                return None
        self.note_slow(elapsed_ns, count)
        self.finish()  # the next batch asks again whether sends are taken
        return None

    def quick_times(self) -> list:
        """What was counted since the last call, as pairs: so many messages, so many microseconds each."""
        found = []
        for i in range(QUICK_CLASSES):
            if self._quick[i]:
                found.append((self._quick[i], self._quick_ns[i] // self._quick[i] // 1_000))
            self._quick[i] = self._quick_ns[i] = 0
        return found


@cython.final
@cython.cclass
class FastPath(BatchPath):
    """Sends and pulls."""

    _sends: SendBatch
    _pulls: object
    _requests: object
    _pull_prefix: bytes

    def __init__(self, sends: SendBatch, pulls: object, requests: object) -> None:
        self._sends = sends
        self._pulls = pulls
        self._requests = requests
        self._pull_prefix = PULL_PREFIX

    @cython.ccall
    def take(
        self, connection: Served, view: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        at: cython.Py_ssize_t = start
        taken: cython.Py_ssize_t
        while at < end:
            if self._begins_pull(view, at, end):
                taken = self._pulls.serve_frame(connection, view, at, end)
                if taken:
                    self._requests[RequestCode.PULL_MESSAGE] += 1
            else:
                taken = self._sends.gather(connection, view, at, end)
            at += taken
            if not taken or at >= end or not self._begins_pull(view, at, end):
                break
        return at - start

    @cython.ccall
    def settle(self) -> object:
        self._sends.commit_taken()
        return None

    @cython.ccall
    def finish(self) -> object:
        self._sends.finish()
        return None

    @cython.cfunc
    def _begins_pull(self, view, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """begins_pull() in C."""
        if not cython.compiled:
            return begins_pull(view, start)
        buffer: Py_buffer
        size: cython.Py_ssize_t = len(self._pull_prefix)
        found: cython.bint = False
        if end - start < WORDS_SIZE + size:
            return False
        PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
        if end <= buffer.len:
            found = memcmp(
                cython.cast(cython.p_char, buffer.buf) + start + WORDS_SIZE,
                cython.cast(cython.p_char, self._pull_prefix),
                size,
            ) == 0  # fmt: skip
        PyBuffer_Release(cython.address(buffer))
        return found
