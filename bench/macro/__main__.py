"""``python -m bench.macro``: our broker beside the Java broker, row by row, alternating; writes bench/RESULTS.md.

Both brokers run on this machine with their defaults and the same generator (`mqload`, built from ../shared/bench;
without it `cometmq bench`). The JVM is warmed for a minute first. Every row is measured ``--rounds`` times, Java and
ours in turn; the table shows medians, their spread, and the ratio; a second one says what the machine itself can do.
Rates on a shared machine wander; CPU per message is the steadier figure. Without Java it measures ours alone and says
so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from bench.macro.generators import SHARED, Generator, LoadFailed, Mqload, OwnClient
from bench.macro.limits import limits
from bench.macro.report import Report
from bench.macro.rows import LIVES, PURE_ROW, ROWS, Life, Row
from bench.macro.servers import Broker, Comet, Java, drop_pages, free_port, wait_for_port
from bench.page_cache import PageCache

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "RESULTS.md"
WARM_SECONDS = 60

AnyBroker = TypeVar("AnyBroker", bound=Broker)


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
    def __init__(
        self,
        directory: Path,
        generator: Generator,
        java: bool,
        seconds: float,
        cache: PageCache,
        remark: Callable[[str], None],
    ) -> None:
        self.remark = remark
        self.directory = directory
        self.cache = cache
        self.generator = generator
        self.java = java
        self.seconds = seconds
        self.warm: dict[str, Java] = {}

    def load(self, broker: Broker, load: str, *, timed: bool = True) -> dict[str, Any]:
        return self.generator.run(broker, load, self.seconds if timed else None)

    def comet(self, options: dict[str, str] | None = None) -> Comet:
        return self._reachable(Comet(self.directory / "comet", options))

    def peer(self, options: dict[str, str] | None = None) -> Java:
        return self._reachable(Java(self.directory / "java", SHARED / "java-peer", options))

    def _reachable(self, broker: AnyBroker) -> AnyBroker:
        if self.generator.needs_nameserver:
            broker.nameserver_port = free_port()
        return broker

    def brokers(self, row: Row) -> list[Broker]:
        comet = self.comet(row.options)
        if not self.java:
            return [comet]
        key = json.dumps(row.options)
        if key not in self.warm:
            self._stop_java()
            peer = self.peer(row.options)
            peer.wipe()
            self.warm = {key: peer}  # before it starts: whoever ends the run meanwhile stops it, too
            peer.start()
            print(f"  warming the JVM for {WARM_SECONDS} s", flush=True)
            self.load(
                peer, f"send -size 1024 -conns 8 -inflight 32 -seconds {WARM_SECONDS} -busyok", timed=False
            )
        return [self.warm[key], comet]

    def live(self, life: Life, mqload: Mqload, rounds: int) -> dict[str, list[dict[str, float]]]:
        """Measure on servers that begin with nothing."""
        self._stop_java()
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            peers: list[Broker] = [self.peer(), self.comet()] if self.java else [self.comet()]
            for broker in peers:
                broker.wipe()
                self.cache.fill()
                try:
                    figures = life.measure(broker, mqload, self.load, self.cache.fill)
                finally:
                    broker.stop()
                    broker.wipe()
                found.setdefault(broker.name, []).append(figures)
                print(f"  {life.name:28} {broker.name:6} {figures}", flush=True)
        return found

    def pure(self) -> dict[str, float]:
        """Ours without compiled modules."""
        broker = self.comet()
        broker.pure = True
        broker.wipe()
        try:
            broker.start()
            wait_for_port(broker.port)
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
                try:
                    if isinstance(broker, Comet):
                        broker.start()
                        wait_for_port(broker.port)
                    figures = self._one(broker, row, number)
                except LoadFailed as reason:
                    if isinstance(broker, Comet):
                        raise
                    self.remark(
                        f"Java left out of round {number + 1} of {row.name}, which it did not stand: {reason}"
                    )
                    continue
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
            self.cache.fill()
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the brokers are stopped then, too
    directory = Path(tempfile.mkdtemp(prefix="cometmq-macro-"))
    java = not args.no_java and shutil.which("java") is not None and (SHARED / "java-peer").exists()
    mqload = Mqload.build(directory)
    report = Report(args)
    if mqload is None:
        report.remark(
            "No mqload here (it takes ../shared/bench/mqload and Go): the load comes from `cometmq bench`, a client in "
            "Python that is slower than the broker. Rates are that client's; CPU is the broker's."
        )
    if not java:
        report.remark("No Java peer here: CometMQ alone, without ratios.")
    cache = PageCache(args.fill_cache)
    bench = Bench(directory, mqload or OwnClient(), java, args.seconds, cache, report.remark)
    try:
        with cache, awake_processors(args.keep_awake):
            if not args.only:
                report.limits = limits(mqload, directory)
            run_rows(bench, report, args.only, args.rounds)
    finally:
        bench.close()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def run_rows(bench: Bench, report: Report, only: str, rounds: int) -> None:
    for row in ROWS:
        if only not in row.name:
            continue
        if bench.generator.can(row.arguments):
            report.add(row, bench.measure(row, rounds))
        else:
            report.remark(f"Left out without mqload: {row.name}.")
    for life in LIVES:
        if only not in life.name:
            continue
        if isinstance(bench.generator, Mqload):
            report.add(life, bench.live(life, bench.generator, life.rounds))
        else:
            report.remark(f"Left out without mqload: {life.name}.")
    if only in PURE_ROW.name:
        report.add_pure(bench.pure()["rate"])


if __name__ == "__main__":
    sys.exit(main())
