"""What safety costs on this machine: sends/s, latency and CPU at each level of acknowledgement, with 1 to 3 copies.

    python -m bench.safety                             everything, about six minutes
    python -m bench.safety --copies 2 --seconds 3      one part
    python -m bench.safety --cost                      what a slave costs its master
    python -m bench.safety --follow                    how fast a copy follows (fills 2 GiB)

Needs the load generator mqload (``--mqload``, else ``mqload`` on the path). All copies, the generator and the clients
share the cores of this machine, so rates with more copies are lower than on machines of their own. What a slave on
another machine costs its master is shown by one that takes the log and keeps nothing (--cost: "slave elsewhere").
Throughput: 8 connections with 32 sends of 1 KiB each; "one by one": a single connection with one send at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.page_cache import PageCache
from bench.safety import cost
from bench.safety.following import follow
from bench.safety.servers import Served, classic_pair, cpu_seconds, group_of, one_broker

FOLLOW_MB_MIN = 100.0
LEVELS = {
    "leader": {"brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH"},
    "leader+disk": {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
    "insync": {"brokerRole": "SYNC_MASTER", "flushDiskType": "ASYNC_FLUSH"},
    "insync+disk": {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
}
ONE_COPY = ("leader", "leader+disk")
THROUGHPUT = "send -size 1024 -conns 8 -inflight 32 -topic wide -warmup 1"
ONE_BY_ONE = "send -size 1024 -conns 1 -inflight 1 -topic narrow -warmup 0.5"
HEADINGS = ("copies", "level", "sends/s", "p99 ms", "master us", "others us", "one by one: p50 ms", "p99 ms ")


class Loads:
    def __init__(self, mqload: str, seconds: float) -> None:
        self._mqload = mqload
        self._seconds = seconds

    def run(self, address: str, pid: int, arguments: str) -> dict[str, Any]:
        command = [self._mqload, *arguments.split(), "-addr", address, "-pid", str(pid)]
        if "-seconds" not in command and "-count" not in command:
            command += ["-seconds", str(self._seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:] or done.stdout[-500:]}")
        result: dict[str, Any] = json.loads(done.stdout)
        if result["errors"] and "-busyok" not in command:
            raise RuntimeError(f"{result['errors']} sends failed: {result.get('first_error')}")
        return result

    def wide(self, served: Served) -> dict[str, Any]:
        return self.run(served.address, served.master_pid, THROUGHPUT)

    def figures(self, served: Served) -> dict[str, float]:
        before = cpu_seconds(served.other_pids)
        wide = self.wide(served)
        others = cpu_seconds(served.other_pids) - before
        narrow = self.run(served.address, served.master_pid, ONE_BY_ONE)
        share = self._seconds / (
            self._seconds + 1
        )  # the CPU of the warm-up is not that of the counted messages
        return {
            "sends/s": round(wide["msgs_per_s"]),
            "p99 ms": round(wide["latency_us"]["p99"] / 1000, 2),
            "master us": round(wide["broker"]["cpu_us_per_msg"], 2),
            "others us": round(others * share * 1e6 / wide["msgs"], 2),
            "one by one: p50 ms": round(narrow["latency_us"]["p50"] / 1000, 3),
            "p99 ms ": round(narrow["latency_us"]["p99"] / 1000, 2),
        }


@contextlib.contextmanager
def brokers(copies: str, level: str) -> Iterator[Served]:
    settings = LEVELS[level]
    if copies == "1":
        with one_broker(settings) as served:
            yield served
    elif copies == "1 + slave":
        with classic_pair(settings) as served:
            yield served
    else:
        with group_of(int(copies), settings) as served:
            yield served


def cases(wanted: str) -> list[tuple[str, str]]:
    every = [("1", level) for level in ONE_COPY]
    every += [("1 + slave", "leader")]
    every += [(copies, level) for copies in ("2", "3") for level in LEVELS]
    return [case for case in every if wanted == "all" or case[0] in wanted.split(",")]


def line(cells: list[object]) -> str:
    return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells) + " |"


def measure(loads: Loads, wanted: str, cache: PageCache) -> list[dict[str, Any]]:
    rows = []
    print(line(list(HEADINGS)), "|" + "---|" * len(HEADINGS), sep="\n", flush=True)
    for copies, level in cases(wanted):
        cache.fill()
        with brokers(copies, level) as served:
            row: dict[str, Any] = {"copies": copies, "level": level, **loads.figures(served)}
        rows.append(row)
        print(line([row[heading] for heading in HEADINGS]), flush=True)
    return rows


def measure_all(args: argparse.Namespace, loads: Loads, cache: PageCache) -> dict[str, Any]:
    found: dict[str, Any] = {}
    everything = args.copies == "all" and not args.cost and not args.follow
    if args.cost or everything:
        found["cost"] = cost.measure(loads.wide, LEVELS["leader"], args.rounds, cache)
        print(cost.table(found["cost"]))
    if not args.follow and not args.cost:
        found["levels"] = measure(loads, args.copies, cache)
    if args.follow or everything:
        cache.fill()
        found["following"] = follow(loads.run, args.store_gib, args.rate_mb, 2 * args.seconds)
        print(*(f"{name}: {value:,}" for name, value in found["following"].items()), sep="\n")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.safety",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=5, help="of each load")
    parser.add_argument("--copies", default="all", help="1, '1 + slave', 2, 3; comma separated")
    parser.add_argument("--cost", action="store_true", help="only what a slave costs its master")
    parser.add_argument("--rounds", type=int, default=4, help="of what a slave costs")
    parser.add_argument("--follow", action="store_true", help="only how fast a copy follows")
    parser.add_argument("--store-gib", type=float, default=2, help="what an empty copy has to copy")
    parser.add_argument(
        "--rate-mb", type=float, default=FOLLOW_MB_MIN, help="of the load that a copy follows"
    )
    parser.add_argument("--mqload", default=shutil.which("mqload"), help="the load generator")
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument(
        "--fill-cache",
        action="store_true",
        help="before each round let the page cache take all free memory (virtual machines)",
    )
    args = parser.parse_args()
    if args.mqload is None:
        parser.error("no mqload on the path; say where it is with --mqload")
    with PageCache(args.fill_cache) as cache:
        found = measure_all(args, Loads(args.mqload, args.seconds), cache)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
