"""A short run of the fuzzer with each twin: it works, and finds nothing. The long run is ``make fuzz``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from twins import compiled_path

ROOT = Path(__file__).resolve().parents[3]
COMPILED = [
    "cometmq.protocol.frame_cy",
    "cometmq.protocol.record_cy",
    "cometmq.store.scan_cy",
    "cometmq.broker.plain_send_cy",
]


@pytest.mark.parametrize(("twin", "count"), [("py", 6_000), ("c", 20_000), ("both", 4_000)])
def test_mutated_frames_and_records_do_no_harm(twin: str, count: int) -> None:
    if twin != "py" and None in map(compiled_path, COMPILED):
        pytest.skip("the extensions are not compiled, or their sources are newer; run: make ext")
    command = [sys.executable, "-m", "bench.fuzz", f"--count={count}", "--seed=7", f"--twin={twin}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "mutations in" in run.stdout
    assert "left out" not in run.stdout


def test_a_guard_page_ends_a_process_that_reads_too_far() -> None:
    program = (
        "import ctypes; from bench.fuzz.guarded import GuardedMemory; view = GuardedMemory(100).place(b'abc');"
        "start = ctypes.addressof(ctypes.c_char.from_buffer(view)); ctypes.string_at(start, 3);"
        "print('read', flush=True); ctypes.string_at(start, 4)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stdout == "read\n"
    assert run.returncode < 0
