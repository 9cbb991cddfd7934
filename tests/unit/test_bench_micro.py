"""The benchmark that needs nothing but the package still runs: it calls compiled parts by names that may change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_part_has_a_cost() -> None:
    command = [sys.executable, "-m", "bench.micro", "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    costs = json.loads(run.stdout)["us"]
    assert {"send 128 B", "send 1024 B", "scan records"} <= set(costs)
    assert all(cost["best"] > 0 for cost in costs.values())
