"""The commit: records that were written become part of the log, and enter their queues in the same call.

Every send comes through here, one that comes alone pays for all of it, and code that was not in the processor's caches
costs several times what it does in a benchmark. So the common case is compiled and has its numbers beside it: the end
of the log moves (``LogEnd``), the queues stood exactly there and follow (``QueuesEnd``). CommitLog and Dispatch are
these two, with all that happens seldom (their members, and what compiled callers use, stand in commit_cy.pxd). Loop
thread; other threads may read the numbers.
"""

# mypy: ignore-errors

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.store.dispatch_cy import Dispatching
else:
    from cometmq.store.dispatch_cy import Dispatching

from cometmq.errors import StoreError


@cython.cclass
class LogEnd:
    """Where the log ends, and in which file."""

    def __init__(self) -> None:
        self.view = memoryview(b"")
        self.base = 0
        self.position = 0
        self.tell_at = 0
        self.last_store_timestamp_ms = 0

    def advance(self, end_position: cython.longlong) -> int:
        """Records up to this position of the current file are written; the new end offset."""
        return self.move(end_position)

    @cython.cfunc
    def move(self, end_position: cython.longlong) -> cython.longlong:
        self.position = end_position
        if end_position >= self.tell_at:
            self.tell_preparer()
        return self.base + end_position

    def tell_preparer(self) -> None:
        raise NotImplementedError


@cython.cclass
class QueuesEnd:
    """How much of the log is in its queues."""

    def __init__(self, commit_log: LogEnd, table: Dispatching) -> None:
        self.offset = 0
        self.confirmed: object = None
        self.on_append: object = None
        self._log_end = commit_log
        self._dispatcher = table

    def commit(self, end_position: cython.longlong) -> int:
        """Records up to this position of the log's current file are complete: dispatch them; the new end offset."""
        return self.complete_to(end_position)

    @cython.cfunc
    def complete_to(self, end_position: cython.longlong) -> cython.longlong:
        log: LogEnd = self._log_end
        start: cython.longlong = log.position
        end_offset: cython.longlong = log.move(end_position)
        if self.confirmed is None:
            self._appended(start, end_position)
        if self.on_append is not None:
            self.on_append()
        return end_offset

    @cython.cfunc
    def _appended(self, start: cython.longlong, end: cython.longlong) -> object:
        log: LogEnd = self._log_end
        table: Dispatching = self._dispatcher
        if self.offset != log.base + start:
            self.run()  # a new file was begun, or queues are behind
            return None
        try:
            table.enter_range(log.view, start, end, log.base)
            self.offset = log.base + end
        except StoreError as error:
            self.note_failure(error)
        log.last_store_timestamp_ms = table.last_store_timestamp_ms
        if table.woken:
            self.wake()
        return None

    def run(self) -> None:
        raise NotImplementedError

    def note_failure(self, error: StoreError) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        raise NotImplementedError
