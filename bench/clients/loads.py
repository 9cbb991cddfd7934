"""What our client does in a run; each load is run by a process of its own (``--part``), as the Java client's are."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from cometmq import Client, Message, ReceivedMessage, StartFrom
from cometmq.sync import Client as SyncClient

TOPIC = "ClientBench"
MEMORY_TOPIC = "ClientBenchMemory"
SIZE = 1024
TASKS = 256
WARM_UP = 20_000
LATENCY_WARM_UP = 500
MEMORY_STEP = 100_000


async def create(servers: str) -> None:
    async with Client(servers) as mq:
        for topic in (TOPIC, MEMORY_TOPIC):
            await mq.admin.create_topic(topic, queues=8)


async def send(servers: str, count: int) -> float:
    """Messages a second, awaited in many tasks."""
    async with Client(servers) as mq:
        await send_awaited(mq, TOPIC, WARM_UP)
        began = time.perf_counter()
        await send_awaited(mq, TOPIC, count)
        return count / (time.perf_counter() - began)


async def send_awaited(mq: Client, topic: str, total: int) -> None:
    producer = mq.producer("bench", timeout=30.0)
    body = bytes(SIZE)
    left = total

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await producer.send(Message(topic, body))

    await asyncio.gather(*(worker() for _ in range(TASKS)))


async def consume(servers: str, count: int) -> float:
    """Messages a second of a push consumer of a new group, from the first message it gets."""
    async with Client(servers) as mq:
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


async def latency_async(servers: str, count: int) -> float:
    """Median microseconds of a send when one follows the other."""
    async with Client(servers) as mq:
        producer = mq.producer("bench")
        message = Message(TOPIC, bytes(SIZE))
        found = []
        for _ in range(LATENCY_WARM_UP + count):
            began = time.perf_counter()
            await producer.send(message)
            found.append(time.perf_counter() - began)
    return statistics.median(found[LATENCY_WARM_UP:]) * 1e6


def latency_sync(servers: str, count: int) -> float:
    with SyncClient(servers) as mq, mq.producer("bench") as producer:
        message = Message(TOPIC, bytes(SIZE))
        found = []
        for _ in range(LATENCY_WARM_UP + count):
            began = time.perf_counter()
            producer.send(message)
            found.append(time.perf_counter() - began)
    return statistics.median(found[LATENCY_WARM_UP:]) * 1e6


async def memory(servers: str, total: int) -> list[float]:
    """Resident MB of this process after every step: that many messages more were sent and consumed by it."""
    async with Client(servers) as mq:
        got = 0
        reached = asyncio.Condition()

        async def handle(message: ReceivedMessage) -> None:
            nonlocal got
            got += 1
            if got % MEMORY_STEP == 0:
                async with reached:
                    reached.notify_all()

        consumer = mq.consumer(f"bench-{time.time_ns()}", MEMORY_TOPIC, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        sizes = []
        for wanted in steps(total):
            await send_awaited(mq, MEMORY_TOPIC, MEMORY_STEP)
            async with reached:
                await reached.wait_for(lambda wanted=wanted: got >= wanted)  # type: ignore[misc]
            sizes.append(resident_mb())
            print(f"  {wanted:>9,} messages sent and consumed: resident {sizes[-1]:.1f} MB", flush=True)
        await consumer.aclose()
        await task
        return sizes


def steps(total: int) -> Iterator[int]:
    return iter(range(MEMORY_STEP, total + 1, MEMORY_STEP))


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
