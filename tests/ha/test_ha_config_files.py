"""Power losses while a config file is saved again and again: what was saved is there, or something later."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from ha.power import lose_power
from ha.shim import library, unavailable

from cometmq.errors import StoreError
from cometmq.store.json_files import JsonFile

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a compiler")

LOSSES = int(os.environ.get("HA_TIMES", "1")) * 12
SAVES_MAX = 40

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


def save_until_killed(store: Path, shadow: Path, how: str) -> int:
    """The last number that was saved before the process was killed, in the middle of something."""
    environment = {**os.environ, "LD_PRELOAD": str(library())}
    environment |= {"SHIM_ROOT": str(store), "SHIM_SHADOW": str(shadow)}
    command = [sys.executable, "-c", WRITER, str(store / "config" / "subscriptionGroup.json"), how]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(random.randint(1, SAVES_MAX)):
            last = int(process.stdout.readline())
        process.kill()
        return max([last, *map(int, process.stdout.read().split())])


def saved_number(store: Path) -> int:
    found = JsonFile(store / "config" / "subscriptionGroup.json").load(json.loads)
    return found["number"] if found else 0


def test_a_saved_file_survives_any_loss_of_power(tmp_path: Path) -> None:
    store, shadow = (tmp_path / "store").resolve(), tmp_path.resolve() / "shadow"
    store.mkdir()
    for _ in range(LOSSES):
        last = save_until_killed(store, shadow, "synced")
        lose_power(store, shadow)
        assert last <= saved_number(store) <= last + 1


def test_a_file_that_is_not_synced_does_not(tmp_path: Path) -> None:
    """The simulated disk does lose what nobody has synced."""
    for number in range(100):
        store, shadow = (tmp_path / f"{number}").resolve(), tmp_path.resolve() / f"{number}-shadow"
        store.mkdir()
        last = save_until_killed(store, shadow, "careless")
        lose_power(store, shadow)
        try:
            if saved_number(store) < last:
                return
        except StoreError:
            return
    raise AssertionError("nothing was ever lost")
