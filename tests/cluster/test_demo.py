"""The demo as a process: a short telling to its end, and Ctrl-C in the middle of one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "cometmq.cli.main", "demo", "--quick")
END_LIMIT_S = 100
ROW = re.compile(r"^ *(register|sms|push|coupon) +(\d+) +(\d+) +(\d+) +(\d+)$", re.MULTILINE)
PID = re.compile(r"pid (\d+)")


def start(directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(directory)}
    return subprocess.Popen(
        COMMAND,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A shell that runs the tests in the background lets them ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_demo_counts_every_user_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = start(tmp_path)
    output, errors = demo.communicate(timeout=END_LIMIT_S)
    assert demo.returncode == 0, output + errors
    assert "Traceback" not in errors
    assert "\x1b" not in output  # plain text where there is no terminal
    assert "Nothing is lost" in output
    assert "SIGKILL for the sms consumer" in output
    counts = {step: [int(text) for text in numbers] for step, *numbers in ROW.findall(output)}
    assert set(counts) == {"register", "sms", "push", "coupon"}
    for users, messages, lost, twice in counts.values():
        assert users > 0
        assert lost == 0
        assert twice == messages - users
    pids = [int(text) for text in PID.findall(output)]
    assert len(pids) == 6  # broker, three consumers, the victim once more, its successor
    assert all(is_gone(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    seen = ""
    for line in demo.stdout:
        seen += line
        if "consumers sms pid" in line:
            break
    demo.send_signal(number)
    rest, errors = demo.communicate(timeout=END_LIMIT_S)
    assert demo.returncode in (130, 143), seen + rest + errors
    assert "Traceback" not in errors
    deadline = time.monotonic() + END_LIMIT_S
    pids = [int(text) for text in PID.findall(seen)]
    assert len(pids) == 4
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
