"""What all tests share."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


ARCHIVES = {"crash": "crash-torn-cqbehind", "torn": "crash-torn-cqbehind", "cqbehind": "crash-torn-cqbehind"}


@pytest.fixture
def golden_store(tmp_path: Path) -> Callable[[str], Path]:
    """A fresh copy of a store that the Java broker wrote: ``golden_store("clean")`` is its root directory."""

    def extract(name: str) -> Path:
        archive = GOLDEN / "store-4.9.7" / f"{ARCHIVES.get(name, name)}.tar.xz"
        with tarfile.open(archive) as tar:
            wanted = [member for member in tar if member.name.split("/")[0] == name]
            tar.extractall(tmp_path / "golden", members=wanted, filter="data")
        return tmp_path / "golden" / name

    return extract


@pytest.fixture
def run() -> Any:
    """Run a coroutine to its end with a limit of time: ``run(main())``."""

    def run_it(main: Coroutine[Any, Any, Any], timeout: float = 30) -> Any:
        return asyncio.run(asyncio.wait_for(main, timeout))

    return run_it
