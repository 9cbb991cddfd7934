"""Power losses while a config file is saved again and again: what was saved is there, or something later."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ha.power import lose_power
from ha.shim import library, unavailable

from cometmq.errors import StoreError
from cometmq.store.json_files import JsonFile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a compiler"),
]

TIMES = int(os.environ.get("HA_TIMES", "1"))
MOMENTS_MAX = 45  # before, during and after each system call of three saves

# Texts grow and shrink, over several pages: a mixture of two of them is none.
WRITER = """
import json, sys
from pathlib import Path
from cometmq.store.json_files import JsonFile
file = JsonFile(Path(sys.argv[1]), synced=sys.argv[2] == "synced")
number = (file.load(json.loads) or {"number": 0})["number"]
while True:
    number += 1
    file.save(json.dumps({"number": number, "filling": "x" * (number * 977 % 9000)}))
    print(number, flush=True)
"""


def save_until_killed(store: Path, shadow: Path, how: str, moment: int) -> int:
    """The last number that was saved before the process was killed, in the middle of something."""
    environment = {**os.environ, "LD_PRELOAD": str(library()), "SHIM_KILL_AT": str(moment)}
    environment |= {"SHIM_ROOT": str(store), "SHIM_SHADOW": str(shadow)}
    command = [sys.executable, "-c", WRITER, str(store / "config" / "subscriptionGroup.json"), how]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    return max(map(int, done.stdout.split(b"\n")[:-1]), default=0)


def saved_number(store: Path) -> int:
    found = JsonFile(store / "config" / "subscriptionGroup.json").load(json.loads)
    return found["number"] if found else 0


def test_a_saved_file_survives_any_loss_of_power(tmp_path: Path) -> None:
    store, shadow = (tmp_path / "store").resolve(), tmp_path.resolve() / "shadow"
    store.mkdir()
    before = 0
    for moment in [*range(1, MOMENTS_MAX)] * TIMES:
        last = max(before, save_until_killed(store, shadow, "synced", moment))
        lose_power(store, shadow)
        before = saved_number(store)
        assert last <= before <= last + 1, moment


def test_a_file_that_is_not_synced_does_not(tmp_path: Path) -> None:
    """The simulated disk does lose what nobody has synced."""
    for number in range(100):
        store, shadow = (tmp_path / f"{number}").resolve(), tmp_path.resolve() / f"{number}-shadow"
        store.mkdir()
        last = save_until_killed(store, shadow, "careless", random.randint(1, MOMENTS_MAX))
        lose_power(store, shadow)
        try:
            if saved_number(store) < last:
                return
        except StoreError:
            return
    raise AssertionError("nothing was ever lost")
