"""Funnel: how many of the users who did the first step did the next ones, per window of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE_DEFAULT = "1 minute"


def funnel(
    events: DataFrame,
    steps: Sequence[str],
    *,
    window: str = "1 second",
    late: str = LATE_DEFAULT,
    step_column: str = "tags",
    user_column: str = "keys",
    time_column: str = "bornTimestamp",
) -> DataFrame:
    """Counts of users per step and window, on batch and streaming frames; a stream drops events later than ``late``.

    A batch is counted exactly. A stream is counted with a sketch (within a few per cent) that needs little state; ask
    for the windows of a topic as a batch, again and again, where every user counts.

    With the registration example: ``funnel(df, ["register", "sms", "push", "coupon"])`` on a topic whose tags are the
    steps and whose keys are the users.
    """
    from pyspark.sql import functions as f

    counted = events.where(f.col(step_column).isin(list(steps))).withWatermark(time_column, late)
    windows = counted.groupBy(f.window(time_column, window))
    distinct = f.approx_count_distinct if events.isStreaming else f.count_distinct
    columns = [distinct(f.when(f.col(step_column) == step, f.col(user_column))).alias(step) for step in steps]
    return windows.agg(*columns).select(f.col("window.start").alias("start"), *steps)
