"""CometMQ: a message broker of the RocketMQ 4.9 design, and its client."""

from __future__ import annotations

from cometmq import _cython as _cython  # honours COMETMQ_PURE before any compiled module is imported
from cometmq._version import __version__

__all__ = ["__version__"]
