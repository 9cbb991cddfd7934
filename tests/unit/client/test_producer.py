"""Producers against a real broker."""

from __future__ import annotations

import asyncio

import pytest

from cometmq import (
    Client,
    ClientClosed,
    ClientError,
    Message,
    MessageInvalid,
    Queue,
    ReceivedMessage,
    SendStatus,
    StartFrom,
    TopicNotFound,
)
from cometmq.testing import eventually


async def read_all(mq: Client, topic: str, count: int) -> list[bytes]:
    """Bodies of a topic, by queue and offset."""
    found: dict[Queue, list[bytes]] = {}

    async def enough() -> bool:
        found.clear()
        try:
            queues = await mq.admin.queues(topic)
        except TopicNotFound:
            return False  # the NameServer has not heard of it yet
        for queue in queues:
            offset = await mq.admin.min_offset(queue)
            while True:
                messages, offset = await mq.admin.read(queue, offset)
                if not messages:
                    break
                found.setdefault(queue, []).extend(bytes(one.body) for one in messages)
        return sum(map(len, found.values())) >= count

    await eventually(enough)
    return [body for queue in sorted(found) for body in found[queue]]


async def read_at(mq: Client, queue: Queue, offset: int, count: int = 1) -> list[ReceivedMessage]:
    """Messages from an offset on; a Java broker shows them a moment after it took them."""

    async def enough() -> list[ReceivedMessage]:
        messages, _ = await mq.admin.read(queue, offset)
        return messages if len(messages) >= count else []

    return await eventually(enough)


