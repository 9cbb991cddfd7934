"""A handler that takes long: heartbeats go on, its queues stay where they are, the others work, nothing hangs.

The plain suite blocks for a second, the slow version for the 60 s of the issue (``pytest -m slow`` on this file).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from cometmq import Message, Queue, ReceivedMessage, StartFrom
from cometmq.testing import LocalBroker, eventually

GROUP, TOPIC, QUEUES = "g", "t", 4
SECONDS = [
    pytest.param(1.0, id="1s"),
    pytest.param(60.0, id="60s", marks=[pytest.mark.slow, pytest.mark.timeout(150)]),
]


class SlowMember:
    """A member of the group on a loop and thread of its own, whose first message takes long."""

    def __init__(self, broker: LocalBroker, kind: str, seconds: float) -> None:
        self._broker = broker
        self._kind = kind
        self._seconds = seconds
        self.began = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name="slow member", daemon=True
        )
        self.handled: list[bytes] = []
        self.queues: list[Queue] = []
        self.slow_done = threading.Event()

    def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        self._closing.set()
        await asyncio.to_thread(self._thread.join, 30)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        async with self._broker.client(heartbeat_interval=0.1, isolate=self._kind == "blocked loop") as mq:
            consumer = mq.consumer(GROUP, TOPIC, start=StartFrom.FIRST)
            task = asyncio.ensure_future(consumer.run(self._handler()))
            while not self._closing.is_set():
                self.queues = list(consumer.assignment())
                await asyncio.sleep(0.02)
            await consumer.aclose()
            await task

    def _handler(self) -> Callable[[ReceivedMessage], Awaitable[None] | None]:
        def in_thread(message: ReceivedMessage) -> None:
            if self._slow(message):
                time.sleep(self._seconds)
            self._done(message)

        async def awaiting(message: ReceivedMessage) -> None:
            if self._slow(message):
                await asyncio.sleep(self._seconds)
            self._done(message)

        async def blocking(message: ReceivedMessage) -> None:
            in_thread(message)  # here on the loop, which nobody should do

        return {"thread": in_thread, "await": awaiting, "blocked loop": blocking}[self._kind]

    def _slow(self, message: ReceivedMessage) -> bool:
        if message.body != b"slow":
            return False
        self.began.set()
        return True

    def _done(self, message: ReceivedMessage) -> None:
        self.handled.append(message.body)
        if message.body == b"slow":
            self.slow_done.set()


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize("kind", ["thread", "await", "blocked loop"])
async def test_a_slow_handler_keeps_its_place_in_the_group(
    cometmq_broker: LocalBroker, kind: str, seconds: float
) -> None:
    others: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        others.append(message.body)

    slow = SlowMember(cometmq_broker, kind, seconds)
    async with cometmq_broker.client(heartbeat_interval=3_600) as mq:
        await mq.admin.create_topic(TOPIC, queues=QUEUES)
        producer = mq.producer("p")
        slow.start()
        consumer = mq.consumer(GROUP, TOPIC, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await eventually(lambda: len(consumer.assignment()) == len(slow.queues) == QUEUES // 2, 20)
        await producer.send(Message(TOPIC, b"slow"), queue=slow.queues[0])
        await eventually(slow.began.is_set, 20)
        with cometmq_broker.fault("heartbeat") as heartbeats:
            while not slow.slow_done.is_set():
                before = len(others)
                await asyncio.gather(*(producer.send(Message(TOPIC, b"quick")) for _ in range(QUEUES)))
                await eventually(lambda before=before: len(others) > before, 20)  # type: ignore[misc]
                members = await mq.admin.members(GROUP)
                assert members is not None
                assert len(members.connection_set) == 2
                assert len(consumer.assignment()) == QUEUES // 2
                await asyncio.sleep(0.1)
            assert heartbeats.hits >= seconds  # there should be ten a second
        await eventually(lambda: len(slow.queues) == QUEUES // 2, 20)
        await slow.close()
        assert slow.handled.count(b"slow") == 1  # done once, neither sent back nor given to another member
        assert b"slow" not in others
        await consumer.aclose()
        await task
