"""Real clients of ours beside the raw ones: ordered consumers (F-34), delayed and transaction messages (F-35)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

from ha.history import History, boot_ns
from ha.workload import TOPIC

from cometmq import Client, Message, ReceivedMessage, StartFrom, TransactionState
from cometmq.errors import CometMQError
from cometmq.testing.group_processes import GroupProcesses

LONG_NS = 3_600_000_000_000
MS = 1_000_000
CLOCK_NS = 2 * MS  # store times are whole milliseconds
FINISH_S = 90.0
ORDERED_GROUP = "in-order"
LATER, DEALS = "Later", "Deals"
LEVELS = 18
SETTINGS = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in range(1, LEVELS + 1)),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000",
}


class OrderedConsumers:
    """Three members of one group; a queue is handled by one at a time, message after message, none left out.

    ``lock`` and ``unlock`` in the history are the begin and the end of a handler: nobody else may be in one.
    """

    def __init__(self, group: GroupProcesses, history: History, members: int = 3) -> None:
        self.problems: list[str] = []
        self._group, self._history, self._members = group, history, members
        self._clients: list[Client] = []
        self._running: list[asyncio.Task[None]] = []
        self._last: dict[int, int] = {}  # queue -> highest offset handled
        self._own: dict[tuple[str, int], int] = {}
        self._number = 0
        self._again = 0

    async def start(self) -> None:
        for _ in range(self._members):
            await self._join()

    async def _join(self) -> None:
        self._number += 1
        name = f"member-{self._number}"
        client = Client(self._group.name_server, instance_name=name)
        await client.start()
        consumer = client.consumer(ORDERED_GROUP, TOPIC, ordered=True, start=StartFrom.FIRST)
        self._clients.append(client)

        async def handle(message: ReceivedMessage) -> None:
            await self._handle(name, message)

        self._running.append(asyncio.create_task(consumer.run(handle)))

    async def _handle(self, name: str, message: ReceivedMessage) -> None:
        queue, offset = message.queue.queue_id, message.offset
        where = {"group": ORDERED_GROUP, "topic": TOPIC, "queue": queue}
        self._history.add(name, "lock", **where, until=boot_ns() + LONG_NS)
        seek = self._own.get((name, queue), -2) + 1 != offset
        self._history.add(
            name, "read", topic=TOPIC, queue=queue, offset=offset, key=message.keys[0], seek=seek
        )
        last = self._last.get(queue, -1)
        if offset > last + 1:
            self.problems.append(f"H5: {name} got {TOPIC} {queue} {offset}, the one before it was {last}")
        self._again += offset <= last
        self._last[queue], self._own[name, queue] = max(last, offset), offset
        await asyncio.sleep(0)
        self._history.add(name, "unlock", **where)

    async def disturb(self) -> None:
        """One member leaves, another one comes."""
        client, task = self._clients.pop(0), self._running.pop(0)
        await client.aclose()
        await asyncio.gather(task, return_exceptions=True)
        await self._join()

    async def finish(self, ends: dict[int, int]) -> None:
        """Wait until the members have had everything."""
        async with asyncio.timeout(FINISH_S):
            while any(self._last.get(queue, -1) + 1 < end for queue, end in ends.items()):
                for task in self._running:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        await asyncio.gather(*self._running, return_exceptions=True)


class DelayedAndTransactions:
    """Messages of all delay levels, and transactions that are committed, rolled back, or left open."""

    def __init__(self, group: GroupProcesses, history: History) -> None:
        self.problems: list[str] = []
        self._history = history
        self._client = Client(group.name_server, instance_name="shop")
        self._decided: dict[str, TransactionState] = {}
        self._wanted: set[str] = set()  # keys that must arrive
        self._arrived: set[str] = set()
        self._open: set[str] = set()
        self._checked: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        await self._client.start()
        for topic in (LATER, DEALS):
            await self._create(topic)
        consumer = self._client.consumer("patient", {LATER: "*", DEALS: "*"}, start=StartFrom.FIRST)
        self._tasks = [
            asyncio.create_task(consumer.run(self._read)),
            asyncio.create_task(self._send_later()),
            asyncio.create_task(self._deal()),
        ]

    async def _create(self, topic: str) -> None:
        async with asyncio.timeout(FINISH_S):
            while True:
                try:
                    return await self._client.admin.create_topic(topic)
                except CometMQError:  # a new master may change nothing before its first lease
                    await asyncio.sleep(0.2)

    async def _read(self, message: ReceivedMessage) -> None:
        key = message.keys[0]
        self._arrived.add(key)
        # When it could be read: the broker's part. When this consumer got its queues is not the question.
        visible = int(message.store_time * 1e9) + boot_ns() - time.time_ns()
        where = {"topic": message.topic, "queue": message.queue.queue_id, "offset": message.offset}
        self._history.add("patient", "read", **where, key=key, seek=True, t=visible)

    async def _send_later(self) -> None:
        producer = self._client.producer("later-producers")
        number = 0
        while not self._stopped.is_set():
            number += 1
            level = 1 + number % LEVELS
            key = f"later-{number}"
            due = boot_ns() + level * 1_000 * MS - CLOCK_NS
            known = {"topic": LATER, "key": key, "level": "insync", "due": due, "retried": True}
            self._history.add("later", "send", "invoke", **known)
            try:
                result = await producer.send(Message(LATER, key.encode(), keys=key, delay_level=level))
            except CometMQError:
                self._history.add("later", "send", "info", **known)
            else:
                self._history.add("later", "send", "ok" if result.ok else "info", **known)
                if result.ok:
                    self._wanted.add(key)
            await asyncio.sleep(0.02)

    async def _deal(self) -> None:
        producer = self._client.transactional("dealers", check=self._check)
        number = 0
        while not self._stopped.is_set():
            number += 1
            key = f"deal-{number}"
            state = random.choice(list(TransactionState))
            try:
                half = await producer.prepare(Message(DEALS, key.encode(), keys=key))
            except CometMQError:
                self._history.add("dealer", "half", "info", key=key)
                continue
            self._history.add("dealer", "half", key=key)
            if state is TransactionState.UNKNOWN:
                self._open.add(key)
            else:
                self._decided[key] = state
                self._history.add("dealer", "decide", key=key, value=state.name.lower())
                await producer.finish(half, state)
                if state is TransactionState.COMMIT:
                    self._wanted.add(key)
            await asyncio.sleep(0.05)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        key = message.keys[0]
        self._checked[key] = boot_ns()
        self._history.add("dealer", "check", key=key)
        return self._decided.get(key, TransactionState.UNKNOWN)

    async def disturb(self) -> None:
        """Nothing: its clients stay."""

    async def finish(self, ends: dict[int, int]) -> None:
        """Wait until all that is due has come and every open transaction was asked about again."""
        self._stopped.set()
        await asyncio.gather(*self._tasks[1:])
        since = boot_ns()
        with contextlib.suppress(TimeoutError):  # the checker says what is missing
            async with asyncio.timeout(FINISH_S):
                while self._wanted - self._arrived or any(
                    self._checked.get(key, 0) < since for key in self._open
                ):
                    await asyncio.sleep(0.1)

    async def close(self) -> None:
        self._stopped.set()
        await self._client.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


Application = OrderedConsumers | DelayedAndTransactions
