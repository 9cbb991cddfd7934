"""Push consumers against a real broker: concurrent, ordered, broadcast, retries, filters, rebalance, drain."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq import (
    BrokerError,
    Client,
    ClientError,
    Message,
    ReceivedMessage,
    Reject,
    Retry,
    SqlFilter,
    StartFrom,
    TagFilter,
)
from cometmq.testing import LocalBroker, eventually


async def send_all(mq: Client, topic: str, bodies: list[bytes], **options: str) -> None:
    producer = mq.producer("senders")
    for body in bodies:
        await producer.send(Message(topic, body, **options))  # type: ignore[arg-type]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


async def take(consumer: object, count: int, timeout: float = 10.0) -> list[bytes]:
    """Bodies of the next messages, each acknowledged."""
    bodies: list[bytes] = []

    async def loop() -> None:
        async for message in consumer:  # type: ignore[attr-defined]
            async with message.process():
                bodies.append(message.body)
            if len(bodies) == count:
                return

    await asyncio.wait_for(loop(), timeout)
    return bodies


async def test_a_new_group_reads_from_the_first_message(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    await send_all(cometmq_client, topic, numbers(20))
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        assert sorted(await take(consumer, 20), key=int) == numbers(20)
        assert len(consumer.assignment()) == 4


async def test_a_message_is_delivered_as_soon_as_it_is_sent(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        await send_all(cometmq_client, topic, [b"warm"])
        assert await take(consumer, 1) == [b"warm"]
        await send_all(cometmq_client, topic, [b"x"])
        began = time.monotonic()
        assert await take(consumer, 1) == [b"x"]
        assert time.monotonic() - began < 1


async def test_a_restarted_group_goes_on_where_it_stopped(
    cometmq_servers: str, topic: str, group: str
) -> None:
    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(topic, queues=2)
        await send_all(mq, topic, numbers(10))
        async with mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            await take(consumer, 10)
    async with Client(cometmq_servers) as mq:
        assert sum((await mq.admin.lag(group)).values()) == 0
        await send_all(mq, topic, [b"10", b"11"])
        async with mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            assert sorted(await take(consumer, 2)) == [b"10", b"11"]


async def test_what_was_not_acknowledged_comes_again(cometmq_servers: str, topic: str, group: str) -> None:
    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(topic, queues=1)
        await send_all(mq, topic, numbers(3))
        async with mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            async for message in consumer:
                if message.body == b"1":
                    break  # forgotten: neither acknowledged nor refused
                await message.ack()
    async with Client(cometmq_servers) as mq, mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        assert await take(consumer, 2) == [b"1", b"2"]


async def test_handlers_run_concurrently_and_acknowledge_by_returning(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    await send_all(cometmq_client, topic, numbers(40))
    got: list[bytes] = []
    running = most = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        got.append(message.body)

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST, concurrency=8)
    task = asyncio.ensure_future(consumer.run(handle))
    await eventually(lambda: len(got) == 40)
    await consumer.aclose()
    await task
    assert sorted(got, key=int) == numbers(40)
    assert 1 < most <= 8


async def test_plain_functions_run_in_threads(cometmq_client: Client, topic: str, group: str) -> None:
    await send_all(cometmq_client, topic, numbers(8))
    seen: dict[bytes, str] = {}

    def handle(message: ReceivedMessage) -> None:
        time.sleep(0.02)
        seen[message.body] = threading.current_thread().name

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST, concurrency=4)
    task = asyncio.ensure_future(consumer.run(handle))
    await eventually(lambda: len(seen) == 8)
    await consumer.aclose()
    await task
    assert all(one.startswith("cometmq-") for one in seen.values())


async def test_a_batch_handler_gets_lists(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, numbers(20))
    batches: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        batches.append([one.body for one in messages])

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST, batch=8, concurrency=1)
    task = asyncio.ensure_future(consumer.run(handle))
    await eventually(lambda: sum(map(len, batches)) == 20)
    await consumer.aclose()
    await task
    assert [body for batch in batches for body in batch] == numbers(20)
    assert max(map(len, batches)) > 1


@dataclass(frozen=True)
class Order:
    id: str
    amount: int


async def test_decoded_bodies_come_first_when_asked_for(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await send_all(cometmq_client, topic, [b'{"id": "o-1", "amount": 5}'])
    got: list[tuple[Order, str]] = []

    async def handle(order: Order, message: ReceivedMessage) -> None:
        got.append((order, message.topic))

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST)
    task = asyncio.ensure_future(consumer.run(handle, decode=Order))
    await eventually(lambda: got)
    await consumer.aclose()
    await task
    assert got == [(Order("o-1", 5), topic)]


async def test_tags_are_filtered_exactly(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    producer = cometmq_client.producer("p")
    # "Aa" and "BB" have the same hash, which is all that the broker looks at.
    for tag in ("Aa", "BB", "c", "Aa"):
        await producer.send(Message(topic, tag.encode(), tag=tag))
    async with cometmq_client.consumer(group, {topic: TagFilter("Aa")}, start=StartFrom.FIRST) as consumer:
        assert await take(consumer, 2) == [b"Aa", b"Aa"]
        await consumer.commit()
    await eventually(lambda: True)
    assert sum((await cometmq_client.admin.lag(group)).values()) == 0


async def test_sql_filters_select_by_properties(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    producer = cometmq_client.producer("p")
    for amount in (50, 150, 99, 101):
        await producer.send(Message(topic, b"%d" % amount, properties={"amount": str(amount)}))
    async with cometmq_client.consumer(
        group, {topic: SqlFilter("amount > 100")}, start=StartFrom.FIRST
    ) as consumer:
        assert await take(consumer, 2) == [b"150", b"101"]


async def test_a_wrong_sql_filter_fails_at_start(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    consumer = cometmq_client.consumer(group, {topic: SqlFilter("amount >")})
    with pytest.raises(BrokerError):
        await consumer.start()


async def test_two_consumers_of_a_group_need_two_clients(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    async with cometmq_client.consumer(group, topic):
        with pytest.raises(ClientError, match="another Client"):
            await cometmq_client.consumer(group, topic).start()


async def test_a_topic_created_after_the_consumer_is_read_within_seconds(
    cometmq_client: Client, topic: str, group: str
) -> None:
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        assert consumer.assignment() == []
        await cometmq_client.admin.create_topic(topic, queues=2)
        await send_all(cometmq_client, topic, [b"x"])
        assert await take(consumer, 1) == [b"x"]


async def test_the_start_can_be_a_moment(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    for body in numbers(3):
        await send_all(cometmq_client, topic, [body])
        await asyncio.sleep(0.005)  # the Java broker may name any message of a millisecond
    queue = (await cometmq_client.admin.queues(topic))[0]
    messages, _ = await cometmq_client.admin.read(queue, 0)
    await cometmq_client.admin.set_offset(group, queue, 0)
    assert await cometmq_client.admin.committed(group, queue) == 0
    assert await cometmq_client.admin.offset_at(queue, messages[0].store_time) == 0
    async with cometmq_client.consumer(
        group + "t", topic, start=StartFrom.time(messages[0].store_time)
    ) as consumer:
        assert await take(consumer, 3) == numbers(3)


# --- retries ---


async def test_an_exception_sends_the_message_back_for_a_later_delivery(
    local_broker: LocalBroker, cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, [b"x"])
    seen: list[tuple[int, str, str]] = []
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:

        async def loop() -> None:
            async for message in consumer:
                async with message.process():
                    seen.append((message.reconsume_times, message.topic, message.msg_id))
                    if message.reconsume_times < 2:
                        raise ValueError("not yet")
                if len(seen) == 3:
                    return

        task = asyncio.ensure_future(loop())
        await eventually(lambda: len(seen) == 1)
        await local_broker.wait_for("SCHEDULE_TOPIC_XXXX", 1)
        local_broker.advance(11)  # the first retry waits ten seconds
        await eventually(lambda: len(seen) == 2)
        await local_broker.wait_for("SCHEDULE_TOPIC_XXXX", 2)
        local_broker.advance(31)
        await asyncio.wait_for(task, 10)
    assert [one[0] for one in seen] == [0, 1, 2]
    assert {one[1] for one in seen} == {topic}, "a retried message shows the topic it was sent to"
    assert len({one[2] for one in seen}) == 1, "the id stays the same"


async def test_retry_with_a_level_waits_that_long(
    local_broker: LocalBroker, cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, [b"x"])
    seen: list[int] = []
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:

        async def loop() -> None:
            async for message in consumer:
                async with message.process():
                    seen.append(message.reconsume_times)
                    if not message.reconsume_times:
                        raise Retry(delay_level=1)
                if len(seen) == 2:
                    return

        await asyncio.wait_for(loop(), 10)  # one second in real time
    assert seen == [0, 1]


async def test_reject_goes_to_the_dead_letter_topic(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, [b"bad", b"good"])
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        got = []
        async for message in consumer:
            async with message.process():
                if message.body == b"bad":
                    raise Reject("give up")
                got.append(message.body)
            if got:
                break
    dead = f"%DLQ%{group}"

    async def there() -> bool:
        if dead not in await cometmq_client.admin.topics(system=True):
            return False
        queue = (await cometmq_client.admin.queues(dead))[0]
        messages, _ = await cometmq_client.admin.read(queue, 0)
        return [one.body for one in messages] == [b"bad"]

    await eventually(there, 10)


async def test_after_max_retries_a_message_is_a_dead_letter(
    local_broker: LocalBroker, cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, [b"bad"])
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        raise ValueError("never")

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST, max_retries=1)
    task = asyncio.ensure_future(consumer.run(handle))
    await local_broker.wait_for("SCHEDULE_TOPIC_XXXX", 1)
    local_broker.advance(11)
    got = await local_broker.wait_for(f"%DLQ%{group}", 1)
    await consumer.aclose()
    await task
    assert tries == [0, 1]
    assert got[0].body == b"bad"


async def test_a_message_that_cannot_be_sent_back_is_sent_again_as_a_new_one(
    local_broker: LocalBroker, cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, [b"x"])
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        with local_broker.fault("send_back", error=1):
            async for message in consumer:
                await message.retry()
                break
            waiting = await local_broker.wait_for("SCHEDULE_TOPIC_XXXX", 1)
        assert waiting[0].body == b"x"
        local_broker.advance(31)
        async for message in consumer:
            async with message.process():
                assert (message.body, message.reconsume_times, message.topic) == (b"x", 1, topic)
            break


# --- ordered ---


async def test_ordered_messages_of_a_queue_come_one_by_one_and_in_order(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    producer = cometmq_client.producer("p")
    for n in range(80):
        await producer.send(Message(topic, b"%d" % n), ordering_key=f"key-{n % 7}")
    order: dict[int, list[int]] = defaultdict(list)
    busy: Counter[int] = Counter()
    overlap = False

    async def handle(message: ReceivedMessage) -> None:
        nonlocal overlap
        queue_id = message.queue.queue_id
        busy[queue_id] += 1
        overlap |= busy[queue_id] > 1
        await asyncio.sleep(0.001)
        busy[queue_id] -= 1
        order[queue_id].append(message.offset)

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST, ordered=True, concurrency=16)
    task = asyncio.ensure_future(consumer.run(handle))
    await eventually(lambda: sum(map(len, order.values())) == 80)
    await consumer.aclose()
    await task
    assert not overlap
    assert all(offsets == sorted(offsets) for offsets in order.values())


async def test_a_failure_of_an_ordered_message_holds_its_queue_only(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=2)
    producer = cometmq_client.producer("p")
    queues = await producer.queues(topic)
    for n in range(3):
        for queue in queues:
            await producer.send(Message(topic, b"%d-%d" % (queue.queue_id, n)), queue=queue)
    got: list[bytes] = []
    failures = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal failures
        if message.body == b"0-1" and failures < 2:
            failures += 1
            raise Retry(seconds=0.05)
        got.append(message.body)

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST, ordered=True)
    task = asyncio.ensure_future(consumer.run(handle))
    await eventually(lambda: len(got) == 6)
    await consumer.aclose()
    await task
    assert [body for body in got if body.startswith(b"0")] == [b"0-0", b"0-1", b"0-2"]
    assert [body for body in got if body.startswith(b"1")] == [b"1-0", b"1-1", b"1-2"]
    assert failures == 2


async def test_a_rejected_ordered_message_lets_its_queue_go_on(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, numbers(3))
    got: list[bytes] = []
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST, ordered=True) as consumer:

        async def loop() -> None:
            async for message in consumer:
                async with message.process():
                    if message.body == b"1":
                        raise Reject
                    got.append(message.body)
                if len(got) == 2:
                    return

        await asyncio.wait_for(loop(), 10)
    assert got == [b"0", b"2"]


# --- broadcast ---


async def test_broadcast_members_all_get_everything_and_go_on_after_restart(
    cometmq_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    def client(name: str) -> Client:
        return Client(cometmq_servers, instance_name=name, offset_directory=str(tmp_path))

    async with client("one") as one, client("two") as two:
        await one.admin.create_topic(topic, queues=2)
        await send_all(one, topic, numbers(6))
        for mq in (one, two):
            async with mq.consumer(group, topic, start=StartFrom.FIRST, broadcast=True) as consumer:
                assert sorted(await take(consumer, 6)) == numbers(6)
        await send_all(one, topic, [b"6"])
    assert len(list(tmp_path.glob(f"*/{group}/offsets.json"))) == 2
    async with (
        client("one") as mq,
        mq.consumer(group, topic, start=StartFrom.FIRST, broadcast=True) as consumer,
    ):
        assert await take(consumer, 1) == [b"6"]


async def test_a_failed_broadcast_message_is_not_retried(
    cometmq_servers: str, topic: str, group: str, tmp_path: Path
) -> None:
    async with Client(cometmq_servers, offset_directory=str(tmp_path), instance_name="b1") as mq:
        await mq.admin.create_topic(topic, queues=1)
        await send_all(mq, topic, numbers(2))
        async with mq.consumer(group, topic, start=StartFrom.FIRST, broadcast=True) as consumer:
            got = []
            async for message in consumer:
                async with message.process():
                    got.append(message.body)
                    if len(got) == 1:
                        raise ValueError("no")
                if len(got) == 2:
                    break
    assert got == numbers(2)


# --- rebalance ---


async def test_members_share_queues_and_take_over_when_one_leaves(
    cometmq_servers: str, topic: str, group: str
) -> None:
    async with Client(cometmq_servers) as one, Client(cometmq_servers) as two:
        await one.admin.create_topic(topic, queues=4)
        async with one.consumer(group, topic, start=StartFrom.FIRST) as first:
            assert len(first.assignment()) == 4
            async with two.consumer(group, topic, start=StartFrom.FIRST) as second:
                await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, 10)
                assert not set(first.assignment()) & set(second.assignment())
            await eventually(lambda: len(first.assignment()) == 4, 10)


async def test_nothing_is_lost_while_members_come_and_go(
    cometmq_servers: str, topic: str, group: str
) -> None:
    count = 600
    got: Counter[bytes] = Counter()

    async def member(stop: asyncio.Event) -> None:
        async with Client(cometmq_servers) as mq:
            consumer = mq.consumer(group, topic, start=StartFrom.FIRST, concurrency=4)

            async def handle(message: ReceivedMessage) -> None:
                await asyncio.sleep(0.001)
                got[message.body] += 1

            task = asyncio.ensure_future(consumer.run(handle))
            await stop.wait()
            await consumer.aclose()
            await task

    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(topic, queues=4)
        stops = [asyncio.Event() for _ in range(3)]
        members = [asyncio.ensure_future(member(stops[0]))]
        producer = mq.producer("p")
        for n in range(count):
            await producer.send(Message(topic, b"%d" % n))
            if n == 150:
                members.append(asyncio.ensure_future(member(stops[1])))
            if n == 300:
                members.append(asyncio.ensure_future(member(stops[2])))
            if n == 450:
                stops[1].set()
        await eventually(lambda: len(got) == count, 20)
        for stop in stops:
            stop.set()
        await asyncio.gather(*members)
    duplicates = sum(got.values()) - count
    assert duplicates <= count * 0.05


# --- closing ---


async def test_closing_waits_for_running_handlers_and_commits(
    cometmq_servers: str, topic: str, group: str
) -> None:
    done: list[bytes] = []
    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(topic, queues=1)
        await send_all(mq, topic, [b"x"])
        started = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            started.set()
            await asyncio.sleep(0.3)
            done.append(message.body)

        consumer = mq.consumer(group, topic, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await started.wait()
        await consumer.aclose()
        await task
        assert done == [b"x"]
        assert sum((await mq.admin.lag(group)).values()) == 0


async def test_closing_gives_up_on_a_handler_that_does_not_end(
    cometmq_servers: str, topic: str, group: str
) -> None:
    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(topic, queues=1)
        await send_all(mq, topic, [b"x"])
        started = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            started.set()
            await asyncio.sleep(3600)

        consumer = mq.consumer(group, topic, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await started.wait()
        began = time.monotonic()
        await consumer.aclose(timeout=0.2)
        assert time.monotonic() - began < 5
        await task
        async with mq.consumer(group, topic, start=StartFrom.FIRST) as again:
            assert await take(again, 1) == [b"x"]


async def test_iteration_ends_when_the_consumer_is_closed(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    consumer = cometmq_client.consumer(group, topic)
    await consumer.start()

    async def loop() -> str:
        async for _ in consumer:
            pass
        return "ended"

    task = asyncio.ensure_future(loop())
    await asyncio.sleep(0)
    await consumer.aclose()
    assert await asyncio.wait_for(task, 5) == "ended"


async def test_a_cancelled_iteration_loses_nothing(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.002)
        await send_all(cometmq_client, topic, numbers(5))
        assert await take(consumer, 5) == numbers(5)


# --- while running ---


async def test_subscriptions_can_change_while_running(
    cometmq_client: Client, name: Callable[[str], str], group: str
) -> None:
    one, two = name("one"), name("two")
    for topic in (one, two):
        await cometmq_client.admin.create_topic(topic, queues=1)
        await send_all(cometmq_client, topic, [topic.encode()])
    async with cometmq_client.consumer(group, one, start=StartFrom.FIRST) as consumer:
        assert await take(consumer, 1) == [one.encode()]
        await consumer.subscribe(two)
        assert await take(consumer, 1) == [two.encode()]
        await consumer.unsubscribe(one)
        await eventually(lambda: [queue.topic for queue in consumer.assignment()] == [two])


async def test_pulling_stops_while_too_much_is_unfinished(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, numbers(60))
    async with cometmq_client.consumer(
        group, topic, start=StartFrom.FIRST, queue_messages_max=10, pull_batch=4
    ) as consumer:
        await eventually(lambda: sum(held.count for held in consumer.queues.values()) > 10)
        await asyncio.sleep(0.1)
        assert sum(held.count for held in consumer.queues.values()) <= 14
        assert await take(consumer, 60) == numbers(60)


async def test_an_administrator_can_reset_a_running_group(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await send_all(cometmq_client, topic, numbers(5))
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        assert await take(consumer, 5) == numbers(5)
        await consumer.commit()
        moved = await cometmq_client.admin.reset_offsets(group, topic, "begin")
        assert list(moved.values()) == [0]
        assert await take(consumer, 5) == numbers(5)


async def test_tools_can_ask_a_running_consumer(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    result = await cometmq_client.producer("p").send(Message(topic, b"x"))
    got: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer = cometmq_client.consumer(group, topic, start=StartFrom.FIRST)
    task = asyncio.ensure_future(consumer.run(handle))
    await eventually(lambda: got)
    admin = cometmq_client.admin
    members = await admin.members(group)
    assert members is not None
    assert [one.client_id for one in members.connection_set] == [cometmq_client.client_id]
    info = await admin.running_info(group, cometmq_client.client_id, stacks=True)
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert {queue.topic for queue in info.mq_table} >= {topic}
    assert "task" in (info.jstack or "")
    direct = await admin.consume_directly(group, cometmq_client.client_id, result.offset_msg_id)
    assert direct.consume_result == "CR_SUCCESS"
    assert got == [b"x", b"x"]
    await consumer.aclose()
    await task
