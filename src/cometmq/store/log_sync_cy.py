"""LogSync: the log is brought to disk behind its writer, sync after sync, without the interpreter lock.

Theory of operation. With SYNC_FLUSH an answer waits for the disk. The loop says up to where (``want``), a thread brings
the log there (``follow``) and says so with a byte in a pipe that the loop watches; all that is wanted while a sync
runs is served by the next one (group commit). A loop that serves many connections has the interpreter lock for a
millisecond at a time. A thread that needed it for each sync would leave the disk idle until the loop has nothing to
do, and the loop idle until the disk is done. So the thread stays in ``follow``, where it needs nobody, until there
is something that it does not know: another file, an error, somebody who wants the log for himself (``let_go``), or
nothing to do.

Whoever was answered a moment ago is likely to send again. If every sync began at once the first to come back would
have one of its own, and the others wait for two. So it begins when as much is wanted as the last one wrote and as
came meanwhile, or after the time of a sync.

Numbers are told by one side and read by the other; `shared_number.pxd` says how. The uncompiled way is the
specification, and serves files that tests have made to fail.
"""

# mypy: ignore-errors

from __future__ import annotations

import contextlib
import mmap
import os
import select
import time
from collections.abc import Callable

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.clock import steady_ns
    from cython.cimports.cometmq.shared_number import read_shared, wait_readable, write_shared
    from cython.cimports.cometmq.store.commit_cy import LogEnd
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.libc.errno import errno
    from cython.cimports.posix.mman import MS_SYNC, msync
    from cython.cimports.posix.unistd import read, write
else:
    from cometmq.store.commit_cy import LogEnd

PAGE_SIZE = cython.declare(cython.longlong, mmap.PAGESIZE)
GATHER_NS_MAX = cython.declare(cython.longlong, 3_000_000)
IDLE_NS = cython.declare(cython.longlong, 5_000_000)  # nobody wants anything: time for other things
SIGNALS_MAX = cython.declare(cython.int, 64)  # bytes that are taken out of a pipe at once

Sync = Callable[[int, int], None]  # brings a range of positions in the file to disk; raises OSError
Told = Callable[[], None]


