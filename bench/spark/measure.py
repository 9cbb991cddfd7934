"""Measuring a job: time, and CPU time of its processes and of the broker. Linux only; plain Python."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bench.processes import cpu_s, tree_cpu_s


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table. Rates are per second; CPU is of Spark (JVM and workers) and of the broker."""

    row: str
    side: str
    rows_per_s: float = 0.0
    spark_cpu_us: float = 0.0  # a row
    broker_cpu_us: float = 0.0
    batch_ms: float = 0.0  # micro-batches only: median

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measured(row: str, side: str, count: int, broker_pid: int, action: Callable[[], Any]) -> Measure:
    """Run an action that handles so many rows, in processes below this one."""
    spark, broker, began = tree_cpu_s(os.getpid()), cpu_s(broker_pid), time.monotonic()
    action()
    seconds = time.monotonic() - began
    return Measure(
        row,
        side,
        rows_per_s=count / seconds,
        spark_cpu_us=(tree_cpu_s(os.getpid()) - spark) / count * 1e6,
        broker_cpu_us=(cpu_s(broker_pid) - broker) / count * 1e6,
    )


def middle(measures: list[Measure]) -> Measure:
    """Medians of several runs of one row, of each figure by itself."""
    figures = ("rows_per_s", "spark_cpu_us", "broker_cpu_us", "batch_ms")
    medians = {name: statistics.median(getattr(measure, name) for measure in measures) for name in figures}
    return Measure(measures[0].row, measures[0].side, **medians)


def together(measures: list[Measure]) -> Measure:
    """Several runs of one row as if they were one."""
    return Measure(
        measures[0].row,
        measures[0].side,
        rows_per_s=statistics.harmonic_mean([measure.rows_per_s for measure in measures]),
        spark_cpu_us=statistics.mean(measure.spark_cpu_us for measure in measures),
        broker_cpu_us=statistics.mean(measure.broker_cpu_us for measure in measures),
    )
