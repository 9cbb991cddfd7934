"""One message queue of a topic at a broker: what producers choose and consumers share out."""

from __future__ import annotations

from cometmq.protocol.message import MessageQueue as Queue

__all__ = ["Queue"]
