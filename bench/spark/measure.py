"""Measuring a job: time, and CPU time of a tree of processes. Linux only; plain Python."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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


def stat_fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that ended."""
    try:
        return sum(int(field) for field in stat_fields(pid)[11:15]) / TICKS_PER_S
    except OSError:
        return 0.0


def tree_cpu_s(root: int) -> float:
    """CPU time of a process and of everything below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(stat_fields(int(entry.name))[1])
            except OSError:
                continue
    return sum(cpu_s(pid) for pid in parents if _is_below(pid, root, parents))


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (0, 1, root):
        pid = parents.get(pid, 0)
    return pid == root


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