@cython.cclass
class LogSync:
    synced = cython.declare(cython.longlong, visibility="public")  # all below this offset is on disk
    timestamp_ms = cython.declare(cython.longlong, visibility="public")  # of a message below it; 0: not known
    descriptor = cython.declare(cython.int, visibility="readonly")  # has something to read after a sync
    _log: LogEnd
    _wanted: cython.longlong  # loop: somebody waits for everything below this offset
    _wake_at: cython.longlong  # thread: it sleeps until this is wanted; 0: it does not sleep
    _let_go: cython.longlong  # how many ask the thread to leave
    _sync_ns: cython.longlong  # what the last sync took
    _came: cython.longlong  # bytes: what it wrote, and what came meanwhile
    _tell: cython.int
    _wake: cython.int
    _wake_source: cython.int

    def __init__(self, log: LogEnd) -> None:
        self._log = log
        self.synced = 0
        self.timestamp_ms = 0
        self._wanted = 0
        self._wake_at = 0
        self._let_go = 0
        self._sync_ns = 0
        self._came = 0
        self.descriptor = self._tell = self._wake_source = self._wake = -1

    def open(self) -> None:
        self.descriptor, self._tell = _signal_pipe()
        self._wake_source, self._wake = _signal_pipe()

    def close(self) -> None:
        """Nobody follows any more."""
        for descriptor in (self.descriptor, self._tell, self._wake_source, self._wake):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptor = self._tell = self._wake_source = self._wake = -1

    # Loop

    def want(self, end_offset: cython.longlong) -> None:
        """Somebody waits until everything below this offset is on disk."""
        if end_offset <= self._wanted:
            return
        if cython.compiled:
            write_shared(cython.address(self._wanted), end_offset)
            wake_at: cython.longlong = read_shared(cython.address(self._wake_at))
        else:
            self._wanted = end_offset
            wake_at = self._wake_at
        if 0 < wake_at <= end_offset:
            self._wake_thread()

    def heard(self) -> None:
        """What stands in the pipe was noticed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, SIGNALS_MAX)

    # Any thread

    def go_back(self, offset: cython.longlong) -> None:
        """The log was cut here. Loop, and not while the thread follows."""
        self.synced = self._wanted = offset
        self.timestamp_ms = 0

    def let_go(self) -> None:
        """The thread is asked to leave ``follow``, and will not stay in it before ``may_follow``."""
        self._let_go += 1
        if self._wake >= 0:
            self._wake_thread()

    def may_follow(self) -> None:
        self._let_go -= 1

    @cython.cfunc
    def _wake_thread(self) -> object:
        self._wake_at = 0
        with contextlib.suppress(BlockingIOError):  # full: it will wake up
            os.write(self._wake, b"\0")
        return None

    # Thread

    def follow(self, view: memoryview, file_start: int, sync: Sync, told: Told, *, slowly: bool) -> None:
        """Bring to disk what is wanted, as long as it is in this file, of which ``view`` is the map. Raises OSError.

        The slow way (also without a compiler) makes a range durable by ``sync``, and tells by ``told``.
        """
        if cython.compiled and not slowly:
            failed: cython.int = self._follow_compiled(view, file_start)
            if failed:
                raise OSError(failed, os.strerror(failed))
            return
        limit = file_start + len(view)
        while not self._let_go:
            if self._wanted <= self.synced and not self._nap(self.synced + 1, IDLE_NS):
                return
            enough = self.synced + self._came
            if self._wanted < enough:
                self._nap(enough, min(self._sync_ns, GATHER_NS_MAX))
            timestamp_ms = self._log.last_store_timestamp_ms  # before the end: of a message that is below it
            start, end = self.synced, self._wanted
            if end > limit:
                return
            if end > start:
                began_ns = time.monotonic_ns()
                sync(start - file_start, end - file_start)
                self._sync_ns = time.monotonic_ns() - began_ns
                self._came = self._wanted - start
                self.timestamp_ms = timestamp_ms
                self.synced = end
                told()

    def _nap(self, wanted: int, limit_ns: int) -> bool:
        """Sleep until so much is wanted; False if the time was over before."""
        self._wake_at = wanted
        if self._wanted < wanted and not self._let_go:
            signals = select.poll()
            signals.register(self._wake_source, select.POLLIN)
            signals.poll(limit_ns / 1e6)
        self._wake_at = 0
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_source, SIGNALS_MAX)
        return self._wanted >= wanted

    @cython.cfunc
    def _follow_compiled(self, view: object, file_start: cython.longlong) -> cython.int:
        """The same; 0 or what the system calls the error."""
        buffer: Py_buffer
        base: cython.p_char
        limit: cython.longlong
        start: cython.longlong
        end: cython.longlong
        enough: cython.longlong
        first: cython.longlong
        began_ns: cython.longlong
        timestamp_ms: cython.longlong
        failed: cython.int = 0
        log: LogEnd = self._log
        PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
        base = cython.cast(cython.p_char, buffer.buf)
        limit = file_start + buffer.len
        with cython.nogil:
            while not read_shared(cython.address(self._let_go)):
                start = self.synced
                if read_shared(cython.address(self._wanted)) <= start:
                    if not self._nap_compiled(start + 1, IDLE_NS):
                        break
                enough = start + self._came
                if read_shared(cython.address(self._wanted)) < enough:
                    self._nap_compiled(enough, min(self._sync_ns, GATHER_NS_MAX))
                timestamp_ms = log.last_store_timestamp_ms
                end = read_shared(cython.address(self._wanted))
                if end > limit:
                    break
                if end > start:
                    began_ns = steady_ns()
                    first = start - file_start
                    first -= first % PAGE_SIZE
                    if msync(base + first, end - file_start - first, MS_SYNC) != 0:
                        failed = errno
                        break
                    self._sync_ns = steady_ns() - began_ns
                    self._came = read_shared(cython.address(self._wanted)) - start
                    self.timestamp_ms = timestamp_ms
                    write_shared(cython.address(self.synced), end)
                    write(self._tell, b"\0", 1)
        PyBuffer_Release(cython.address(buffer))
        return failed

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _nap_compiled(self, wanted: cython.longlong, limit_ns: cython.longlong) -> cython.bint:
        signals: cython.char[64]
        write_shared(cython.address(self._wake_at), wanted)
        if not read_shared(cython.address(self._let_go)):
            if read_shared(cython.address(self._wanted)) < wanted:
                wait_readable(self._wake_source, limit_ns)
        write_shared(cython.address(self._wake_at), 0)
        read(self._wake_source, signals, SIGNALS_MAX)
        return read_shared(cython.address(self._wanted)) >= wanted


def _signal_pipe() -> tuple[int, int]:
    """Bytes in it say that something happened. Neither side ever waits for the other."""
    source, sink = os.pipe()
    os.set_blocking(source, False)
    os.set_blocking(sink, False)
    return source, sink
