"""An isolated client: the application's loop may block, the network goes on."""

from __future__ import annotations

import asyncio
import threading
import time

from cometmq import Client, Message, ReceivedMessage, Retry, StartFrom, TransactionState
from cometmq.testing import LocalBroker, eventually


async def test_everything_works_across_the_two_loops(cometmq_servers: str, topic: str, group: str) -> None:
    async with Client(cometmq_servers, isolate=True) as mq:
        await mq.admin.create_topic(topic, queues=2)
        producer = mq.producer("p")
        for n in range(10):
            assert (await producer.send(Message(topic, b"%d" % n))).ok
        futures = [producer.send_soon(Message(topic, b"%d" % n)) for n in range(10, 20)]
        await producer.flush()
        assert all(one.result().ok for one in await _settled(futures))
        got: list[bytes] = []
        async with mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            async for message in consumer:
                async with message.process():
                    got.append(message.body)
                if len(got) == 20:
                    break
            assert len(consumer.assignment()) == 2
        assert sorted(got, key=int) == [b"%d" % n for n in range(20)]
        await eventually(lambda: _no_lag(mq, group))
        async with mq.stream(group + "s", topic, start=StartFrom.FIRST) as stream:
            assert await stream.poll(5, timeout=5)
        tx = mq.transactional(group + "t", check=lambda _: TransactionState.COMMIT)
        async with tx.begin(Message(topic, b"tx")) as half:
            assert half.transaction_id


async def _settled(futures: list[asyncio.Future[object]]) -> list[asyncio.Future[object]]:
    await asyncio.wait(futures)
    return futures


async def _no_lag(mq: Client, group: str) -> bool:
    return sum((await mq.admin.lag(group)).values()) == 0


async def test_handlers_run_on_the_loop_of_the_application(
    cometmq_servers: str, topic: str, group: str
) -> None:
    async with Client(cometmq_servers, isolate=True) as mq:
        await mq.admin.create_topic(topic, queues=1)
        for n in range(3):
            await mq.producer("p").send(Message(topic, b"%d" % n))
        seen: list[tuple[str, int]] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append((threading.current_thread().name, message.reconsume_times))
            if message.body == b"1" and not message.reconsume_times:
                raise Retry(delay_level=1)

        consumer = mq.consumer(group, topic, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await eventually(lambda: len(seen) == 4, 15)
        await consumer.aclose()
        await task
        assert {name for name, _ in seen} == {threading.current_thread().name}
        assert sorted(times for _, times in seen) == [0, 0, 0, 1]


async def test_a_handler_that_blocks_the_loop_does_not_stop_heartbeats(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client(isolate=True, heartbeat_interval=0.05) as mq:
        await mq.producer("p").send(Message("t", b"x"))
        heartbeats = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal heartbeats
            with cometmq_broker.fault("heartbeat") as seen:
                time.sleep(0.6)  # blocks this loop on purpose
                heartbeats = seen.hits

        consumer = mq.consumer("g", "t", start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await eventually(lambda: heartbeats, 10)
        await consumer.aclose()
        await task
        assert heartbeats >= 3
