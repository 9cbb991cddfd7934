"""Our client beside the Java client against one cluster, and the bars of our own.

    python -m bench.clients [--servers HOST:PORT] [--java-lib DIR] [--rounds 3] [--count 60000]
                            [--cases send,consume,latency,memory] [--messages 1000000]

send     producer, 1 KiB messages awaited in 256 tasks (Java: 256 threads); bar: not slower than the Java client
consume  push consumer of a new group over what was sent; bar: not slower than the Java client
latency  one send after the other: cometmq.sync beside asyncio; bar: the blocking twin at most 30 us slower
memory   a million messages sent and consumed by one process; bar: resident memory flat after the first steps

``--java-lib`` is a directory with the jars of the RocketMQ 4.9.7 client. Without ``--servers`` our broker is started
for the run. Clients take turns; only figures of one run may be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.clients import loads
from bench.clients.cluster import Cluster

HERE = Path(__file__).parent
QUIET = "<configuration><root level='ERROR'/></configuration>"
CASES = ("send", "consume", "latency", "memory")
LATENCY_COUNT = 5_000
LATENCY_DIFFERENCE_US_MAX = 30.0
MEMORY_GROWTH_MB_MAX = 8.0  # from the third step to the last


def main() -> int:
    args = arguments()
    if args.part is not None:
        print("FIGURE", run_part(args))
        return 0
    with Cluster(args.servers) as servers:
        args.servers = servers
        asyncio.run(loads.create(servers))
        found = [case(name, args) for name in CASES if name in args.cases.split(",")]
    return 0 if all(found) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--servers", help="NameServers; without: our own broker is started")
    parser.add_argument("--java-lib", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=60_000, help="messages of send and consume (60000)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of memory (1000000)")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser.parse_args()


def case(name: str, args: argparse.Namespace) -> bool:
    """Run a case, print its lines, answer whether its bar is reached."""
    if name == "latency":
        return latency(args)
    if name == "memory":
        return memory(args)
    return rates(name, args)


# -- cases ----------------------------------------------------------------------------------------------------------


def rates(part: str, args: argparse.Namespace) -> bool:
    found: dict[str, list[float]] = {"ours": [], "java": []}
    for number in range(args.rounds):
        found["ours"].append(ours(part, args, args.count))
        if args.java_lib is not None:
            found["java"].append(java(part, args))
        progress(f"{part} round {number + 1} of {args.rounds}")
    return shown(part, found, "/s", higher=True)


def latency(args: argparse.Namespace) -> bool:
    found: dict[str, list[float]] = {"sync": [], "asyncio": []}
    for number in range(args.rounds):
        for who in found:
            found[who].append(ours(f"latency-{who}", args, LATENCY_COUNT))
        progress(f"latency round {number + 1} of {args.rounds}")
    shown("latency", found, " us", higher=False)
    difference = statistics.median(found["sync"]) - statistics.median(found["asyncio"])
    good = difference <= LATENCY_DIFFERENCE_US_MAX
    print(
        f"latency  sync minus asyncio {difference:+.1f} us, bar {LATENCY_DIFFERENCE_US_MAX:g}: {verdict(good)}"
    )
    return good


def memory(args: argparse.Namespace) -> bool:
    command, growth = part_command("memory", args, args.messages), 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("FIGURE"):
                growth = float(line.split()[1])
            else:
                print(line, end="", flush=True)
    if process.returncode:
        raise SystemExit("the memory run failed")
    good = growth <= MEMORY_GROWTH_MB_MAX
    print(
        f"memory   grew by {growth:.1f} MB since the third step, bar {MEMORY_GROWTH_MB_MAX:g}: {verdict(good)}"
    )
    return good


def shown(part: str, found: dict[str, list[float]], unit: str, *, higher: bool) -> bool:
    medians = {who: statistics.median(values) for who, values in found.items() if values}
    for who, middle in medians.items():
        rounds = [round(value) for value in found[who]]
        print(f"{part:<8} {who:<8} median {middle:>9,.0f}{unit}  rounds {rounds}", flush=True)
    if "java" not in medians:
        return True
    good = (medians["ours"] >= medians["java"]) == higher
    print(f"{part:<8} ours / java {medians['ours'] / medians['java']:.2f}: {verdict(good)}", flush=True)
    return good


def verdict(good: bool) -> str:
    return "reached" if good else "missed"


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


# -- processes --------------------------------------------------------------------------------------------------------


def run_part(args: argparse.Namespace) -> float:
    if args.part == "latency-sync":
        return loads.latency_sync(args.servers, args.count)
    if args.part == "memory":
        sizes = asyncio.run(loads.memory(args.servers, args.count))
        return sizes[-1] - sizes[min(2, len(sizes) - 1)]
    work = {"send": loads.send, "consume": loads.consume, "latency-asyncio": loads.latency_async}[args.part]
    return asyncio.run(work(args.servers, args.count))


def part_command(part: str, args: argparse.Namespace, count: int) -> list[str]:
    command = [sys.executable, "-m", "bench.clients", "--part", part]
    return [*command, "--servers", args.servers, "--count", str(count)]


def figure_of(command: list[str], word: str) -> float:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split(word, 1)[1].split()[0])


def ours(part: str, args: argparse.Namespace, count: int) -> float:
    return figure_of(part_command(part, args, count), "FIGURE")


def java(part: str, args: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "logback.xml"
        config.write_text(QUIET)
        path = f"{args.java_lib}/*"
        subprocess.run(
            ["javac", "-nowarn", "-cp", path, "-d", directory, str(HERE / "ClientBench.java")], check=True
        )
        command = ["java", "-Xmx512m", "-Drocketmq.client.logUseSlf4j=true"]
        command += [f"-Dlogback.configurationFile={config}", "-cp", f"{path}:{directory}", "ClientBench"]
        numbers = [str(loads.WARM_UP), str(args.count), str(loads.TASKS), str(loads.SIZE)]
        return figure_of([*command, part, args.servers, loads.TOPIC, *numbers], "RATE")


if __name__ == "__main__":
    raise SystemExit(main())
