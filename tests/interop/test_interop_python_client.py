"""Our client: its whole suite on both kinds of servers, and side by side with the Java client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from rig.clients import JavaClients
from rig.servers import Cluster
from rig.waiting import wait_for

from cometmq import Client, Message, ReceivedMessage, StartFrom, TransactionState

HERE = Path(__file__).parent
SUITE = HERE.parent / "unit" / "client"
MEMBER = HERE / "rig" / "python_member.py"
SUITE_SECONDS_MAX = 400
NEW_GROUPS = 100


def run(work: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
    return asyncio.run(asyncio.wait_for(work, timeout))


def test_the_whole_client_suite_passes(cluster: Cluster) -> None:
    files = [
        "test_producer.py",
        "test_consumer.py",
        "test_stream.py",
        "test_client_transactions.py",
        "test_sync.py",
    ]
    files += ["test_isolation.py", "test_send_frames.py"]
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "90",
            f"--cometmq-servers={cluster.namesrv}", *(str(SUITE / name) for name in files),
        ],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS_MAX,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_first_offsets_of_a_group_are_all_kept(cluster: Cluster, topic: str, group: str) -> None:
    """Java's broker keeps one of those that come at once, in about one of ten new groups, and confirms them all."""

    async def work() -> None:
        async with Client(cluster.namesrv) as mq:
            queues = await mq.admin.queues(topic)
            for n in range(NEW_GROUPS):
                async with mq.stream(f"{group}-{n}", assign=queues, auto_commit=False) as stream:
                    await stream.commit(dict.fromkeys(queues, 1))
                    assert [await stream.committed(queue) for queue in queues] == [1] * len(queues)

    run(work())


