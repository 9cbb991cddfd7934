"""Progress of Spark jobs on a terminal: one line that tells tasks done, rewritten in place. Nothing elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REDRAW_INTERVAL_S = 0.5
CLEAR_LINE = "\r\x1b[K"


@contextmanager
def task_progress(spark: SparkSession, what: str, out: TextIO | None = None) -> Iterator[None]:
    """Show what Spark is busy with until the block ends."""
    out = sys.stderr if out is None else out
    if not out.isatty():
        yield
        return
    ended = threading.Event()
    drawer = threading.Thread(target=_draw, args=(spark.sparkContext.statusTracker(), what, out, ended))
    drawer.start()
    try:
        yield
    finally:
        ended.set()
        drawer.join()
        out.write(CLEAR_LINE)
        out.flush()


def _draw(tracker: Any, what: str, out: TextIO, ended: threading.Event) -> None:
    while not ended.wait(REDRAW_INTERVAL_S):
        out.write(f"{CLEAR_LINE}{what}: {progress_text(tracker)}")
        out.flush()


def progress_text(tracker: Any) -> str:
    """Stages that run, with their tasks. Old stages are forgotten by the tracker and then say nothing."""
    known = (tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds())
    stages = [stage for stage in known if stage is not None]
    if not stages:
        return "planning"
    return ", ".join(f"{stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages)
