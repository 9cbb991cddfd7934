"""What a run of the delay benchmark found: lost, early, doubled, and how late."""

from __future__ import annotations

from bench.delays.load import Copy, Load

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

Span = tuple[int, int]


def figures_of(
    load: Load,
    stored: dict[int, list[int]],
    copies: dict[int, list[Copy]],
    away_ms: list[Span],
    window_ms: Span,
) -> dict[str, object]:
    """``stored``: when each number was stored to wait, as often as it was (a repeated send is a message of its own).

    A number is early when its first copy is stored before its first original is due. Doubled are copies beyond the
    originals. Lateness is counted for the numbers that are due within ``window_ms``; beside it for those of them that
    were not due while the broker was away.
    """
    late, late_up, arrived = [], [], []
    early = doubled = 0
    for number, found in copies.items():
        due_ms = min(stored[number]) + load.delay_ms(number)
        first = min(found, key=lambda copy: copy.stored_ms)
        early += first.stored_ms < due_ms
        doubled += max(0, len(found) - len(stored[number]))
        if window_ms[0] <= due_ms <= window_ms[1]:
            late.append(first.stored_ms - due_ms)
            arrived.append(first.arrived_ms - due_ms)
            if not any(since <= due_ms <= until for since, until in away_ms):
                late_up.append(first.stored_ms - due_ms)
    return {
        "messages": load.count,
        "measured": len(late),
        "lost": load.count - len(copies),
        "early": early,
        "doubled": doubled,
        "away ms": [until - since for since, until in away_ms],
        "late": ranked(late),
        "late, broker there": ranked(late_up),
        "late at consumer": ranked(arrived),
    }


def ranked(values: list[int]) -> dict[str, int]:
    """Percentiles of whole milliseconds.

    >>> ranked([5, 1, 3])
    {'p50': 3, 'p90': 5, 'p99': 5, 'max': 5}
    """
    values = sorted(values)
    if not values:
        return {}
    picked = {name: values[min(int(len(values) * at), len(values) - 1)] for name, at in PERCENTILES.items()}
    return {**picked, "max": values[-1]}
