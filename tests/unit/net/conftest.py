"""Network tests run with every kind of transport that a server may have.

``pump``: the compiled pump on uvloop; ``source``: its source twin; ``loop``: no pump, the transports of asyncio's
own loop (as on systems without epoll).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from twins import load_twin

from cometmq.net import server

try:
    import uvloop
except ImportError:  # Windows
    uvloop = None

KINDS = ["loop", "pump", "source"] if uvloop is not None and server.Pump is not None else ["loop"]


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a coroutine to its end with a limit of time: ``run(main())``."""
    loop_factory = asyncio.new_event_loop if request.param == "loop" else uvloop.new_event_loop
    pump = {"loop": None, "pump": server.Pump}
    if request.param == "source":
        pump["source"] = load_twin("cometmq.net.pump_cy", "py").Pump
    monkeypatch.setattr(server, "Pump", pump[request.param])

    def run_it(main: Coroutine[Any, Any, Any], timeout: float = 30) -> Any:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(asyncio.wait_for(main, timeout))

    return run_it
