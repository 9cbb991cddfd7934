"""Streams: polling, committing, seeking, assigned and shared queues."""

from __future__ import annotations

import asyncio
import time

import pytest

from cometmq import Client, ClientClosed, ClientError, Message, ReceivedMessage, StartFrom, TagFilter
from cometmq.client.consumer.stream import Stream
from cometmq.testing import eventually


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


async def fill(mq: Client, topic: str, count: int, queues: int = 1, start: int = 0) -> None:
    await mq.admin.create_topic(topic, queues=queues)
    producer = mq.producer("p")
    for body in numbers(count, start):
        await producer.send(Message(topic, body))


async def poll_all(stream: Stream, count: int) -> list[ReceivedMessage]:
    got: list[ReceivedMessage] = []
    while len(got) < count:
        batch = await asyncio.wait_for(stream.poll(count - len(got), timeout=5), 10)
        assert batch, f"only {len(got)} of {count} came"
        got += batch
    return got


async def test_poll_returns_what_is_there(cometmq_client: Client, topic: str, group: str) -> None:
    await fill(cometmq_client, topic, 20, queues=4)
    async with cometmq_client.stream(group, topic, start=StartFrom.FIRST) as stream:
        assert len(stream.assignment()) == 4
        got = await poll_all(stream, 20)
    assert sorted((one.body for one in got), key=int) == numbers(20)


async def test_poll_returns_nothing_after_its_time(cometmq_client: Client, topic: str, group: str) -> None:
    await fill(cometmq_client, topic, 0)
    async with cometmq_client.stream(group, topic) as stream:
        began = time.monotonic()
        assert await stream.poll(timeout=0.1) == []
        assert 0.1 <= time.monotonic() - began < 3


async def test_a_commit_is_confirmed_and_the_next_member_goes_on_there(
    cometmq_servers: str, topic: str, group: str
) -> None:
    async with Client(cometmq_servers) as mq:
        await fill(mq, topic, 6)
        async with mq.stream(group, topic, start=StartFrom.FIRST, auto_commit=False) as stream:
            assert [one.body for one in await poll_all(stream, 4)] == numbers(4)
            await stream.commit()
            queue = stream.assignment()[0]
            assert await mq.admin.committed(group, queue) == 4
            assert [one.body for one in await poll_all(stream, 2)] == numbers(2, 4)  # not committed
    async with Client(cometmq_servers) as mq, mq.stream(group, topic, auto_commit=False) as stream:
        assert [one.body for one in await poll_all(stream, 2)] == numbers(2, 4)


async def test_auto_commit_stores_what_earlier_polls_returned(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await fill(cometmq_client, topic, 4)
    async with cometmq_client.stream(
        group, topic, start=StartFrom.FIRST, auto_commit_interval=0.01
    ) as stream:
        queue = stream.assignment()[0]
        await poll_all(stream, 2)
        await asyncio.sleep(0.02)
        await stream.poll(2)
        assert stream.position(queue) == 4
        await eventually(lambda: stream.committed(queue))
        assert await stream.committed(queue) in (2, 4)


async def test_explicit_offsets_can_be_committed(cometmq_client: Client, topic: str, group: str) -> None:
    await fill(cometmq_client, topic, 4)
    async with cometmq_client.stream(group, topic, auto_commit=False) as stream:
        queue = stream.assignment()[0]
        await stream.commit({queue: 3})
        assert await stream.committed(queue) == 3


async def test_seeking_to_begin_end_offset_and_time(cometmq_client: Client, topic: str, group: str) -> None:
    await fill(cometmq_client, topic, 10)
    async with cometmq_client.stream(group, topic, start=StartFrom.FIRST, auto_commit=False) as stream:
        queue = stream.assignment()[0]
        first = await poll_all(stream, 10)
        await stream.seek_to_begin()
        assert [one.body for one in await poll_all(stream, 3)] == numbers(3)
        await stream.seek(queue, 7)
        assert [one.body for one in await poll_all(stream, 3)] == numbers(3, 7)
        await stream.seek_to_end()
        assert await stream.poll(timeout=0.1) == []
        await stream.seek_to_time(first[4].store_time)
        again = await poll_all(stream, 1)
        assert again[0].store_time >= first[4].store_time
        # The Java broker names any message of that millisecond, ours the first.
        at = await stream.offset_at(queue, first[0].store_time)
        assert first[at].store_time == first[0].store_time


async def test_seeking_outside_is_refused_with_the_range(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await fill(cometmq_client, topic, 3)
    async with cometmq_client.stream(group, topic) as stream:
        queue = stream.assignment()[0]
        with pytest.raises(ClientError, match="0 to 3"):
            await stream.seek(queue, 4)


async def test_assigned_queues_are_read_without_the_group(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await fill(cometmq_client, topic, 12, queues=3)
    queues = await cometmq_client.admin.queues(topic)
    async with cometmq_client.stream(group, assign=queues[:1], start=StartFrom.FIRST) as stream:
        assert stream.assignment() == queues[:1]
        got = await poll_all(stream, 4)
        assert {one.queue for one in got} == {queues[0]}
        assert await stream.poll(timeout=0.05) == []


async def test_paused_queues_bring_nothing_new(cometmq_client: Client, topic: str, group: str) -> None:
    await fill(cometmq_client, topic, 0)
    async with cometmq_client.stream(group, topic, start=StartFrom.FIRST) as stream:
        queue = stream.assignment()[0]
        await fill(cometmq_client, topic, 1)
        await poll_all(stream, 1)
        stream.pause(queue)
        await asyncio.sleep(0)
        stream.resume(queue)
        await fill(cometmq_client, topic, 1, start=1)
        assert [one.body for one in await poll_all(stream, 1)] == [b"1"]


async def test_a_stream_can_be_iterated_and_filtered(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    producer = cometmq_client.producer("p")
    for n in range(6):
        await producer.send(Message(topic, b"%d" % n, tag="even" if n % 2 == 0 else "odd"))
    got = []
    async with cometmq_client.stream(group, {topic: TagFilter("odd")}, start=StartFrom.FIRST) as stream:
        async for message in stream:
            got.append(message.body)
            if len(got) == 3:
                break
    assert got == [b"1", b"3", b"5"]


async def test_two_streams_share_the_queues(cometmq_servers: str, topic: str, group: str) -> None:
    async with Client(cometmq_servers) as one, Client(cometmq_servers) as two:
        await one.admin.create_topic(topic, queues=4)
        async with one.stream(group, topic) as first, two.stream(group, topic) as second:
            await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, 10)
            assert not set(first.assignment()) & set(second.assignment())


async def test_messages_of_a_stream_cannot_be_settled(cometmq_client: Client, topic: str, group: str) -> None:
    await fill(cometmq_client, topic, 1)
    async with cometmq_client.stream(group, topic, start=StartFrom.FIRST) as stream:
        message = (await poll_all(stream, 1))[0]
        with pytest.raises(ClientError, match="without a consumer group"):
            await message.ack()


async def test_a_stream_needs_topics_or_queues_and_a_start(
    cometmq_client: Client, topic: str, group: str
) -> None:
    with pytest.raises(ClientError, match="either"):
        cometmq_client.stream(group)
    stream = cometmq_client.stream(group, topic)
    with pytest.raises(ClientClosed, match="not started"):
        await stream.poll()
