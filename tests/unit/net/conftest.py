"""Network tests run on the loop of asyncio and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

try:
    import uvloop

    LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
except ImportError:  # Windows
    LOOPS = {"asyncio": asyncio.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Any:
    """Run a coroutine to its end with a limit of time: ``run(main())``."""

    def run_it(main: Coroutine[Any, Any, Any], timeout: float = 30) -> Any:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(main, timeout))

    return run_it
