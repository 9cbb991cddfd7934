"""Exactly once over SIGKILL: drivers die at random moments, the data proves that nothing is lost and nothing doubled.

COMETMQ_KILLS sets the number of kills of each test (3); COMETMQ_SEED the moments.
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
from pathlib import Path
from typing import Any

import pytest
from spark_kit import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("COMETMQ_KILLS", "3"))
SEED = int(os.environ.get("COMETMQ_SEED", "1"))
MESSAGES = 4000
MOMENT_MAX_S = 12.0
DRIVER = Path(__file__).with_name("crash_driver.py")


def run_driver(*arguments: str, kill_after_s: float | None = None) -> bool:
    """One run; True if it came to its end. The whole process group dies: driver, JVM, workers."""
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = [process.stdout.readline()]
    assert lines == ["started\n"]
    timer = threading.Timer(kill_after_s or 0, kill_group, (process.pid,))
    if kill_after_s is not None:
        timer.start()
    lines += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    timer.cancel()
    kill_group(process.pid)  # a JVM outlives its driver by a moment
    return "finished\n" in lines


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def crash_and_finish(what: str, *arguments: str) -> None:
    rng = random.Random(SEED)
    kills = 0
    while kills < KILLS:
        if run_driver(what, *arguments, kill_after_s=rng.uniform(0.5, MOMENT_MAX_S)):
            break  # done before the moment came: nothing is left to kill
        kills += 1
    assert kills, "no run was killed"
    assert run_driver(what, *arguments)
    print(f"{what}: {kills} kills, seed {SEED}, {time.strftime('%H:%M:%S')}")


def test_archive_is_exactly_once(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    import pyarrow.dataset

    from cometmq.spark.pipes import verify_archive

    root = tmp_path / "lake"
    broker.fill(topic, MESSAGES)
    crash_and_finish("archive", broker.name_server, topic, str(root), "")
    assert verify_archive(root) == []
    files = [str(path) for path in root.glob("topic=*/date=*/*.parquet")]
    bodies: list[Any] = pyarrow.dataset.dataset(files).to_table(columns=["body"]).column("body").to_pylist()
    assert Counter(bodies) == Counter(b"body-%d" % number for number in range(MESSAGES))


def test_sink_is_exactly_once(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    target = f"{topic}-copy"
    broker.create_topic(target, 4)
    broker.fill(topic, MESSAGES)
    crash_and_finish("sink", broker.name_server, topic, target, str(tmp_path / "checkpoint"))
    assert Counter(broker.bodies(target)) == Counter(b"body-%d" % number for number in range(MESSAGES))
