"""One run of the delay benchmark: start a broker, warm it, load it, kill it meanwhile, wait for all, count."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.delays.figures import Span, figures_of
from bench.delays.load import Load, Reader, Sender, originals
from bench.macro.servers import Comet, Java, wait_for_port
from cometmq.clock import now_ms

WARM_COUNT = 10_000
WARM_RATE = 5_000
READY_LIMIT_S = 30
DRAIN_S = 60  # how long the last messages may be overdue before they count as lost
SETTLE_S = 0.5  # for copies that come once more
PROGRESS_S = 2.0


@dataclass
class Scenario:
    """``kills_at_s``: when the broker is killed, in seconds after the first send."""

    name: str
    load: Load
    kills_at_s: tuple[float, ...] = ()
    whole_pace_only: bool = False  # count lateness only while every level is due at its full pace
    away_ms: list[Span] = field(default_factory=list)

    async def run(self, broker: Comet | Java) -> dict[str, object]:
        await asyncio.to_thread(start, broker)
        try:
            await self._warm(broker)
            return await self._measure(broker)
        finally:
            await asyncio.to_thread(lambda: broker.stop(kill=True))
            broker.wipe()

    async def _warm(self, broker: Comet | Java) -> None:
        """The same treatment for both: a JVM is slow at first, and our topics are not known to the compiled path."""
        load = Load("DelaysWarm", WARM_COUNT, WARM_RATE, self.load.delays_ms[:1])
        sender, reader = Sender("127.0.0.1", broker.port, load), Reader(broker.address, load.topic)
        reader.start()
        await sender.run()
        await until(lambda: len(reader.copies) >= load.count, DRAIN_S)
        await reader.close()

    async def _measure(self, broker: Comet | Java) -> dict[str, object]:
        load = self.load
        sender, reader = Sender("127.0.0.1", broker.port, load), Reader(broker.address, load.topic)
        reader.start()
        progress = asyncio.ensure_future(self._progress(broker, sender, reader))
        began_ms = now_ms()
        killing = asyncio.ensure_future(self._kill(broker))
        await sender.run()
        ended_ms = now_ms()
        await killing
        await until(lambda: len(reader.copies) >= load.count, max(load.delays_ms) / 1000 + DRAIN_S)
        await asyncio.sleep(SETTLE_S)
        stored = await originals(broker.address, load)
        progress.cancel()
        await reader.close()
        figures = figures_of(load, stored, reader.copies, self.away_ms, self._window(began_ms, ended_ms))
        return {
            **figures,
            "sends repeated": sender.repeated,
            "seconds": round((now_ms() - began_ms) / 1000, 1),
        }

    def _window(self, began_ms: int, ended_ms: int) -> Span:
        if not self.whole_pace_only:
            return 0, sys.maxsize
        return began_ms + max(self.load.delays_ms), ended_ms + min(self.load.delays_ms)

    async def _kill(self, broker: Comet | Java) -> None:
        began = time.monotonic()
        for at_s in self.kills_at_s:
            await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
            killed_ms = now_ms()
            await asyncio.to_thread(lambda: broker.stop(kill=True))
            await asyncio.to_thread(start, broker)
            self.away_ms.append((killed_ms, now_ms()))

    async def _progress(self, broker: Comet | Java, sender: Sender, reader: Reader) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(PROGRESS_S)
            state = f"stored {sender.acknowledged_count:,}, delivered {len(reader.copies):,} of {self.load.count:,}"
            print(
                f"  {self.name} {broker.name}: {time.monotonic() - began:3.0f} s, {state}, "
                f"killed {len(self.away_ms)} times", file=sys.stderr, flush=True,
            )  # fmt: skip


def start(broker: Comet | Java) -> None:
    broker.start()
    try:
        wait_for_port(broker.port, READY_LIMIT_S)
    except OSError:
        log = broker.directory / "log"
        raise SystemExit(
            f"{broker.name} is not ready: {log.read_text()[-500:] if log.exists() else ''}"
        ) from None


async def until(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - the load is not told to signal
        await asyncio.sleep(0.05)
