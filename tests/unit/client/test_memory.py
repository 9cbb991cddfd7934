"""Memory does not grow with the number of messages."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from cometmq import Client, Message, ReceivedMessage, StartFrom
from cometmq.testing import LocalBroker, eventually

ROUND = 3_000
# Bytes per round after the first ones; the messages themselves have three times as much
GROWTH_MAX = 512 * 1024


def test_sending_and_consuming_leaves_nothing_behind() -> None:
    with LocalBroker() as broker:
        asyncio.run(_rounds(broker))


async def _rounds(broker: LocalBroker) -> None:
    body = b"x" * 512
    got = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal got
        got += 1

    async with broker.client() as mq:
        await mq.admin.create_topic("t", queues=4)
        consumer = mq.consumer("g", "t", start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        sizes = []
        tracemalloc.start()
        for number in range(4):
            await _send(mq, body)
            await eventually(lambda wanted=(number + 1) * ROUND: got >= wanted, 60)
            gc.collect()
            client_files = tracemalloc.Filter(True, "*/cometmq/client/*")
            snapshot = tracemalloc.take_snapshot().filter_traces([client_files])
            sizes.append(sum(one.size for one in snapshot.statistics("filename")))
        tracemalloc.stop()
        await consumer.aclose()
        await task
    assert sizes[-1] - sizes[1] < GROWTH_MAX, sizes


async def _send(mq: Client, body: bytes) -> None:
    producer = mq.producer("p", timeout=60.0)  # all at once, and tracing of allocations is slow
    for _ in range(ROUND):
        producer.send_soon(Message("t", body))
    await producer.flush()
    await producer.aclose()
