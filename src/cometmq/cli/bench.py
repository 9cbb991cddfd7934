"""Measure a cluster with this client: send or consume, with a progress bar."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, run_verb, verbs_of
from cometmq.cli.parser import count
from cometmq.cli.render import Facts, Output, Progress

if TYPE_CHECKING:
    from cometmq.client.client import Client
    from cometmq.client.message import ReceivedMessage

run = run_verb

TOPIC_DEFAULT = "CometBench"
CONSUME_IDLE_S = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    send = add_verb(verbs, "send", bench_send, "awaited sends in many tasks")
    _common(send)
    send.add_argument("--size", type=count, default=1024, help="bytes of a body (1024)")
    send.add_argument("--tasks", type=count, default=256, help="sends at a time (256)")
    send.add_argument("--batch", type=count, default=1, help="messages in one request (1)")
    consume = add_verb(verbs, "consume", bench_consume, "a new group reads the topic from its begin")
    _common(consume)
    consume.add_argument("--concurrency", type=count, default=20, help="messages in work at a time (20)")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", default=TOPIC_DEFAULT, help=f"({TOPIC_DEFAULT})")
    parser.add_argument("-c", "--count", type=count, default=100_000, help="messages (100000)")
    parser.add_argument("--queues", type=count, default=8, help="queues if the topic is made (8)")


async def bench_send(client: Client, args: argparse.Namespace) -> Output:
    from cometmq.protocol.message import Message

    await client.admin.create_topic(args.topic, queues=args.queues)
    producer = client.producer("cometmq-bench")
    progress = Progress("sending", args.count)
    latencies: list[float] = []
    body = b"x" * args.size
    left = args.count

    async def one() -> None:
        nonlocal left
        while left > 0:
            size = min(args.batch, left)
            left -= size
            began = time.perf_counter()
            if size > 1:
                await producer.send_batch([Message(args.topic, body) for _ in range(size)])
            else:
                await producer.send(Message(args.topic, body))
            latencies.append(time.perf_counter() - began)
            progress.advance(size)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(args.tasks)))
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    progress.close()
    return Facts(
        {
            "messages": args.count,
            **_figures(args.count, args.size, elapsed_s, cpu_s),
            **percentiles(latencies),
        }
    )


async def bench_consume(client: Client, args: argparse.Namespace) -> Output:
    from cometmq.client.consumer.options import StartFrom

    progress = Progress("consuming", args.count)
    done = asyncio.Event()
    size = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal size
        size += message.stored_body_size
        progress.advance()
        if progress.count >= args.count:
            done.set()

    consumer = client.consumer(
        f"cometmq-bench-{time.time_ns()}", args.topic, start=StartFrom.FIRST, concurrency=args.concurrency
    )
    began, cpu = time.perf_counter(), time.process_time()
    task = asyncio.ensure_future(consumer.run(handle))
    await _until_done(done, progress)
    elapsed_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    progress.close()
    await consumer.aclose()
    await task
    count = progress.count
    return Facts({"messages": count, **_figures(count, size // max(1, count), elapsed_s, cpu_s)})


async def _until_done(done: asyncio.Event, progress: Progress) -> None:
    """Until all came, or none came for a while: the topic holds fewer."""
    seen = -1
    while not done.is_set() and progress.count != seen:
        seen = progress.count
        try:
            await asyncio.wait_for(done.wait(), CONSUME_IDLE_S)
        except TimeoutError:
            continue


def _figures(count: int, size: int, elapsed_s: float, cpu_s: float) -> dict[str, Any]:
    return {
        "seconds": round(elapsed_s, 3),
        "messages/s": round(count / elapsed_s),
        "MB/s": round(count * size / elapsed_s / 1e6, 1),
        "client CPU us/message": round(cpu_s / max(1, count) * 1e6, 1),
    }


def percentiles(values: list[float]) -> dict[str, Any]:
    """In milliseconds.

    >>> percentiles([0.001, 0.002, 0.003])["p50 ms"]
    2.0
    """
    ranked = sorted(values)
    if not ranked:
        return {}
    picks = {"p50 ms": 0.5, "p90 ms": 0.9, "p99 ms": 0.99, "p99.9 ms": 0.999}
    found = {
        name: round(ranked[min(len(ranked) - 1, int(len(ranked) * at))] * 1000, 3)
        for name, at in picks.items()
    }
    return {**found, "max ms": round(ranked[-1] * 1000, 3)}
