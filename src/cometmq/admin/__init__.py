"""Administration of a cluster as typed functions: the one backend of the command line and the dashboard."""

from __future__ import annotations

from cometmq.admin.admin import Admin
from cometmq.admin.topics import TopicSettings

__all__ = ["Admin", "TopicSettings"]
