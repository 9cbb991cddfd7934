"""``python -m bench.macro``: our broker beside the Java broker, row by row, alternating; writes bench/RESULTS.md.

Both brokers run on this machine with their defaults and the same generator (`mqload`, built from ../shared/bench).
The JVM is warmed for a minute first. Every row is measured ``--rounds`` times, Java and ours in turn; the table shows
medians, their spread, and the ratio. Rates on a shared machine wander; CPU per message is the steadier figure.
Without Java or mqload it measures what there is and says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.macro import lives
from bench.macro.servers import Broker, Comet, Java, drop_pages, wait_for_port
from bench.page_cache import PageCache

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "bench"
RESULTS = ROOT / "bench" / "RESULTS.md"
WARM_SECONDS = 60


@dataclass
class Row:
    """One line of the table: how to load, which figures to compare, and the bars (ratio ours / Java)."""

    name: str
    arguments: str
    bars: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    fill: str = ""  # a load before the measurement, e.g. the messages that will be pulled
    cold: bool = False


@dataclass
class Life:
    """A group of lines measured on servers of their own, once per round; bars as in Row."""

    name: str
    measure: Callable[[Broker, Path, lives.Load], dict[str, float]]
    bars: dict[str, str]


LIVES = [
    Life("start to first send", lives.start_up,
         {"empty, ms": "<= 0.2", "after a clean stop, ms": "<= 0.3", "after kill -9, ms": "<= 0.5",
          "anonymous MB after a million": "<= 0.08"}),
    Life("10,000 topics x 8 queues", lives.many_queues, {"create, s": "<= 0.2"}),
    Life("reading far behind, with 2,000 sends/s", lives.far_behind,
         {"read, messages/s": ">= 1.5", "send p99 beside / alone": "<= 3"}),
]  # fmt: skip

PURE_RATE_MIN = 10_000
PURE_ROW = Row("uncompiled: send 1 KiB, 8 x 32", "send -size 1024 -conns 8 -inflight 32 -busyok")
SEND_BARS = {"rate": ">= 3.0", "cpu": "<= 0.25"}
SYNC = {"flushDiskType": "SYNC_FLUSH"}
ROWS = [
    Row("send 128 B, 1 x 128", "send -size 128 -conns 1 -inflight 128"),
    Row("send 128 B, 8 x 32", "send -size 128 -conns 8 -inflight 32", SEND_BARS),
    Row("send 128 B, 64 x 8", "send -size 128 -conns 64 -inflight 8", SEND_BARS),
    Row("send 1 KiB, 1 x 1", "send -size 1024 -conns 1 -inflight 1", {"p50": "<= 0.6", "cpu": "<= 0.3"}),
    Row("send 1 KiB, 8 x 32", "send -size 1024 -conns 8 -inflight 32", SEND_BARS),
    Row("send 1 KiB, 64 x 8", "send -size 1024 -conns 64 -inflight 8", SEND_BARS),
    Row("send 4 KiB, 8 x 32", "send -size 4096 -conns 8 -inflight 32", {"rate": ">= 2.0", "cpu": "<= 0.4"}),
    Row("batch 32 x 1 KiB, 4 x 4", "send -batch 32 -size 1024 -conns 4 -inflight 4",
        {"rate": ">= 1.5", "cpu": "<= 0.5"}),
    Row("sync flush 1 KiB, 64 x 1", "send -size 1024 -conns 64 -inflight 1", {"rate": ">= 1.5"}, options=SYNC),
    Row("sync flush 1 KiB, 8 x 32", "send -size 1024 -conns 8 -inflight 32", {"rate": ">= 1.5"}, options=SYNC),
    Row("pull 1 KiB hot, 32 a pull", "pull -conns 4", {"rate": ">= 1.5", "cpu": "<= 0.6"},
        fill="send -size 1024 -conns 8 -inflight 32 -count 400000"),
    Row("pull 1 KiB cold", "pull -conns 4 -seconds 0", {"rate": ">= 1.5"},
        fill="send -size 1024 -conns 8 -inflight 32 -count 400000", cold=True),
    Row("end to end 1 KiB, 1,000/s", "latency -size 1024 -rate 1000", {"e2e p50": "<= 0.4", "e2e p99": "<= 0.5"}),
    Row("end to end 1 KiB, 10,000/s", "latency -size 1024 -rate 10000", {"e2e p50": "<= 0.4", "e2e p99": "<= 0.5"}),
    Row("5,000 idle connections", "fanin -conns 5000", {"kB each": "<= 20", "cpu": "<= 0.5"}),
    Row("5,000 held pulls", "fanin -conns 5000 -hold", {"kB each": "<= 20", "cpu": "<= 0.5"}),
]  # fmt: skip


def figures_of(result: dict[str, Any], row: Row) -> dict[str, float]:
    """The comparable figures of one mqload run."""
    broker = result.get("broker") or {}
    figures = {"rate": result.get("msgs_per_s", 0.0), "cpu": broker.get("cpu_us_per_msg", 0.0)}
    if result.get("latency_us"):
        figures["p50"], figures["p99"] = result["latency_us"]["p50"], result["latency_us"]["p99"]
    extra = result.get("extra") or {}
    end_to_end = result.get("e2e_us") or extra.get("e2e_us")
    if end_to_end:
        figures["e2e p50"], figures["e2e p99"] = end_to_end["p50"], end_to_end["p99"]
    if row.arguments.startswith("fanin"):
        figures["kB each"] = extra["anon_kb_per_conn"]
    figures["other cores"] = (result.get("machine") or {}).get("other_cores", 0.0)
    return figures


class Bench:
    def __init__(self, directory: Path, mqload: Path, java: bool, seconds: float, cache: PageCache) -> None:
        self.directory = directory
        self.cache = cache
        self.mqload = mqload
        self.java = java
        self.seconds = seconds
        self.warm: dict[str, Java] = {}

    def load(self, broker: Broker, arguments: str, *, timed: bool = True) -> dict[str, Any]:
        mode, *rest = arguments.split()
        command = [str(self.mqload), mode, "-addr", broker.address, "-pid", str(broker.pid), *rest]
        if (
            timed
            and "-seconds" not in rest
            and "-count" not in rest
            and mode in ("send", "pull", "latency", "fanin")
        ):
            command += ["-seconds", str(self.seconds)]
            if mode in ("send", "latency", "fanin"):
                command += ["-warmup", "1"]  # ours has just been started
        if mode == "send" and "-busyok" not in rest:
            # A broker whose disk cannot follow refuses: that is no message stored, and no end.
            command += ["-busyok"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:] or done.stdout[-500:]}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def brokers(self, row: Row) -> list[Broker]:
        comet = Comet(self.directory / "comet", row.options)
        if not self.java:
            return [comet]
        key = json.dumps(row.options)
        if key not in self.warm:
            self._stop_java()
            peer = Java(self.directory / "java", SHARED / "java-peer", row.options)
            peer.wipe()
            peer.start()
            print(f"  warming the JVM for {WARM_SECONDS} s", flush=True)
            self.load(
                peer, f"send -size 1024 -conns 8 -inflight 32 -seconds {WARM_SECONDS} -busyok", timed=False
            )
            self.warm = {key: peer}
        return [self.warm[key], comet]

    def live(self, life: Life, rounds: int) -> dict[str, list[dict[str, float]]]:
        """Measure on servers that begin with nothing."""
        self._stop_java()
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            peers: list[Broker] = [Comet(self.directory / "comet")]
            if self.java:
                peers.insert(0, Java(self.directory / "java", SHARED / "java-peer"))
            for broker in peers:
                broker.wipe()
                self.cache.fill()
                try:
                    figures = life.measure(broker, self.mqload, self.load)
                finally:
                    broker.wipe()
                found.setdefault(broker.name, []).append(figures)
                print(f"  {life.name:28} {broker.name:6} {figures}", flush=True)
        return found

    def pure(self) -> dict[str, float]:
        """Ours without compiled modules."""
        broker = Comet(self.directory / "comet")
        broker.pure = True
        broker.wipe()
        broker.start()
        wait_for_port(broker.port)
        try:
            return figures_of(self.load(broker, PURE_ROW.arguments), PURE_ROW)
        finally:
            broker.stop()
            broker.wipe()

    def _stop_java(self) -> None:
        for peer in self.warm.values():
            peer.stop()
            peer.wipe()
        self.warm = {}

    def measure(self, row: Row, rounds: int) -> dict[str, list[dict[str, float]]]:
        found: dict[str, list[dict[str, float]]] = {}
        for number in range(rounds):
            for broker in self.brokers(row):
                self.cache.fill()
                if isinstance(broker, Comet):
                    broker.start()
                    wait_for_port(broker.port)
                try:
                    figures = self._one(broker, row, number)
                finally:
                    if isinstance(broker, Comet):
                        broker.stop()
                        broker.wipe()
                found.setdefault(broker.name, []).append(figures)
                print(f"  {row.name:28} {broker.name:6} {figures}", flush=True)
        return found

    def _one(self, broker: Broker, row: Row, number: int) -> dict[str, float]:
        topic = f" -topic bench{number}{abs(hash(row.name)) % 10**6}"
        if row.fill:
            self.load(broker, row.fill + topic)
        if row.cold:
            broker.stop()
            drop_pages(broker.directory)
            broker.start()
            wait_for_port(broker.port)
        arguments = (
            row.arguments
            + topic
            + (" -create=false" if row.fill and row.arguments.startswith("pull") else "")
        )
        return figures_of(self.load(broker, arguments), row)

    def close(self) -> None:
        self._stop_java()


def median(found: list[dict[str, float]], figure: str) -> float | None:
    values = [figures[figure] for figures in found if figures.get(figure)]
    return statistics.median(values) if values else None


def spread(found: list[dict[str, float]], figure: str) -> str:
    values = [figures[figure] for figures in found if figures.get(figure)]
    return f"{min(values):,.6g} to {max(values):,.6g}" if values else ""


ABSOLUTE = ("kB each", "send p99 beside / alone")  # bars on the figure itself, not on its ratio


def lines_of(row: Row | Life, found: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = []
    ours, java = found.get("comet", []), found.get("java", [])
    wanted = [*row.bars]
    if isinstance(row, Row) and "kB each" not in wanted:
        wanted = ["rate", "cpu", *wanted]
    for figure in dict.fromkeys(wanted):
        mine, theirs = median(ours, figure), median(java, figure)
        if mine is None:
            continue
        ratio = f"{mine / theirs:.2f}" if theirs else "–"
        bar = row.bars.get(figure, "")
        verdict = ""
        if bar:
            sign, number = bar.split()
            value = mine if figure in ABSOLUTE else (mine / theirs if theirs else None)
            if value is not None:
                verdict = _said(value >= float(number) if sign == ">=" else value <= float(number))
        shown = f"{theirs:,.6g}" if theirs else "–"
        lines.append(
            f"| {row.name} | {figure} | {mine:,.6g} | {spread(ours, figure)} | {shown} | {spread(java, figure)} "
            f"| {ratio} | {bar} | {verdict} |"
        )
    return lines


def _said(reached: bool) -> str:
    return "yes" if reached else "**no**"


@contextlib.contextmanager
def awake_processors(wanted: bool) -> Iterator[None]:
    """Keep the processors of a virtual machine from going to sleep: a loop on each that anything else displaces.

    To wake one costs more than all that either broker does for a message.
    """
    loop = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    count = (os.cpu_count() or 1) if wanted else 0
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()


def build_mqload(directory: Path) -> Path | None:
    source = SHARED / "mqload"
    if not source.exists() or shutil.which("go") is None:
        return None
    program = directory / "mqload"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, check=True)
    return program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.macro", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument(
        "--fill-cache",
        action="store_true",
        help="before each round let the page cache take all free memory (virtual machines)",
    )
    parser.add_argument(
        "--keep-awake",
        action="store_true",
        help="keep the processors from going to sleep between messages (virtual machines)",
    )
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="cometmq-macro-"))
    java = not args.no_java and shutil.which("java") is not None and (SHARED / "java-peer").exists()
    mqload = build_mqload(directory)
    if mqload is None:
        print(
            "No mqload here (needs ../shared/bench/mqload and Go): use `cometmq bench` against a running broker."
        )
        return 1
    if not java:
        print("No Java peer here: measuring CometMQ alone, without ratios.")
    cache = PageCache(args.fill_cache)
    bench = Bench(directory, mqload, java, args.seconds, cache)
    try:
        with cache, awake_processors(args.keep_awake):
            lines: list[str] = []
            for more in measured(bench, args.only, args.rounds):
                lines += more
                write(args, lines)  # each time: a long run may be stopped
    finally:
        bench.close()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def measured(bench: Bench, only: str, rounds: int) -> Iterator[list[str]]:
    """The lines of the table, row by row."""
    for row in ROWS:
        if only in row.name:
            yield lines_of(row, bench.measure(row, rounds))
    for life in LIVES:
        if only in life.name:
            yield lines_of(life, bench.live(life, 1))
    if only in PURE_ROW.name:
        rate = bench.pure()["rate"]
        reached = _said(rate >= PURE_RATE_MIN)
        yield [f"| {PURE_ROW.name} | rate | {rate:,.6g} | | – | | – | >= {PURE_RATE_MIN:,}/s | {reached} |"]


def write(args: argparse.Namespace, lines: list[str]) -> None:
    text = [
        "# Measured beside the Java broker",
        "",
        f"`python -m bench.macro --rounds {args.rounds} --seconds {args.seconds:g}"
        f"{' --fill-cache' if args.fill_cache else ''}{' --keep-awake' if args.keep_awake else ''}`, "
        f"{time.strftime('%Y-%m-%d')}.",
        "rate: messages/s; cpu: microseconds of broker CPU per message; p50, p99, e2e: microseconds. Medians, with the",
        "range over the rounds.",
        "",
        "| row | figure | CometMQ | range | Java 4.9.7 | range | ratio | bar | reached |",
        "|---|---|---|---|---|---|---|---|---|",
        *lines,
        "",
    ]
    args.output.write_text("\n".join(text), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
