"""Totals of a broker since its start: plain integers on the hot paths, read by statistics and metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

LATENCY_BOUNDS_US = (
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
)


class Histogram:
    """Counts per latency class; the last class has no upper bound."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_US) + 1)
        self.total_us = 0

    def add(self, elapsed_us: int, times: int = 1) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_US, elapsed_us)] += times
        self.total_us += elapsed_us * times

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class BrokerCounters:
    puts: int = 0  # messages stored for clients
    put_bytes: int = 0  # as records
    puts_failed: int = 0
    gets_found: int = 0  # messages handed out (the original counts pulls that found something)
    gets_missed: int = 0  # pulls that found nothing
    messages_out: int = 0
    bytes_out: int = 0
    cold_reads: int = 0  # pulls whose pages were read in a thread first
    offsets_moved: int = 0
    put_times: Histogram = field(default_factory=Histogram)
    pull_times: Histogram = field(default_factory=Histogram)
