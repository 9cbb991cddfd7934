"""Alternate the Java client and ours against one cluster and print the rates of each round.

    python -m bench.clients --servers 127.0.0.1:9876 --java-lib DIR [--rounds 3] [--count 60000]

``--java-lib`` is a directory with the jars of the RocketMQ 4.9.7 client. Only rates of one run may be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cometmq import Client, Message, ReceivedMessage, StartFrom

HERE = Path(__file__).parent
TOPIC = "ClientBench"
SIZE = 1024
TASKS = 256
WARM_UP = 20_000
QUIET = "<configuration><root level='ERROR'/></configuration>"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", default="127.0.0.1:9876")
    parser.add_argument("--java-lib", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--part", choices=("send", "consume"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part is not None:
        print("RATE", round(asyncio.run(measure(args.part, args.servers, args.count))))
        return 0
    asyncio.run(create(args.servers))
    for part in ("send", "consume"):
        rates: dict[str, list[int]] = {"ours": [], "java": []}
        for _ in range(args.rounds):
            rates["ours"].append(ours(part, args))
            if args.java_lib is not None:
                rates["java"].append(java(part, args))
        for who, found in rates.items():
            if found:
                print(f"{part:<8} {who:<5} median {statistics.median(found):>9,.0f}/s  rounds {found}")
    return 0


async def create(servers: str) -> None:
    async with Client(servers) as mq:
        await mq.admin.create_topic(TOPIC, queues=8)


def rate_of(command: list[str]) -> int:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split("RATE", 1)[1].split()[0])


def ours(part: str, args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "bench.clients", "--part", part]
    return rate_of([*command, "--servers", args.servers, "--count", str(args.count)])


def java(part: str, args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "logback.xml"
        config.write_text(QUIET)
        path = f"{args.java_lib}/*"
        subprocess.run(
            ["javac", "-nowarn", "-cp", path, "-d", directory, str(HERE / "ClientBench.java")], check=True
        )
        command = ["java", "-Xmx512m", "-Drocketmq.client.logUseSlf4j=true"]
        command += [f"-Dlogback.configurationFile={config}", "-cp", f"{path}:{directory}", "ClientBench"]
        numbers = [str(WARM_UP), str(args.count), str(TASKS), str(SIZE)]
        return rate_of([*command, part, args.servers, TOPIC, *numbers])


async def measure(part: str, servers: str, count: int) -> float:
    async with Client(servers) as mq:
        return await (send(mq, count) if part == "send" else consume(mq, count))


async def send(mq: Client, count: int) -> float:
    producer = mq.producer("bench", timeout=30.0)
    body = bytes(SIZE)

    async def run(total: int) -> None:
        left = total

        async def worker() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send(Message(TOPIC, body))

        await asyncio.gather(*(worker() for _ in range(TASKS)))

    await run(WARM_UP)
    began = time.perf_counter()
    await run(count)
    return count / (time.perf_counter() - began)


async def consume(mq: Client, count: int) -> float:
    got, first = 0, 0.0
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal got, first
        first = first or time.perf_counter()
        got += 1
        if got >= count:
            done.set()

    consumer = mq.consumer(f"bench-{time.time_ns()}", TOPIC, start=StartFrom.FIRST)
    task = asyncio.ensure_future(consumer.run(handle))
    await done.wait()
    rate = count / (time.perf_counter() - first)
    await consumer.aclose()
    await task
    return rate


if __name__ == "__main__":
    raise SystemExit(main())
