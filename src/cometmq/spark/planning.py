"""Planning: which task reads what, and how much one micro-batch may take. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import ceil

from cometmq.protocol.message import MessageQueue
from cometmq.spark.offsets import QueueOffsets, QueueRange, total


def tasks_of(
    ranges: Sequence[QueueRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    min_records: int = 0,
) -> list[list[QueueRange]]:
    """The ranges of each task: large ones are split, small ones share a task. Order within a queue is kept."""
    limit = max_records
    if min_partitions is not None and total(ranges):
        share = ceil(total(ranges) / min_partitions)
        limit = share if limit is None else min(limit, share)
    pieces = [piece for item in ranges for piece in _split(item, limit)]
    if min_partitions is not None and len(pieces) <= min_partitions:
        return [[piece] for piece in pieces]
    tasks = _join(pieces, min_records, max_records)
    if min_partitions is not None and len(tasks) < min_partitions:
        return [[piece] for piece in pieces]
    return tasks


def _split(item: QueueRange, limit: int | None) -> list[QueueRange]:
    if limit is None or item.count <= limit:
        return [item]
    parts = ceil(item.count / limit)
    cuts = [item.start + item.count * number // parts for number in range(parts + 1)]
    return [QueueRange(item.queue, a, b) for a, b in itertools.pairwise(cuts)]


def _join(pieces: Sequence[QueueRange], min_records: int, max_records: int | None) -> list[list[QueueRange]]:
    """Ranges below ``min_records`` are collected until their sum reaches it."""
    tasks: list[list[QueueRange]] = []
    small: list[QueueRange] = []
    for piece in pieces:
        if piece.count >= min_records:
            tasks.append([piece])
            continue
        if max_records is not None and small and total(small) + piece.count > max_records:
            tasks.append(small)
            small = []
        small.append(piece)
        if total(small) >= min_records:
            tasks.append(small)
            small = []
    return [*tasks, small] if small else tasks


def admit(
    start: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int], row_limit: int | None
) -> QueueOffsets:
    """How far a micro-batch of at most ``row_limit`` rows goes: in proportion to the lag of each queue.

    Every queue with lag gets at least one row, as long as the limit has room for it.
    """
    lags = {queue: max(latest[queue] - start.get(queue, latest[queue]), 0) for queue in latest}
    lag = sum(lags.values())
    if row_limit is None or lag <= row_limit:
        return {queue: max(latest[queue], start.get(queue, 0)) for queue in latest}
    shares = {queue: min(max(row_limit * lags[queue] // lag, 1), lags[queue]) for queue in latest}
    _trim(shares, row_limit)
    _fill(shares, lags, row_limit)
    return {queue: start.get(queue, latest[queue]) + shares[queue] for queue in latest}


def _trim(shares: dict[MessageQueue, int], row_limit: int) -> None:
    """The least share of one row may go beyond the limit: take from the largest."""
    over = sum(shares.values()) - row_limit
    for queue in sorted(shares, key=lambda queue: (-shares[queue], queue)):
        if over <= 0:
            return
        taken = min(over, max(shares[queue] - 1, 0))
        shares[queue] -= taken
        over -= taken
    for queue in sorted(shares, reverse=True):
        if over > 0 and shares[queue]:
            shares[queue] -= 1
            over -= 1


def _fill(shares: dict[MessageQueue, int], lags: Mapping[MessageQueue, int], row_limit: int) -> None:
    """Rounding leaves a few rows: they go to the queues with the largest rest."""
    left = row_limit - sum(shares.values())
    for queue in sorted(shares, key=lambda queue: (shares[queue] - lags[queue], queue)):
        if left <= 0:
            return
        given = min(left, lags[queue] - shares[queue])
        shares[queue] += given
        left -= given
