"""Builds ``shim.c`` with the C compiler of this machine: disks that forget what was not synced, or fail."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path


@cache
def unavailable() -> str:
    """Why there can be no shim here; empty if there can."""
    return "" if shutil.which("cc") else "no C compiler (cc) for the shim between a broker and its disk"


@cache
def library() -> Path:
    source = Path(__file__).with_name("shim.c")
    target = Path(tempfile.mkdtemp(prefix="cometmq-shim-")) / "shim.so"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(target), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return target