class Member:
    """One of our consumers as a process; ``lines`` are (queue, offset, body) in the order handled."""

    def __init__(self, cluster: Cluster, group: str, topic: str, *, ordered: bool = False) -> None:
        extra = ["ordered"] if ordered else []
        self.process = subprocess.Popen(
            [sys.executable, str(MEMBER), cluster.namesrv, group, topic, *extra],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        self.lines: list[tuple[int, int, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            queue, offset, body = line.rstrip("\n").split(" ", 2)
            self.lines.append((int(queue), int(offset), body))

    @property
    def bodies(self) -> list[str]:
        return [body for _, _, body in self.lines]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def steady(cluster: Cluster, topic: str, count: int, events: dict[int, Callable[[], object]]) -> None:
    """Send numbered messages at an even pace; at given numbers something happens meanwhile."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with Client(cluster.namesrv) as mq:
            producer = mq.producer("steady")
            happening = []
            for number in range(count):
                if number in events:
                    happening.append(loop.run_in_executor(None, events[number]))
                await producer.send(Message(topic, b"%d" % number), ordering_key=str(number % 16))
                await asyncio.sleep(0.002)
            await asyncio.gather(*happening)

    run(work(), 120)


def test_a_mixed_group_shares_queues_while_members_come_go_and_crash(
    java: JavaClients, cluster: Cluster, group: str
) -> None:
    topic = java.admin(cluster.namesrv).create_topic(f"Mixed{group}", queues=8)
    count = 3000
    first = java.push(cluster.namesrv, group, {topic: "*"})
    ours = Member(cluster, group, topic)
    others: dict[str, Any] = {}
    steady(
        cluster,
        topic,
        count,
        {
            500: lambda: others.update(crashing=Member(cluster, group, topic)),
            1500: lambda: others["crashing"].kill(),
            1800: lambda: others.update(java=java.push(cluster.namesrv, group, {topic: "*"})),
            2400: lambda: others["java"].stop(),
        },
    )

    def counts() -> Counter[str]:
        return Counter([*first.bodies, *ours.bodies, *others["crashing"].bodies, *others["java"].bodies])

    wanted = {str(number) for number in range(count)}
    wait_for(lambda: set(counts()) >= wanted, "every message at least once", 60)
    assert all(member.bodies for member in (first, ours, others["crashing"]))
    ours.kill()
    duplicates = sum(counts().values()) - count
    assert duplicates < count * 0.01, f"{duplicates} of {count} were delivered twice"


def test_queues_are_split_as_the_java_client_splits_them(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Client(cluster.namesrv) as mq, mq.consumer(group, topic) as ours:
            theirs = await loop.run_in_executor(None, lambda: java.push(cluster.namesrv, group, {topic: "*"}))

            def split() -> bool:
                mine = {(queue.broker_name, queue.queue_id) for queue in ours.assignment()}
                other = set(theirs.queues())
                return len(mine) == len(other) == 2 and not mine & other

            await loop.run_in_executor(None, lambda: wait_for(split, "two queues each", 45))
            await loop.run_in_executor(None, theirs.stop)
            await loop.run_in_executor(None, lambda: wait_for(lambda: len(ours.assignment()) == 4, "all", 30))

    run(main(), 100)


def test_a_mixed_ordered_group_keeps_the_order_of_every_queue(
    java: JavaClients, cluster: Cluster, group: str
) -> None:
    topic = java.admin(cluster.namesrv).create_topic(f"Ordered{group}", queues=4)
    count = 1500
    theirs = java.push(cluster.namesrv, group, {topic: "*"}, orderly=True)
    ours = Member(cluster, group, topic, ordered=True)
    third: dict[str, Member] = {}
    steady(
        cluster,
        topic,
        count,
        {
            500: lambda: third.update(one=Member(cluster, group, topic, ordered=True)),
            1000: lambda: third["one"].kill(),
        },
    )
    wanted = {str(number) for number in range(count)}
    # A killed member's locks live on at the broker for a while.
    wait_for(lambda: {*theirs.bodies, *ours.bodies, *third["one"].bodies} >= wanted, "every message", 120)
    ours.kill()
    for member in (ours.lines, third["one"].lines):
        by_queue: dict[int, list[int]] = defaultdict(list)
        for queue, offset, _ in member:
            by_queue[queue].append(offset)
        assert all(offsets == sorted(offsets) for offsets in by_queue.values())
    by_queue = defaultdict(list)
    for event in sorted(theirs.messages, key=lambda event: event["delivery"]):
        by_queue[event["queue"]].append(event["offset"])
    assert all(offsets == sorted(offsets) for offsets in by_queue.values())


def test_messages_of_java_arrive_whole_here(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    large = "a large body that the Java client compresses " * 500
    producer = java.producer(cluster.namesrv)
    producer.send(topic, large, tags="t", keys="k1 k2")
    producer.send_batch([{"topic": topic, "body": "b1"}, {"topic": topic, "body": "b2"}])

    async def main() -> list[ReceivedMessage]:
        got: list[ReceivedMessage] = []
        async with (
            Client(cluster.namesrv) as mq,
            mq.consumer(group, topic, start=StartFrom.FIRST) as consumer,
        ):
            async for message in consumer:
                async with message.process():
                    got.append(message)
                if len(got) == 3:
                    return got
        return got

    found = {message.body: message for message in run(main())}
    assert set(found) == {large.encode(), b"b1", b"b2"}
    assert (found[large.encode()].tag, found[large.encode()].keys) == ("t", ["k1", "k2"])


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_our_messages_arrive_whole_at_java(
    java: JavaClients, cluster: Cluster, topic: str, group: str, compression: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    large = "compressed " * 20

    async def main() -> None:
        async with Client(cluster.namesrv, compression=compression, compress_over_bytes=100) as mq:
            producer = mq.producer("p")
            await producer.send(Message(topic, large.encode(), tag="t", keys=["k1"]))
            await producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2")])
            await producer.send_oneway(Message(topic, b"oneway"))

    run(main())
    consumer.wait_bodies({large, "b1", "b2", "oneway"})


def test_requests_are_answered_across_languages(java: JavaClients, cluster: Cluster, group: str) -> None:
    admin = java.admin(cluster.namesrv)
    to_us, to_java = admin.create_topic(f"ToUs{group}"), admin.create_topic(f"ToJava{group}")
    java.push(
        cluster.namesrv, group + "j", {to_java: "*"}, script={"ping": ["REPLY:pong from java"]}, replies=True
    )

    async def main() -> tuple[bytes, str]:
        loop = asyncio.get_running_loop()
        async with Client(cluster.namesrv) as mq:

            async def answer(message: ReceivedMessage) -> bytes:
                return b"pong " + message.body

            consumer = mq.consumer(group, to_us, start=StartFrom.FIRST)
            task = asyncio.ensure_future(consumer.run(answer))
            producer = java.producer(cluster.namesrv)
            theirs = await loop.run_in_executor(None, lambda: producer.request(to_us, "ping"))
            ours = await mq.producer("p").request(Message(to_java, b"ping"), timeout=20)
            await consumer.aclose()
            await task
            return ours.body, theirs["body"]

    assert run(main()) == (b"pong from java", "pong ping")


def test_a_message_that_failed_here_is_retried_at_java(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    java.known_group(cluster.namesrv, group, topic)
    java.producer(cluster.namesrv).send(topic, "try again", keys="k")

    async def fail_once() -> None:
        async with (
            Client(cluster.namesrv) as mq,
            mq.consumer(group, topic, start=StartFrom.FIRST) as consumer,
        ):
            async for message in consumer:
                await message.retry(delay_level=1)
                return

    run(fail_once())
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    (event,) = consumer.wait_bodies({"try again"})[:1]
    assert event["reconsumeTimes"] == 1
    assert event["topic"] == topic


def test_our_transactions_are_checked_by_any_broker(
    cluster: Cluster, java: JavaClients, topic: str, group: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"})

    async def main() -> None:
        async with Client(cluster.namesrv) as mq:
            asked = asyncio.Event()
            loop = asyncio.get_running_loop()

            def check(message: ReceivedMessage) -> TransactionState:
                loop.call_soon_threadsafe(asked.set)
                return TransactionState.COMMIT

            tx = mq.transactional(group + "tx", check=check)
            async with tx.begin(Message(topic, b"later")) as half:
                half.unknown()
            async with tx.begin(Message(topic, b"now")):
                pass
            await asyncio.wait_for(asked.wait(), 60)

    run(main(), 90)
    consumer.wait_bodies({"now", "later"}, 60)
