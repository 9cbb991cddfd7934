"""Delayed messages: ours beside the Java peer.

    python -m bench.delays [--count 100000] [--rate 5000] [--cases kill,calm,steady] [--no-java] [--json]

kill    ``--count`` messages over the levels 1 s, 5 s and 10 s; the broker is killed by SIGKILL twice while they come
calm    the same without kills
steady  10,000 delayed messages are sent a second, so that 10,000 become due a second; lateness is counted while all
        levels are due at their full pace, and the bar is a p99 of 100 ms for ours

Both brokers run with their defaults, as processes of their own, one after the other. Lateness is the store time of the
copy minus its due time (the store time of the waiting message plus its delay), both read from the broker's records.
The jars of the Java peer are taken from ``PEER_LIB``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

from bench.delays.load import Load
from bench.delays.peer import KillableJava, quiet_port
from bench.delays.scenario import Scenario
from bench.macro.servers import Comet

SCRIPTS = Path(__file__).parents[3] / "shared" / "bench" / "java-peer"
LEVELS_MS = (1_000, 5_000, 10_000)
STEADY_RATE = 10_000
STEADY_S = 20
STEADY_P99_MS_MAX = 100
COLUMNS = ("late", "late, broker there", "late at consumer")
PERCENTILES = ("p50", "p90", "p99", "max")


def main() -> int:
    args = arguments()
    directory = Path(tempfile.mkdtemp(prefix="cometmq-delays-"))
    results: list[dict[str, object]] = []
    try:
        for case in args.cases.split(","):
            for broker in brokers(args, directory):
                broker.port = quiet_port()
                found = asyncio.run(scenario(case, args).run(broker))
                results.append({"case": case, "broker": broker.name, **found})
                print(line_of(results[-1]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(results, indent=1) if args.json else table(results))
    return 0 if all(good(result) for result in results) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.delays",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=100_000, help="messages of kill and calm (100000)")
    parser.add_argument("--rate", type=float, default=5_000, help="sends a second of kill and calm (5000)")
    parser.add_argument("--steady-rate", type=float, default=STEADY_RATE, help="due a second (10000)")
    parser.add_argument("--cases", default="kill,calm,steady")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    unknown = set(args.cases.split(",")) - {"kill", "calm", "steady"}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}: there are kill, calm and steady")
    return args


def brokers(args: argparse.Namespace, directory: Path) -> list[Comet | KillableJava]:
    found: list[Comet | KillableJava] = [Comet(directory / "comet")]
    if args.no_java:
        return found
    if shutil.which("java") is None or not SCRIPTS.exists():
        print("No Java peer here: measuring CometMQ alone.", file=sys.stderr)
        return found
    return [*found, KillableJava(directory / "java", SCRIPTS)]


def scenario(case: str, args: argparse.Namespace) -> Scenario:
    if case == "steady":
        count = round(args.steady_rate * STEADY_S)
        return Scenario(case, Load("Delays", count, args.steady_rate, LEVELS_MS), whole_pace_only=True)
    load = Load("Delays", args.count, args.rate, LEVELS_MS)
    sending_s = args.count / args.rate
    return Scenario(case, load, (sending_s / 3, sending_s * 2 / 3) if case == "kill" else ())


def good(result: dict[str, object]) -> bool:
    """The bars of our broker; the peer is only shown."""
    if result["broker"] != Comet.name:
        return True
    late = result["late"]
    assert isinstance(late, dict)
    in_time = result["case"] != "steady" or late.get("p99", sys.maxsize) <= STEADY_P99_MS_MAX
    return result["lost"] == 0 and result["early"] == 0 and in_time


def line_of(result: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in result.items())


def table(results: list[dict[str, object]]) -> str:
    """Markdown: one line per case and broker; lateness in milliseconds as p50 / p90 / p99 / max."""
    lines = [
        f"| case | broker | messages | lost | early | doubled | away ms | {' | '.join(COLUMNS)} |",
        "|" + "---|" * (7 + len(COLUMNS)),
    ]
    for result in results:
        plain = [result[name] for name in ("case", "broker", "messages", "lost", "early", "doubled")]
        away = ", ".join(map(str, _list(result["away ms"]))) or "–"
        late = [shown(result[column]) for column in COLUMNS]
        lines.append(f"| {' | '.join(map(str, [*plain, away, *late]))} |")
    return "\n".join(["lateness: ms, " + " / ".join(PERCENTILES), "", *lines])


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def shown(percentiles: object) -> str:
    assert isinstance(percentiles, dict)
    return " / ".join(f"{percentiles[name]:,}" for name in PERCENTILES if name in percentiles) or "–"


if __name__ == "__main__":
    sys.exit(main())
