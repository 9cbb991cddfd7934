"""Speed of the Spark connector on one machine, beside Spark's Kafka connector with a Kafka broker.

    python -m bench.spark [--count 1000000] [--size 1024] [--no-kafka] [--json FILE]

Each side has a fresh broker and a fresh Spark (local, two cores; ours with the settings of cometmq.spark.session(),
the peer's with Spark's own) and does the same: write ``count`` rows (sink), read them back into nothing (batch read),
run micro-batches of 100 rows (floor: the median). Ours also scans the store. It reads by ``cometmq.spark.load``, and in
rows of their own by ``spark.read.format``; one more row repeats one batch of the scan: what Spark makes of that is the
limit. Both sides live at the same
time and take turns, row by row and round by round, because the speed of a shared machine changes within a minute; the
figures are medians of the rounds after the first ones, in which Java still compiles; a second table has those. CPU is
that of Spark (JVM and Python workers) and of the broker, a row. Needs cometmq[spark]; the Kafka side needs Java and
Maven and takes its jars from Maven Central once (of the connector the last that is there: 4.2.0).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.spark import peers
from bench.spark.measure import Measure, middle, together

TOPICS = ("bench", "bench-warm")
READS = (
    "batch read",
    "batch read, 2 columns",
    "batch read by format",
    "store scan",
    "store scan by format",
    "one batch repeated",
)
COMPILING_ROUNDS = 4  # of each read; not counted
# What a row of ours is held against: the row of Kafka's, and the least ratio (of times: the greatest).
BARS = {
    "batch read": ("batch read", 1.5),
    "store scan": ("batch read", 2.5),
    "micro-batch floor": ("micro-batch floor", 1.5),
    "sink": ("sink", 1.0),
}


class Jobs:
    """The jobs of one side, in their own process."""

    def __init__(self, python: str, plan: dict[str, object]) -> None:
        from cometmq.spark.java import find_java

        environment = os.environ | {
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(peers.REPOSITORY),
        }
        self.side = str(plan["side"])
        self._process = subprocess.Popen(
            [python, "-m", "bench.spark.jobs", json.dumps(plan)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, row: str) -> Measure:
        """One job; progress goes to stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(row + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the jobs of {self.side} failed")
        measure = Measure(**json.loads(answer))
        print(f"  {self.side:<6} {described(measure)}", file=sys.stderr, flush=True)
        return measure

    def close(self) -> None:
        """Its standard input ends, and so does it."""
        self._process.communicate()


def plan_of(args: argparse.Namespace, side: str, running: peers.Running, jars: str = "") -> dict[str, object]:
    return {
        "side": side,
        "count": args.count,
        "size": args.size,
        "broker_pid": running.pid,
        "topic": TOPICS[0],
        "warm_topic": TOPICS[1],
        "address": running.address,
        "store": running.store,
        "jars": jars,
        "java_options": args.kafka_java_options if side == "kafka" else "",
    }


@contextmanager
def comet(args: argparse.Namespace, directory: Path) -> Iterator[Jobs]:
    with peers.comet(directory / "comet", TOPICS, *args.option) as running:
        jobs = Jobs(sys.executable, plan_of(args, "comet", running))
        try:
            yield jobs
        finally:
            jobs.close()


@contextmanager
def kafka(args: argparse.Namespace, directory: Path) -> Iterator[Jobs]:
    broker, connector = peers.fetch_jars()
    jars = ",".join(str(path) for path in sorted(connector.glob("*.jar")))
    with peers.kafka(directory / "kafka", broker, TOPICS) as running:
        jobs = Jobs(args.kafka_python, plan_of(args, "kafka", running, jars))
        try:
            yield jobs
        finally:
            jobs.close()


def measured(sides: list[Jobs], rounds: int, rows: list[str]) -> tuple[list[Measure], list[Measure]]:
    """The sink once (it fills the topic that is read), the reads in turn, the floor once; and the first rounds."""
    found = [side.run("sink") for side in sides]
    reads: dict[tuple[str, str], list[Measure]] = {}
    for _ in range(COMPILING_ROUNDS + rounds):
        for side in sides:
            for row in rows if side.side == "comet" else READS[:1]:
                reads.setdefault((side.side, row), []).append(side.run(row))
    first = [together(measures[:COMPILING_ROUNDS]) for measures in reads.values()]
    found += [middle(measures[COMPILING_ROUNDS:]) for measures in reads.values()]
    return found + [side.run("micro-batch floor") for side in sides], first


def described(measure: Measure) -> str:
    if measure.batch_ms:
        return f"{measure.row:<22} {measure.batch_ms:8.0f} ms a batch"
    return (
        f"{measure.row:<22} {measure.rows_per_s:8.0f} rows/s  {measure.spark_cpu_us:6.2f} us CPU a row, "
        f"broker {measure.broker_cpu_us:5.2f}"
    )


def ratio(ours: Measure, theirs: Measure) -> float:
    return ours.batch_ms / theirs.batch_ms if ours.batch_ms else ours.rows_per_s / theirs.rows_per_s


def table(measures: list[Measure]) -> str:
    kafka = {measure.row: measure for measure in measures if measure.side == "kafka"}
    lines = [
        "| row | rows/s (ms) | CPU us/row | broker us/row | Kafka's rows/s (ms) | CPU | broker | ratio | bar |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for ours in (measure for measure in measures if measure.side == "comet"):
        name, bar = BARS.get(ours.row, ("batch read", 0.0))
        theirs = kafka.get(name)
        shown = f"{ratio(ours, theirs):.2f}" if theirs else "-"
        wanted = "-" if not bar else f"{'<=' if ours.batch_ms else '>='} {bar}"
        lines.append(f"| {ours.row} | {_cells(ours)} | {_cells(theirs)} | {shown} | {wanted} |")
    return "\n".join(lines)


def _cells(measure: Measure | None) -> str:
    if measure is None:
        return "- | - | -"
    if measure.batch_ms:
        return f"{measure.batch_ms:.0f} ms | - | -"
    return f"{measure.rows_per_s:,.0f} | {measure.spark_cpu_us:.2f} | {measure.broker_cpu_us:.2f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each read that count")
    parser.add_argument(
        "--read",
        action="append",
        choices=READS,
        help="one of our reads (all): with one, Java has compiled as much for us as for the peer in the first rounds",
    )
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-comet", action="store_true")
    parser.add_argument("--kafka-python", default=sys.executable, help="an interpreter with another Spark")
    parser.add_argument(
        "--kafka-java-options",
        default="",
        help="for the peer's Spark, e.g. -XX:+UseParallelGC as ours has it",
    )
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("-o", "--option", action="append", default=[], help="name=value for our broker")
    return parser.parse_args()


def main() -> None:
    args, began = arguments(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as directory, ExitStack() as stack:
        sides: list[Jobs] = []
        if not args.no_comet:
            sides.append(stack.enter_context(comet(args, Path(directory))))
        if not args.no_kafka:
            try:
                sides.append(stack.enter_context(kafka(args, Path(directory))))
            except peers.Unavailable as reason:
                print(f"without Kafka: {reason}", file=sys.stderr)
        measures, first = measured(sides, args.rounds, args.read or list(READS))
    print(table(measures))
    print(f"\nThe first {COMPILING_ROUNDS} rounds of the session, together:\n\n{table(first)}")
    print(f"\n{args.count} rows of {args.size} bytes, {time.monotonic() - began:.0f} s")
    if args.json:
        args.json.write_text(json.dumps([measure.to_json() for measure in measures], indent=1) + "\n")


if __name__ == "__main__":
    main()
