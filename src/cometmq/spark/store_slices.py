"""Cutting a store's commit log into slices for tasks. Reads ConsumeQueues to find where records begin; plain Python.

Every entry of a ConsumeQueue points to the beginning of a record, and entries of a queue point ever further, so the
first record behind any position is found by halving. A live store is read up to where its log ended at planning.

A slice is a task, and a task costs about 20 ms of CPU whatever it reads: so slices are large, but as many for one core
as for the next and all of one size, or all would wait for the last one. Therefore a slice may go on in the next file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cometmq.errors import StoreError
from cometmq.store.inspect import queue_range, read_entry
from cometmq.store.log_walk import log_end, walk_log
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD
from cometmq.store.read_only import QueueName, Segment, StoreFiles, Stream

SLICE_SIZE_MIN, SLICE_SIZE_MAX = 64 << 20, 512 << 20  # bytes, where nobody said how many
SLICES_PER_CORE_MIN = 2
CUTTING_QUEUES_MAX = 16  # queues looked at first for places to cut: the longest ones


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes [start, end) of one commit log file; both are positions in the file, at records."""

    segment: Segment
    start: int
    end: int


LogSlice = tuple[LogPart, ...]  # of files that follow each other


def slices_of(
    root: Path, commit_log_dir: Path | None, topics: tuple[str, ...], slice_bytes: int | None
) -> list[LogSlice]:
    """Slices of about ``slice_bytes`` (None: even_size); only where the topics have messages, if topics are given."""
    files = StoreFiles(root, commit_log_dir)
    queues = {name: queue_range(stream, files.log.start) for name, stream in files.queues.items()}
    low, wanted = _span(files, queues, topics) if topics else (files.log.start, None)
    high = _end_of(files, queues, wanted)
    longest = sorted(queues, key=lambda name: queues[name][0] - queues[name][1])
    cuts = [(files.queues[name], *queues[name]) for name in longest]
    size = slice_bytes or even_size(high - low, core_count())
    slices = [_parts(files.log, *bounds) for bounds in pairwise(_bounds(low, high, cuts, size))]
    for stream in files.queues.values():
        stream.let_go()
    return [parts for parts in slices if parts]


def _end_of(files: StoreFiles, queues: dict[QueueName, tuple[int, int]], wanted: int | None) -> int:
    """Behind the last good record, or ``wanted`` if that is before.

    Few come behind the last one that a queue knows, so the walk is short; the search for more behind them is not.
    """
    known = (
        read_entry(files.queues[name], stop - 1) for name, (first, stop) in queues.items() if first < stop
    )
    last = max((entry.physical_offset for entry in known if entry is not None), default=files.log.start)
    end = None
    for piece in walk_log(files.log, last, check_crc=False):
        if not piece.reason:
            end = piece.physical_end
            if wanted is not None and end >= wanted:
                return wanted
    if end is None:
        end = log_end(files.log)[0]
    return end if wanted is None else min(wanted, end)


def even_size(total: int, cores: int) -> int:
    """Bytes of a slice of so many bytes in all, for so many cores.

    >>> [even_size(mib << 20, 2) >> 20 for mib in (30, 200, 1200, 5120)]
    [30, 50, 300, 512]
    """
    count = -(-total // SLICE_SIZE_MAX)
    if count < SLICES_PER_CORE_MIN * cores:
        count = min(SLICES_PER_CORE_MIN * cores, -(-total // SLICE_SIZE_MIN))
    else:
        count += -count % cores
    return -(-total // max(count, 1)) or 1


def core_count() -> int:
    """Of the driver's machine: the planner knows no other, and locally they are what Spark uses."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _span(
    files: StoreFiles, queues: dict[QueueName, tuple[int, int]], topics: tuple[str, ...]
) -> tuple[int, int]:
    """Physical offsets from the first to behind the last record of some topics."""
    lows: list[int] = []
    highs: list[int] = []
    for name, stream in files.queues.items():
        first, stop = queues[name]
        if name.topic in topics and first < stop:
            entries = read_entry(stream, first), read_entry(stream, stop - 1)
            lows += [entry.physical_offset for entry in entries[:1] if entry is not None]
            highs += [entry.physical_offset + entry.size for entry in entries[1:] if entry is not None]
    missing = set(topics) - {name.topic for name in files.queues}
    if missing:
        raise StoreError(f"The store {files.root} has no queue of {', '.join(sorted(missing))}.")
    return (min(lows), max(highs)) if lows and highs else (0, 0)


def _bounds(low: int, high: int, cuts: list[tuple[Stream, int, int]], slice_bytes: int) -> list[int]:
    """Where slices of like size begin and end. Long queues have an entry nearly everywhere; else all are looked at."""
    if low >= high:
        return []
    count = max(1, round((high - low) / slice_bytes))
    step = -(-(high - low) // count)
    bounds = [low]
    while high - low > step * 3 // 2:
        end = _record_behind(cuts[:CUTTING_QUEUES_MAX], low + step, high)
        if end - low > step * 2:
            end = _record_behind(cuts, low + step, high)
        bounds.append(end)
        low = end
    return [*bounds, high] if low < high else bounds


def _parts(log: Stream, low: int, high: int) -> LogSlice:
    """What the files have of the physical offsets [low, high)."""
    return tuple(
        LogPart(segment, max(low - segment.start, 0), min(high, segment.end) - segment.start)
        for segment in log.segments
        if segment.start < high and segment.end > low
    )


def _record_behind(cuts: list[tuple[Stream, int, int]], physical_offset: int, high: int) -> int:
    """Where the first record at or behind a physical offset begins, as far as these queues know; else ``high``."""
    behind = (first_record(stream, first, stop, physical_offset) for stream, first, stop in cuts)
    return min((offset for offset in behind if physical_offset <= offset < high), default=high)


def first_record(stream: Stream, first: int, stop: int, physical_offset: int) -> int:
    """Where the first record of a queue at or behind a physical offset begins; -1 if there is none."""
    low, high = first, stop
    while low < high:
        middle = (low + high) // 2
        entry = read_entry(stream, middle)
        if entry is not None and entry.size != BLANK_SIZE_FIELD and entry.physical_offset >= physical_offset:
            high = middle
        else:
            low = middle + 1
    entry = read_entry(stream, low) if low < stop else None
    return -1 if entry is None else entry.physical_offset
