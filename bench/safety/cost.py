"""What a slave costs its master: sends/s alone, with a slave elsewhere and with one beside it, in turn, several times.

In turn, because a virtual machine's memory gets slower or faster within a minute, which is more than what is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from bench.page_cache import PageCache
from bench.safety.servers import Served, classic_pair, one_broker, with_taker

COST_MAX = 0.30  # of the throughput without a slave

Run = Callable[[Served], dict[str, Any]]


CASES: dict[str, Callable[[dict[str, str]], AbstractContextManager[Served]]] = {
    "alone": one_broker,
    "slave elsewhere": with_taker,
    "slave on the same cores": classic_pair,
}


def measure(run: Run, settings: dict[str, str], rounds: int, cache: PageCache) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for number in range(rounds):
        for name, start in CASES.items():
            cache.fill()
            with start(settings) as served:
                found[name].append(run(served))
            print(f"  round {number + 1}, {name}: {found[name][-1]['msgs_per_s']:,.0f} sends/s", flush=True)
    return [_row(name, results) for name, results in found.items()]


def _row(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [result["msgs_per_s"] for result in results]
    return {
        "master": name,
        "sends/s": round(statistics.median(rates)),
        "range": f"{min(rates):,.0f} to {max(rates):,.0f}",
        "master us": round(statistics.median(result["broker"]["cpu_us_per_msg"] for result in results), 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    alone = rows[0]["sends/s"]
    lines = ["| master | sends/s | range | CPU us | fewer than alone |", "|---|---|---|---|---|"]
    for row in rows:
        fewer = "" if row is rows[0] else f"{1 - row['sends/s'] / alone:.0%} (bar {COST_MAX:.0%})"
        lines.append(
            f"| {row['master']} | {row['sends/s']:,} | {row['range']} | {row['master us']} | {fewer} |"
        )
    return "\n".join(lines)
