"""For tests: a real broker inside the process, a clock to turn, faults to inject, a proxy that cuts.

>>> from cometmq.testing import LocalBroker
>>> with LocalBroker() as broker:
...     broker.name_servers.startswith("127.0.0.1:")
True

Installed as a pytest plugin it offers the fixtures ``cometmq_broker`` and ``cometmq_client``. Names are loaded
when first used, so that the plugin costs a test run nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometmq.testing.clock import VirtualClock
    from cometmq.testing.faults import Fault
    from cometmq.testing.local_broker import LocalBroker
    from cometmq.testing.proxy import Proxy
    from cometmq.testing.waiting import eventually

_PLACES = {
    "Fault": "faults",
    "LocalBroker": "local_broker",
    "Proxy": "proxy",
    "VirtualClock": "clock",
    "eventually": "waiting",
}

__all__ = ["Fault", "LocalBroker", "Proxy", "VirtualClock", "eventually"]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cometmq.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cometmq.testing.{place}"), name)
    globals()[name] = value
    return value
