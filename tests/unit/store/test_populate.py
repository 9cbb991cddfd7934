"""Pages ahead of the writer: ready before it comes, in small steps when it writes little."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.store import populate
from cometmq.store.file_ops import FileOps
from cometmq.store.populate import GENTLE_BYTES_PER_S, GENTLE_STEP, Preparer
from cometmq.store.residency_cy import is_resident

FILE_SIZE = 256 << 20  # so long that the next file is not made yet
AHEAD_SIZE = 4 << 20
DEADLINE_S = 10.0


class Log:
    """One file, and a preparer whose clock stands until it is moved."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{0:020d}"
        descriptor = FileOps().create(self.path, FILE_SIZE)
        self.mapped = mmap.mmap(descriptor, FILE_SIZE)
        os.close(descriptor)
        self.view = memoryview(self.mapped)
        self.now_s = 100.0
        self.preparer = Preparer(directory, FILE_SIZE, AHEAD_SIZE, FileOps(), clock=lambda: self.now_s)
        self.preparer.start()

    def writer_at(self, position: int) -> None:
        self.preparer.advance(self.path, 0, self.view, position, 0)

    def ready(self, start: int, end: int) -> bool:
        return is_resident(self.view[start:end])

    def close(self) -> None:
        self.preparer.stop()
        self.view.release()
        self.mapped.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.005)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what was made ready, one system call each."""
    sizes: list[int] = []
    real = populate.make_ready

    def noted(part: memoryview, step: int) -> None:
        real(part, step)
        sizes.extend(min(step, len(part) - at) for at in range(0, len(part), step))

    monkeypatch.setattr(populate, "make_ready", noted)
    return sizes


def test_pages_ahead_of_a_writer_that_begins_are_ready(log: Log, steps: list[int]) -> None:
    log.writer_at(0)
    wait_for(lambda: sum(steps) == AHEAD_SIZE)
    assert log.ready(0, AHEAD_SIZE)
    assert set(steps) == {GENTLE_STEP}  # it is not fast yet
    log.close()


@pytest.mark.parametrize(
    ("seconds", "step"), [(60.0, GENTLE_STEP), ((1 << 20) / (2 * GENTLE_BYTES_PER_S), 1 << 20)]
)
def test_a_slow_writer_gets_its_pages_in_small_steps_and_a_fast_one_at_once(
    log: Log, steps: list[int], seconds: float, step: int
) -> None:
    log.writer_at(0)
    wait_for(lambda: sum(steps) == AHEAD_SIZE)
    steps.clear()
    log.now_s += seconds
    log.writer_at(1 << 20)
    wait_for(lambda: sum(steps) == 1 << 20)
    assert set(steps) == {step}
    assert log.ready(0, AHEAD_SIZE + (1 << 20))
    log.close()


def test_what_the_writer_wrote_stays(log: Log, steps: list[int]) -> None:
    """The thread may come later than the writer; it only makes pages ready, it never writes."""
    log.writer_at(0)
    wait_for(lambda: sum(steps) == AHEAD_SIZE)
    start = AHEAD_SIZE + 100
    log.view[start : start + 5] = b"hello"
    log.now_s += 60
    log.writer_at(1 << 20)
    wait_for(lambda: sum(steps) == AHEAD_SIZE + (1 << 20))
    assert bytes(log.view[start : start + 5]) == b"hello"
    log.close()


def test_a_new_file_has_its_length_on_disk_before_its_name(tmp_path: Path) -> None:
    calls: list[str] = []

    class Watched(FileOps):
        def sync_length(self, descriptor: int) -> None:
            assert os.fstat(descriptor).st_size == FILE_SIZE
            calls.append("length")
            super().sync_length(descriptor)

        def sync_directory(self, path: Path | str) -> None:
            calls.append("name")
            super().sync_directory(path)

    populate.create_log_file(tmp_path, 0, FILE_SIZE, Watched()).mapped.close()
    assert calls == ["length", "name"]
