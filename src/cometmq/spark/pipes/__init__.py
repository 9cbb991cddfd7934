"""Ready-made pipelines: archive, replay, dlq, funnel, doctor. Each is also a command ``cometmq pipe``."""

from __future__ import annotations

from cometmq.spark.pipes.archive import ArchiveResult, archive, verify_archive
from cometmq.spark.pipes.dlq import analyse_dlq, export_dlq, redrive_dlq
from cometmq.spark.pipes.doctor import doctor
from cometmq.spark.pipes.funnel import funnel
from cometmq.spark.pipes.replay import replay

__all__ = [
    "ArchiveResult",
    "analyse_dlq",
    "archive",
    "doctor",
    "export_dlq",
    "funnel",
    "redrive_dlq",
    "replay",
    "verify_archive",
]
