"""The data pipeline on Spark: sources ``rocketmq`` and ``rocketmq-store``, a sink, and ready-made pipelines.

Importing this package is cheap; Spark and Arrow are imported by what needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometmq.spark.loading import load as load
    from cometmq.spark.pipes.archive import archive as archive
    from cometmq.spark.pipes.replay import replay as replay
    from cometmq.spark.progress import attach_progress as attach_progress
    from cometmq.spark.sessions import session as session

_HOMES = {
    "archive": "cometmq.spark.pipes",
    "load": "cometmq.spark.loading",
    "replay": "cometmq.spark.pipes",
    "session": "cometmq.spark.sessions",
    "attach_progress": "cometmq.spark.progress",
}

__all__ = ["archive", "attach_progress", "load", "replay", "session"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
