"""PageReader: a thread that brings pieces of mapped files into memory while nobody waits for them.

It gets addresses through a pipe and never needs the interpreter lock (`residency_cy.read_jobs`), so the loop does not
notice it. The views are kept here until it is done with them: the mappings stay.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from array import array
from collections import deque

from cometmq.store.residency_cy import JOB, job_of, read_jobs

PARTS_MAX = 16  # that wait at a time; more is left to those who will want them
READER_NICENESS = 10


class PageReader:
    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()  # handed over, perhaps not done
        self._done = array("q", [0])
        self._taken_back = 0
        self._pipe = -1
        self._thread: threading.Thread | None = None

    def read(self, part: memoryview) -> bool:
        """Have a piece read soon; False if too many wait. Loop thread."""
        self._take_back()
        if len(self._parts) >= PARTS_MAX:
            return False
        if self._thread is None:
            self._start()
        self._parts.append(part)
        os.write(self._pipe, JOB.pack(*job_of(part)))
        return True

    @property
    def done(self) -> int:
        """How many pieces were read."""
        return self._done[0]

    @property
    def idle(self) -> bool:
        """Nothing waits; also, nothing is held any more."""
        self._take_back()
        return not self._parts

    def _take_back(self) -> None:
        while self._taken_back < self._done[0]:
            self._parts.popleft()
            self._taken_back += 1

    def _start(self) -> None:
        source, self._pipe = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(source,), name="page-reader", daemon=True)
        self._thread.start()

    def _run(self, source: int) -> None:
        step_back()
        read_jobs(source, self._done)
        os.close(source)

    def stop(self) -> None:
        """Wait for what it has begun."""
        if self._thread is not None:
            os.close(self._pipe)
            self._thread.join()
            self._thread = None
        self._parts.clear()
        self._taken_back = self._done[0]


def step_back() -> None:
    """In a thread that reads for consumers far behind and has no lock that the loop needs: the loop comes first."""
    if sys.platform == "linux":  # elsewhere a thread has no niceness of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), READER_NICENESS)
