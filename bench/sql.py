"""How many messages a second one core filters by SQL92: ``python -m bench.sql [--seconds 1]``.

The expression of the issue on parsed properties (a dictionary of texts): rows that match by each of its parts, that do
not match, and that miss properties, in turn. The same filter is then measured as the broker calls it: from the stored
properties of a record.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from cometmq.protocol.filters import sql92
from cometmq.protocol.properties import decode_properties, encode_properties

EXPRESSION = "a > 3 AND b = 'x' OR c BETWEEN 1 AND 5"
BAR = 1_000_000  # evaluations a second
ROUNDS = 7
ROWS: list[dict[str, str]] = [
    {"a": "5", "b": "x", "c": "9"},
    {"a": "5", "b": "y", "c": "3"},
    {"a": "1", "b": "x", "c": "77"},
    {"a": "120", "b": "y", "c": "0"},
    {"b": "x", "c": "4"},
    {"a": "4", "b": "x"},
]


def by_hand(properties: Mapping[str, str]) -> bool:
    """The condition as a programmer would write it for rows without surprises: what there is to reach."""
    get = properties.get
    return (int(get("a", "0")) > 3 and get("b") == "x") or 1 <= int(get("c", "0")) <= 5


def per_second(function: Callable[[Any], Any], rows: list[Any], seconds: float) -> list[float]:
    """Rates of several rounds that together last about so long."""
    many = rows * 1000
    found: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(found) < ROUNDS or time.perf_counter() < deadline:
        began = time.process_time()  # a second of one core, whoever else uses the machine
        for row in many:
            function(row)
        found.append(len(many) / (time.process_time() - began))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sql", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (1)")
    args = parser.parse_args()
    wanted = sql92.compile(EXPRESSION)
    stored = [encode_properties(row) for row in ROWS]
    print(f"{EXPRESSION}   evaluations a second on one core, the call included")
    rates = {}
    for name, function, rows in (
        ("sql92, parsed properties", wanted, ROWS),
        ("by hand, parsed properties", by_hand, ROWS),
        ("sql92, stored properties", lambda text: wanted(decode_properties(text)), stored),
    ):
        found = per_second(function, rows, args.seconds)
        rates[name] = statistics.median(found)
        print(f"  {name:<28} median {rates[name]:>11,.0f}   best {max(found):>11,.0f}")
    reached = rates["sql92, parsed properties"] >= BAR
    print(f"bar {BAR:,}: {'reached' if reached else 'missed'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
