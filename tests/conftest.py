"""What all tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def run() -> Any:
    """Run a coroutine to its end with a limit of time: ``run(main())``."""

    def run_it(main: Coroutine[Any, Any, Any], timeout: float = 30) -> Any:
        return asyncio.run(asyncio.wait_for(main, timeout))

    return run_it
