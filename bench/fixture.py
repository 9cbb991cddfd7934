"""How long 100 tests take that each use an empty broker: ``python -m bench.fixture [--tests 100] [--rounds 3]``.

Runs pytest in a process of its own on a generated file; every test gets a broker and a client from the fixtures, sends
a message and sees it stored. Elapsed time counts, start of Python and pytest included; the bar is 10 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR_S = 10.0
TESTS = """
import pytest
from cometmq import Message

@pytest.mark.parametrize("n", range({count}))
async def test_one(n, cometmq_broker, cometmq_client):
    await cometmq_client.producer("t").send(Message("orders", b"x"))
    assert len(await cometmq_broker.wait_for("orders")) == 1
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fixture", description=__doc__)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    elapsed = [run(args.tests) for _ in range(args.rounds)]
    best = min(elapsed)
    print(f"best {best:.2f} s, bar {BAR_S:g} s: {'reached' if best < BAR_S else 'missed'}")
    return 0 if best < BAR_S else 1


def run(count: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "test_many.py").write_text(TESTS.format(count=count))
        cpu_before, began = sum(os.times()[2:4]), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", directory],
            check=True, stdout=subprocess.DEVNULL, cwd=directory,
        )  # fmt: skip
        elapsed_s, cpu_s = time.perf_counter() - began, sum(os.times()[2:4]) - cpu_before
    print(f"{count} tests with a broker each: {elapsed_s:.2f} s elapsed, {cpu_s:.2f} s CPU", flush=True)
    return elapsed_s


if __name__ == "__main__":
    sys.exit(main())
