"""What all tests share."""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

try:
    import uvloop
except ImportError:  # Windows
    uvloop = None

# In CI the property tests try the same examples every time; at a desk they look for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


ARCHIVES = {"crash": "crash-torn-cqbehind", "torn": "crash-torn-cqbehind", "cqbehind": "crash-torn-cqbehind"}


@pytest.fixture(scope="session")
def golden_originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Golden stores unpacked once; tests get copies."""
    root = tmp_path_factory.mktemp("golden")

    def original(name: str) -> Path:
        if not (root / name).exists():
            archive = GOLDEN / "store-4.9.7" / f"{ARCHIVES.get(name, name)}.tar.xz"
            with tarfile.open(archive) as tar:
                tar.extractall(root, filter="data")
        return root / name

    return original


@pytest.fixture
def golden_store(tmp_path: Path, golden_originals: Callable[[str], Path]) -> Callable[[str], Path]:
    """A fresh copy of a store that the Java broker wrote: ``golden_store("clean")`` is its root directory."""

    def copy(name: str) -> Path:
        shutil.copytree(golden_originals(name), tmp_path / "golden" / name, dirs_exist_ok=True)
        return tmp_path / "golden" / name

    return copy


@pytest.fixture
def run() -> Any:
    """Run a coroutine to its end with a limit of time, on the loop that brokers have: ``run(main())``."""
    loop_factory = uvloop.new_event_loop if uvloop is not None else None

    def run_it(main: Coroutine[Any, Any, Any], timeout: float = 30) -> Any:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(asyncio.wait_for(main, timeout))

    return run_it
