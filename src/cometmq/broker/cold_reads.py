"""ColdReads: pages that a pull waits for are read by threads that never take the interpreter lock.

A thread of an executor takes the lock when it is done. If it is put aside while it has it, which is likely when a
consumer far behind keeps all processors busy, the loop stands still. These threads get addresses through a pipe and
answer with a byte in another one (`residency_cy.read_jobs`), which the loop watches. Loop thread only.
"""

from __future__ import annotations

import asyncio
import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence

from cometmq.store.page_reader import step_back
from cometmq.store.residency_cy import JOB, job_of, read_jobs

LANES = 4  # threads: so many pulls wait for the disk at a time
JOBS_TOLD_MAX = 128  # 2 KiB: they and their answers fit in a pipe of any size

Done = Callable[[], None]


class ColdReads:
    def __init__(self) -> None:
        self._lanes: list[_Lane] = []

    def read(self, parts: Sequence[memoryview], done: Done) -> None:
        """Have pieces of mapped files read; ``done`` is called on the loop."""
        if not parts:
            asyncio.get_running_loop().call_soon(done)
            return
        lane = min(self._lanes, key=len, default=None)
        if lane is None or (len(lane) and len(self._lanes) < LANES):
            lane = _Lane(len(self._lanes))
            self._lanes.append(lane)
        lane.read(parts, done)

    def __len__(self) -> int:
        """Pieces that are being read."""
        return sum(map(len, self._lanes))

    def stop(self) -> None:
        """Wait for what was begun; nobody is told any more."""
        for lane in self._lanes:
            lane.stop()
        self._lanes = []


class _Lane:
    """One thread. Pieces are read in their order; views are held until then, so the mappings stay."""

    def __init__(self, number: int) -> None:
        self._told: deque[tuple[memoryview, Done | None]] = deque()  # the thread knows of them
        self._later: deque[tuple[memoryview, Done | None]] = deque()
        source, self._jobs = os.pipe()
        self._answers, answers = os.pipe()
        self._thread = threading.Thread(
            target=_run, args=(source, answers), name=f"cold-reads-{number}", daemon=True
        )
        self._thread.start()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._answers, self._answered)

    def __len__(self) -> int:
        return len(self._told) + len(self._later)

    def read(self, parts: Sequence[memoryview], done: Done) -> None:
        self._later += [(part, None) for part in parts[:-1]]
        self._later.append((parts[-1], done))
        self._tell()

    def _tell(self) -> None:
        """As much as surely fits in the pipe: the loop must not wait for the thread."""
        jobs = []
        while self._later and len(self._told) < JOBS_TOLD_MAX:
            job = self._later.popleft()
            self._told.append(job)
            jobs.append(JOB.pack(*job_of(job[0])))
        if jobs:
            os.write(self._jobs, b"".join(jobs))

    def _answered(self) -> None:
        for _ in os.read(self._answers, JOBS_TOLD_MAX):
            _, done = self._told.popleft()
            if done is not None:
                self._loop.call_soon(done)  # if it raises the others are told all the same
        self._tell()

    def stop(self) -> None:
        self._loop.remove_reader(self._answers)
        os.close(self._jobs)
        self._thread.join()
        os.close(self._answers)
        self._told.clear()
        self._later.clear()


def _run(source: int, answers: int) -> None:
    step_back()
    read_jobs(source, array("q", [0]), answers)
    os.close(source)
    os.close(answers)