async def test_reserved_property_names_are_refused(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    producer = cometmq_client.producer("p")
    with pytest.raises(MessageInvalid, match="'UNIQ_KEY' is reserved for the system; choose another name"):
        await producer.send(Message(topic, b"x", properties={"UNIQ_KEY": "mine"}))
    sent = await producer.send(Message(topic, b"x", tag="a", properties={"amount": "1"}))
    (stored,) = await read_at(cometmq_client, sent.queue, sent.offset)
    assert stored.user_properties == {"amount": "1"}
    await producer.send(Message(topic, b"copy", properties=stored.user_properties))


async def test_a_send_returns_where_the_message_is(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=2)
    producer = cometmq_client.producer("p")
    first = await producer.send(Message(topic, b"1", tag="a", keys=["k1", "k2"]))
    assert first.status is SendStatus.SEND_OK
    assert first.ok
    assert first.offset == 0
    assert first.queue.topic == topic
    found = await read_at(cometmq_client, first.queue, 0)
    assert [(one.body, one.tag, one.keys, one.msg_id) for one in found] == [
        (b"1", "a", ["k1", "k2"], first.msg_id)
    ]
    assert found[0].offset_msg_id == first.offset_msg_id


async def test_messages_spread_over_all_queues(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    producer = cometmq_client.producer("p")
    results = [await producer.send(Message(topic, b"%d" % n)) for n in range(8)]
    assert sorted(one.queue.queue_id for one in results) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_topic_is_created_by_the_first_send_where_brokers_allow_it(
    cometmq_client: Client, topic: str
) -> None:
    await cometmq_client.producer("p").send(Message(topic, b"1"))
    assert await read_all(cometmq_client, topic, 1) == [b"1"]


async def test_messages_of_one_key_go_to_one_queue_as_java_sends_them(
    cometmq_client: Client, topic: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=8)
    producer = cometmq_client.producer("p")
    results = [await producer.send(Message(topic, b"%d" % n), ordering_key="order-1") for n in range(4)]
    assert {one.queue.queue_id for one in results} == {6}
    assert [one.offset for one in results] == [0, 1, 2, 3]
    fnv = await producer.send(Message(topic, b"x"), ordering_key="order-1", hash="fnv")
    assert (
        fnv.queue.queue_id
        == (await producer.send(Message(topic, b"x"), ordering_key="order-1", hash="fnv")).queue.queue_id
    )


async def test_a_queue_or_a_selector_decides_outright(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    producer = cometmq_client.producer("p")
    queues = await producer.queues(topic)
    assert len(queues) == 4
    assert (await producer.send(Message(topic, b"x"), queue=queues[3])).queue == queues[3]
    chosen = await producer.send(
        Message(topic, b"x", keys="7"), selector=lambda all_, m: all_[int(m.keys[0]) % 4]
    )
    assert chosen.queue == queues[3]
    with pytest.raises(ClientError, match="selector"):
        await producer.send(Message(topic, b"x"), selector=lambda _all, _m: Queue("other", "b", 0))


async def test_a_batch_is_stored_in_one_queue_in_order(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    producer = cometmq_client.producer("p")
    messages = [Message(topic, b"%d" % n, tag=f"t{n}", properties={"n": str(n)}) for n in range(5)]
    result = await producer.send_batch(messages)
    found = await read_at(cometmq_client, result.queue, result.offset, 5)
    assert [one.body for one in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [one.tag for one in found] == ["t0", "t1", "t2", "t3", "t4"]
    assert [one.properties["n"] for one in found] == ["0", "1", "2", "3", "4"]
    assert [one.msg_id for one in found] == result.msg_id.split(",")


async def test_oneway_messages_arrive(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    producer = cometmq_client.producer("p")
    for n in range(10):
        await producer.send_oneway(Message(topic, b"%d" % n))
    assert sorted(await read_all(cometmq_client, topic, 10)) == [b"%d" % n for n in range(10)]


async def test_send_soon_and_flush_send_everything(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=2)
    producer = cometmq_client.producer("p", in_flight_max=16)
    futures = [producer.send_soon(Message(topic, b"%d" % n)) for n in range(200)]
    await producer.flush()
    assert all(one.done() for one in futures)
    assert len({one.result().msg_id for one in futures}) == 200
    assert sorted(await read_all(cometmq_client, topic, 200), key=int) == [b"%d" % n for n in range(200)]


async def test_flush_raises_what_a_forgotten_send_raised(cometmq_client: Client, topic: str) -> None:
    producer = cometmq_client.producer("p")
    producer.send_soon(Message(topic, b""))
    with pytest.raises(MessageInvalid):
        await producer.flush()
    await producer.flush()


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_large_bodies_travel_compressed_and_arrive_whole(
    cometmq_servers: str, topic: str, compression: str
) -> None:
    if compression != "zlib":
        pytest.importorskip({"lz4": "lz4", "zstd": "zstandard"}[compression])
    async with Client(cometmq_servers, compression=compression) as mq:
        await mq.admin.create_topic(topic, queues=1)
        body = b"compress me, please; " * 10_000
        result = await mq.producer("p").send(Message(topic, body))
        found = await read_at(mq, result.queue, result.offset)
        assert found[0].body == body
        assert found[0].stored_body_size < len(body) / 5


async def test_user_properties_and_flag_arrive(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    sent = Message(topic, b"x", properties={"color": "grün", "amount": "5"}, flag=77)
    result = await cometmq_client.producer("p").send(sent)
    found = await read_at(cometmq_client, result.queue, 0)
    assert found[0].properties["color"] == "grün"
    assert found[0].properties["amount"] == "5"
    assert found[0].flag == 77
    assert "UNIQ_KEY" not in sent.properties, "the message of the application is not changed"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("bad topic!", b"x"), "not allowed"),
        (Message("t" * 128, b"x"), "characters"),
        (Message("topic", b""), "empty"),
        (Message("topic", b"x" * (4 * 1024 * 1024 + 1)), "larger"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "belongs to the broker"),
        (Message("topic", "text"), "must be bytes"),  # type: ignore[arg-type]
    ],
)
async def test_what_no_broker_would_take_is_refused_here(
    cometmq_client: Client, message: Message, text: str
) -> None:
    with pytest.raises(MessageInvalid, match=text):
        await cometmq_client.producer("p").send(message)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("a", b"1"), Message("b", b"1")],
        [Message("a", b"1", delay_level=3)],
        [Message("a", b"1"), Message("a", b"1", wait_store_ok=False)],
        [Message("a", b"x" * 3_000_000), Message("a", b"x" * 3_000_000)],
    ],
)
async def test_batches_that_cannot_be_are_refused(cometmq_client: Client, messages: list[Message]) -> None:
    with pytest.raises(MessageInvalid):
        await cometmq_client.producer("p").send_batch(messages)


async def test_names_of_groups_are_checked(cometmq_client: Client) -> None:
    for bad in ("", "no blanks", "g" * 256, "DEFAULT_PRODUCER"):
        with pytest.raises(ClientError):
            cometmq_client.producer(bad)


async def test_a_closed_producer_and_a_closed_client_say_so(cometmq_servers: str, topic: str) -> None:
    mq = Client(cometmq_servers)
    with pytest.raises(ClientClosed, match="not started"):
        await mq.producer("p").send(Message(topic, b"x"))
    async with mq:
        producer = mq.producer("p")
        await producer.aclose()
        await producer.aclose()
        with pytest.raises(ClientClosed, match="producer 'p' is closed"):
            await producer.send(Message(topic, b"x"))
    with pytest.raises(ClientClosed, match="is closed"):
        await mq.producer("q").send(Message(topic, b"x"))


async def test_closing_waits_for_pending_sends(cometmq_servers: str, topic: str) -> None:
    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(topic, queues=1)
        async with mq.producer("p") as producer:
            futures = [producer.send_soon(Message(topic, b"x")) for _ in range(100)]
        assert all(one.result().ok for one in futures)


async def test_a_missing_topic_names_the_command_that_creates_it(cometmq_servers: str, topic: str) -> None:
    async with Client(cometmq_servers) as mq:
        with pytest.raises(TopicNotFound, match=f"cometmq topic create {topic}"):
            await mq.admin.topic_stats(topic)


async def test_many_tasks_share_one_producer(cometmq_client: Client, topic: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=4)
    producer = cometmq_client.producer("p")

    async def work(n: int) -> None:
        for k in range(20):
            await producer.send(Message(topic, b"%d" % (n * 20 + k)))

    await asyncio.gather(*(work(n) for n in range(20)))
    assert sorted(await read_all(cometmq_client, topic, 400), key=int) == [b"%d" % n for n in range(400)]


async def test_avoiding_slow_brokers_sends_as_usual_when_all_are_well(
    cometmq_client: Client, topic: str
) -> None:
    producer = cometmq_client.producer("p", avoid_slow_brokers=True)
    for n in range(10):
        assert (await producer.send(Message(topic, b"%d" % n))).ok


async def test_namespaces_keep_names_apart(cometmq_servers: str, topic: str, group: str) -> None:
    async with Client(cometmq_servers, namespace="NSX") as inside, Client(cometmq_servers) as outside:
        await inside.admin.create_topic(topic, queues=1)
        result = await inside.producer("p").send(Message(topic, b"x"))
        assert result.queue.topic == topic
        assert topic in await inside.admin.topics()
        assert f"NSX%{topic}" in await outside.admin.topics()
        async with inside.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            async for message in consumer:
                async with message.process():
                    assert message.topic == topic
                    assert message.properties["INSTANCE_ID"] == "NSX"
                break
        assert group in await inside.admin.groups()
        assert f"NSX%{group}" in await outside.admin.groups()


async def test_the_vip_channel_is_used_when_asked_for(cometmq_servers: str, topic: str, group: str) -> None:
    async with Client(cometmq_servers, vip_channel=True) as mq:
        await mq.admin.create_topic(topic, queues=1)
        assert (await mq.producer("p").send(Message(topic, b"x"))).ok
        async with mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            message = await asyncio.wait_for(anext(consumer), 20)
            await message.ack()
        ports = {int(address.rpartition(":")[2]) for address in mq.instance.remoting.open_connections()}
        assert any(port - 2 in ports for port in ports)
