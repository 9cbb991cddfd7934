"""Lives of a pipeline that end by SIGKILL: of the driver with all its processes, of its JVM or its Python alone, or of
single Python workers while the rest lives on. The next life starts while the present one runs, so a kill costs little.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from spark_kit import RunningBroker

from cometmq.protocol.message import Message
from cometmq.protocol.record_cy import encode_batch

DRIVER = Path(__file__).with_name("crash_driver.py")
WORKER_MODULE = "pyspark.worker"
BATCHES_MAX = 1  # that a life may do before its next kill
MOMENT_MAX_S = 1.5  # after that
BATCHES_S = 120.0
WORKER_KILLS = 0.9  # how often a kill hits a worker
FINISH_S = 600.0
FEED_ROWS = 20
FEED_PAUSE_S = 0.1


class Feeder:
    """Sends messages to a topic all the time; ``stop()`` tells how many."""

    def __init__(self, broker: RunningBroker, topic: str, queues: int) -> None:
        self._broker = broker
        self._topic = topic
        self._queues = queues
        self._ended = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._ended.wait(FEED_PAUSE_S):
            numbers = range(self.sent, self.sent + FEED_ROWS)
            items = [Message(self._topic, b"body-%d" % number, keys=f"k{number}") for number in numbers]
            self._broker.send(self._topic, encode_batch(items), turn % self._queues, batch=True)
            self.sent += FEED_ROWS
            turn += 1

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self.sent


class Life:
    """One driver process with all its children."""

    def __init__(self, arguments: list[str], errors: Path) -> None:
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, str(DRIVER), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def begin(self, order: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n"
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def finish(self) -> bool:
        """Wait for the end; whether everything was done."""
        timer = threading.Timer(FINISH_S, self.kill)
        timer.start()
        assert self._process.stdout is not None
        lines = self._process.stdout.readlines()
        timer.cancel()
        self.kill()
        return "finished\n" in lines

    def kill_one(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Nothing of the session is left afterwards: driver, JVM, and workers, which have groups of their own."""
        for pid, _ in [(self._process.pid, []), *self._members()]:
            self.kill_one(pid)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def part(self, what: str) -> int:
        """The process id of the JVM or of the Python driver."""
        if what == "python":
            return self._process.pid
        return next(pid for pid, words in self._members() if words[0].endswith("java"))

    def workers(self) -> list[int]:
        """Python workers: children of the daemon, under its own command line."""
        daemons = [pid for pid, words in self._members() if WORKER_MODULE in words]
        return [pid for pid in daemons if _parent(pid) in daemons]

    def _members(self) -> Iterator[tuple[int, list[str]]]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    if os.getsid(int(entry.name)) == self._process.pid:
                        yield int(entry.name), (entry / "cmdline").read_text().split("\0")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Executioner:
    """Runs life after life and kills at random moments until it was often enough; then one life may finish.

    A moment is some batches and a part of a second away, so that slow machines come to do work, too. ``commits`` is
    where Spark notes batches.
    """

    def __init__(self, arguments: list[str], commits: Path, errors: Path, seed: int) -> None:
        self._arguments = arguments
        self._commits = commits
        self._errors = errors
        self._rng = random.Random(seed)
        self._spare = self._new()
        self.kills: Counter[str] = Counter()
        self.lives = 0

    def _new(self) -> Life:
        return Life(self._arguments, self._errors)

    def kill_often(self, count: int) -> None:
        while self.kills.total() < count:
            life, self._spare = self._spare, self._new()
            self.lives += 1
            assert self.lives < 3 * count + 10, f"lives end by themselves: {self._last_errors()}"
            life.begin("run")
            try:
                self._end(life, count)
            finally:
                life.kill()
            print(f"{self._arguments[0]}: life {self.lives}, kills {dict(self.kills)}", flush=True)

    def _end(self, life: Life, count: int) -> None:
        """Kill workers of a life, then the life itself."""
        while self.kills.total() < count:
            self._wait_for_moment(life)
            if life.is_over:
                return
            if self._rng.random() >= WORKER_KILLS or self.kills.total() == count - 1:
                break
            self._kill_worker(life)
        what = self._rng.choice(("all", "jvm", "python"))
        if what != "all":
            life.kill_one(life.part(what))
            time.sleep(self._rng.uniform(0.0, 0.3))  # what is left goes on alone for a moment
        life.kill()
        self.kills[what] += 1

    def _kill_worker(self, life: Life) -> None:
        """A life that has just begun has none yet: wait for one."""
        deadline = time.monotonic() + BATCHES_S
        while not life.is_over and time.monotonic() < deadline:
            workers = life.workers()
            if workers:
                life.kill_one(self._rng.choice(workers))
                self.kills["worker"] += 1
                return
            time.sleep(0.02)

    def _wait_for_moment(self, life: Life) -> None:
        deadline = time.monotonic() + BATCHES_S
        wanted = self._last_batch() + self._rng.randint(0, BATCHES_MAX)
        while self._last_batch() < wanted and not life.is_over and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self._rng.uniform(0.0, MOMENT_MAX_S))

    def _last_batch(self) -> int:
        """The number of the last batch that Spark has noted as done."""
        names = os.listdir(self._commits) if self._commits.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def finish(self) -> None:
        self._spare.begin("finish")
        assert self._spare.finish(), self._last_errors()

    def _last_errors(self) -> str:
        return self._errors.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self._spare.kill()
