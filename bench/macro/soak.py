"""``python -m bench.macro.soak``: mixed load for half an hour: flat throughput, flat memory, no errors?

Sends of three sizes at half of what the broker can, consumers that pull, commit offsets, join and leave, and small log
files with a short life, so that retention cuts them all the time. One line a minute; a table at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.macro.generators import Mqload
from bench.macro.lives import anonymous_mb
from bench.macro.servers import Comet, wait_for_port
from cometmq import Client, StartFrom

SIZES = (128, 1024, 4096)
CONSUMERS_MAX = 4
FILE_SIZE = 64 << 20
OPTIONS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "fileReservedTime": "0",  # hours: every full file may go
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "deleteCommitLogFilesInterval": "100",
    "cleanResourceInterval": "4000",  # ms: a round removes ten files at most, and a minute fills 75 of them
}


@dataclass
class Minute:
    rate: float
    p999_us: float
    errors: int
    anonymous_mb: float
    consumed: int
    log_files: int


@dataclass
class Soak:
    broker: Comet
    mqload: Mqload
    rates: dict[int, int]
    consumed: int = 0
    minutes: list[Minute] = field(default_factory=list)

    async def send_for(self, seconds: float) -> list[dict[str, object]]:
        async def one(size: int) -> dict[str, object]:
            load = (
                f"send -size {size} -conns 4 -inflight 16 -rate {self.rates[size]} -seconds {seconds} -busyok"
                f" -topic soak{size}"
            )
            process = await asyncio.create_subprocess_exec(
                *self.mqload.command(self.broker, load), stdout=subprocess.PIPE
            )
            printed, _ = await process.communicate()
            result: dict[str, object] = json.loads(printed)
            return result

        return list(await asyncio.gather(*(one(size) for size in self.rates)))

    async def consumers_come_and_go(self, namesrv: str) -> None:
        """Members of one group per topic join and leave at random; their offsets are committed as they go."""
        rng = random.Random(1)
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(namesrv)) for _ in range(CONSUMERS_MAX)]
            while True:
                client, size = rng.choice(clients), rng.choice(SIZES)
                async with _reading(client, size) as stream:
                    until = time.monotonic() + rng.uniform(2, 15)
                    while time.monotonic() < until:
                        self.consumed += len(await stream.poll(timeout=1))

    def note(self, results: list[dict[str, object]], seconds: float) -> Minute:
        minute = Minute(
            rate=sum(float(str(result["msgs"])) for result in results) / seconds,
            p999_us=max(result["latency_us"]["p99.9"] for result in results),  # type: ignore[index]
            errors=sum(int(str(result["errors"])) for result in results),
            anonymous_mb=anonymous_mb(self.broker.pid),
            consumed=self.consumed,
            log_files=len(list((self.broker.directory / "store" / "commitlog").glob("0*"))),
        )
        self.minutes.append(minute)
        return minute


@contextlib.asynccontextmanager
async def _reading(client: Client, size: int) -> AsyncIterator[object]:
    async with client.stream(f"soak-readers-{size}", f"soak{size}", start=StartFrom.LAST) as stream:
        yield stream


async def run(args: argparse.Namespace, directory: Path, mqload: Mqload) -> list[Minute]:
    broker = Comet(directory / "comet", OPTIONS)
    broker.nameserver_port = args.nameserver_port
    broker.start()
    wait_for_port(broker.port)
    soak = Soak(broker, mqload, {size: args.rate // len(SIZES) for size in SIZES})
    readers: list[asyncio.Task[None]] = []
    try:
        await soak.send_for(2)  # makes the topics
        namesrv = f"127.0.0.1:{args.nameserver_port}"
        readers = [asyncio.create_task(soak.consumers_come_and_go(namesrv)) for _ in range(CONSUMERS_MAX)]
        for number in range(args.minutes):
            minute = soak.note(await soak.send_for(60), 60)
            print(f"{number + 1:3} min  {minute}", flush=True)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        broker.stop()
    return soak.minutes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.macro.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--rate", type=int, default=45_000, help="sends a second, over all sizes")
    parser.add_argument("--nameserver-port", type=int, default=19876)
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="cometmq-soak-"))
    try:
        mqload = Mqload.build(directory)
        if mqload is None:
            print("No mqload here (needs ../shared/bench/mqload and Go).")
            return 1
        minutes = asyncio.run(run(args, directory, mqload))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rates = [minute.rate for minute in minutes]
    memory = [minute.anonymous_mb for minute in minutes]
    print(
        f"rate {min(rates):,.0f} to {max(rates):,.0f}/s (median {statistics.median(rates):,.0f}); "
        f"anonymous memory {min(memory):.0f} to {max(memory):.0f} MB; errors {sum(m.errors for m in minutes)}; "
        f"p99.9 median {statistics.median(m.p999_us for m in minutes) / 1000:.1f} ms, "
        f"worst {max(m.p999_us for m in minutes) / 1000:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
