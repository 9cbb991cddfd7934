"""Ready-made pipelines: archive, replay, dlq, audit, funnel, doctor. Each is also a command ``cometmq pipe``."""

from __future__ import annotations

from cometmq.spark.pipes.archive import ArchiveResult, archive
from cometmq.spark.pipes.archive_compact import Compaction, compact_archive
from cometmq.spark.pipes.archive_proof import verify_archive
from cometmq.spark.pipes.audit import Audit, audit
from cometmq.spark.pipes.audit_report import report_html
from cometmq.spark.pipes.dlq import analyse_dlq, export_dlq, redrive_dlq
from cometmq.spark.pipes.doctor import doctor
from cometmq.spark.pipes.funnel import funnel
from cometmq.spark.pipes.replay import replay

__all__ = [
    "ArchiveResult",
    "Audit",
    "Compaction",
    "analyse_dlq",
    "archive",
    "audit",
    "compact_archive",
    "doctor",
    "export_dlq",
    "funnel",
    "redrive_dlq",
    "replay",
    "report_html",
    "verify_archive",
]
