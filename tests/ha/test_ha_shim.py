"""The disk that forgets (``shim.c``), by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ha import shim

pytestmark = pytest.mark.skipif(bool(shim.unavailable()), reason=shim.unavailable() or "there is a compiler")

PENDING_MAX = 4096  # in shim.c
SYNC_DIRECTORY = "import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDONLY))"


def test_of_endless_removals_the_oldest_half_reaches_the_disk(tmp_path: Path) -> None:
    """A replica that begins anew after half an hour removes more files than the list has room for."""
    store, shadow = tmp_path / "store", tmp_path / "shadow"
    for directory in (store, shadow):
        directory.mkdir()
    for number in range(PENDING_MAX + 1):
        (shadow / f"{number:04}").touch()
    (store / f"{PENDING_MAX:04}").touch()
    waiting = [f"U\t{store}/{number:04}\n" for number in range(PENDING_MAX)]
    (tmp_path / "shadow.pending").write_text("".join(waiting))
    environment = {"LD_PRELOAD": str(shim.library()), "SHIM_ROOT": str(store), "SHIM_SHADOW": str(shadow)}
    command = [sys.executable, "-c", "import os, sys; os.unlink(sys.argv[1])", store / f"{PENDING_MAX:04}"]
    subprocess.run(command, env=os.environ | environment, check=True)
    half = PENDING_MAX // 2
    assert sorted(path.name for path in shadow.iterdir()) == [f"{n:04}" for n in range(half, PENDING_MAX + 1)]
    assert len((tmp_path / "shadow.pending").read_text().splitlines()) == half + 1


def test_what_a_killed_process_was_doing_counts_if_it_got_there(tmp_path: Path) -> None:
    store, shadow = tmp_path / "store", tmp_path / "shadow"
    for directory in (store, shadow):
        directory.mkdir()
    for name in ("removed", "kept", "moved"):
        (shadow / name).touch()
    (store / "kept").touch()
    (store / "here").touch()
    lines = [f"u\t{store}/removed", f"u\t{store}/kept", f"r\t{store}/moved\t{store}/here"]
    (tmp_path / "shadow.pending").write_text("\n".join(lines) + "\n")
    environment = {"LD_PRELOAD": str(shim.library()), "SHIM_ROOT": str(store), "SHIM_SHADOW": str(shadow)}
    subprocess.run([sys.executable, "-c", SYNC_DIRECTORY, store], env=os.environ | environment, check=True)
    assert sorted(path.name for path in shadow.iterdir()) == ["here", "kept"]
    assert (tmp_path / "shadow.pending").read_text() == ""
