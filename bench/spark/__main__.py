"""Speed of the Spark connector on one machine, beside Spark's Kafka connector with a Kafka broker.

    python -m bench.spark [--count 1000000] [--size 1024] [--no-kafka] [--json FILE]

Each side has a fresh broker and a fresh Spark (local, two cores; ours with the settings of cometmq.spark.session(),
the peer's with Spark's own) and does the same: write ``count`` rows (sink),
read them back into nothing (batch read), run micro-batches of 100 rows (floor: the median). Ours also scans the
store. CPU is that of Spark (JVM and Python workers) and of the broker, a row. Needs cometmq[spark]; the Kafka side
needs Java and Maven and takes its jars from Maven Central once (of the connector the last that is there: 4.2.0).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.spark import peers
from bench.spark.measure import Measure

TOPICS = ("bench", "bench-warm")
# What a row of ours is held against: the row of Kafka's, and the least ratio (of times: the greatest).
BARS = {
    "batch read": ("batch read", 1.5),
    "store scan": ("batch read", 2.5),
    "micro-batch floor": ("micro-batch floor", 1.5),
    "sink": ("sink", 1.0),
}


def run_jobs(python: str, plan: dict[str, object]) -> list[Measure]:
    """The jobs of one side, in their own process; progress goes to stderr."""
    from cometmq.spark.java import find_java

    environment = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(peers.REPOSITORY),
    }
    command = [python, "-m", "bench.spark.jobs", json.dumps(plan)]
    found: list[Measure] = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(Measure(**json.loads(line)))
            print(f"  {plan['side']}: {described(found[-1])}", file=sys.stderr, flush=True)
    if process.returncode:
        raise SystemExit(f"the jobs of {plan['side']} failed")
    return found


def plan_of(args: argparse.Namespace, side: str, running: peers.Running, jars: str = "") -> dict[str, object]:
    return {
        "side": side,
        "count": args.count,
        "size": args.size,
        "rounds": args.rounds,
        "broker_pid": running.pid,
        "topic": TOPICS[0],
        "warm_topic": TOPICS[1],
        "address": running.address,
        "store": running.store,
        "jars": jars,
        "java_options": args.kafka_java_options if side == "kafka" else "",
    }


def measure_comet(args: argparse.Namespace, directory: Path) -> list[Measure]:
    with peers.comet(directory / "comet", TOPICS, *args.option) as running:
        return run_jobs(sys.executable, plan_of(args, "comet", running))


def measure_kafka(args: argparse.Namespace, directory: Path) -> list[Measure]:
    broker, connector = peers.fetch_jars()
    jars = ",".join(str(path) for path in sorted(connector.glob("*.jar")))
    with peers.kafka(directory / "kafka", broker, TOPICS) as running:
        return run_jobs(args.kafka_python, plan_of(args, "kafka", running, jars))


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
    parser.add_argument("--rounds", type=int, default=8, help="runs of each read; the best counts")
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
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as directory:
        if not args.no_comet:
            measures += measure_comet(args, Path(directory))
        if not args.no_kafka:
            try:
                measures += measure_kafka(args, Path(directory))
            except peers.Unavailable as reason:
                print(f"without Kafka: {reason}", file=sys.stderr)
    print(table(measures))
    print(f"\n{args.count} rows of {args.size} bytes, {time.monotonic() - began:.0f} s")
    if args.json:
        args.json.write_text(json.dumps([measure.to_json() for measure in measures], indent=1) + "\n")


if __name__ == "__main__":
    main()
