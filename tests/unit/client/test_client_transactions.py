"""Transactions, request and reply, trace."""

from __future__ import annotations

import asyncio

import pytest

from cometmq import Client, ClientError, Message, ReceivedMessage, RequestTimeout, StartFrom, TransactionState
from cometmq.testing import LocalBroker, eventually


async def bodies(mq: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for queue in await mq.admin.queues(topic):
        messages, _ = await mq.admin.read(queue, 0)
        found += [one.body for one in messages]
    return sorted(found)


async def test_the_end_of_the_block_commits_and_an_exception_rolls_back(
    cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    tx = cometmq_client.transactional(group, check=lambda _: TransactionState.ROLLBACK)
    async with tx.begin(Message(topic, b"good")) as half:
        assert half.transaction_id
        assert await bodies(cometmq_client, topic) == []
    with pytest.raises(ValueError, match="no"):
        async with tx.begin(Message(topic, b"bad")):
            raise ValueError("no")
    async with tx.begin(Message(topic, b"also bad")) as half:
        half.rollback()
    await eventually(lambda: bodies(cometmq_client, topic))
    assert await bodies(cometmq_client, topic) == [b"good"]


async def test_a_transaction_left_open_is_asked_for(
    local_broker: LocalBroker, cometmq_client: Client, topic: str, group: str
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    asked: list[str] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.transaction_id or "")
        assert message.topic == topic
        return TransactionState.COMMIT if message.body == b"yes" else TransactionState.ROLLBACK

    tx = cometmq_client.transactional(group, check=check)
    ids = []
    for body in (b"yes", b"no"):
        async with tx.begin(Message(topic, body)) as half:
            ids.append(half.transaction_id)
            half.unknown()
    await cometmq_client.instance.heartbeat()  # so that the broker knows whom to ask
    local_broker.advance(70)
    got = await local_broker.wait_for(topic, 1, timeout=10)
    await eventually(lambda: set(asked) >= set(ids))
    assert [one.body for one in got] == [b"yes"]


async def test_closing_waits_for_the_answer_to_a_check(
    local_broker: LocalBroker, cometmq_servers: str, topic: str, group: str
) -> None:
    asked, decided = asyncio.Event(), asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.set()
        await decided.wait()
        return TransactionState.COMMIT

    mq = Client(cometmq_servers)
    await mq.start()
    await mq.admin.create_topic(topic, queues=1)
    async with mq.transactional(group, check=check).begin(Message(topic, b"late")) as half:
        half.unknown()
    await mq.instance.heartbeat()
    local_broker.advance(70)
    await asyncio.wait_for(asked.wait(), 10)
    closing = asyncio.ensure_future(mq.aclose())
    await asyncio.sleep(0)
    decided.set()
    await closing
    got = await local_broker.wait_for(topic, 1, timeout=10)
    assert [one.body for one in got] == [b"late"]


async def test_a_request_is_answered_by_a_consumer(cometmq_servers: str, topic: str, group: str) -> None:
    async with Client(cometmq_servers) as server, Client(cometmq_servers) as mq:
        await server.admin.create_topic(topic, queues=1)

        async def answer(message: ReceivedMessage) -> bytes:
            return b"pong " + message.body

        consumer = server.consumer(group, topic, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(answer))
        producer = mq.producer("p")
        answers = await asyncio.gather(
            *(producer.request(Message(topic, b"%d" % n), timeout=10) for n in range(5))
        )
        assert [one.body for one in answers] == [b"pong %d" % n for n in range(5)]
        await consumer.aclose()
        await task


async def test_a_request_that_nobody_answers_says_so(cometmq_client: Client, topic: str) -> None:
    with pytest.raises(RequestTimeout, match="is a consumer running") as caught:
        await cometmq_client.producer("p").request(Message(topic, b"ping"), timeout=0.3)
    assert isinstance(caught.value, TimeoutError)


async def test_only_requests_can_be_answered(cometmq_client: Client, topic: str, group: str) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    await cometmq_client.producer("p").send(Message(topic, b"no request"))
    async with cometmq_client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        async for message in consumer:
            assert not message.wants_reply
            with pytest.raises(ClientError, match="no request"):
                await message.reply(b"x")
            break


async def test_sends_and_deliveries_are_traced_in_rocketmqs_format(
    cometmq_servers: str, topic: str, group: str
) -> None:
    trace_topic = f"trace-{topic}"
    async with Client(cometmq_servers) as mq:
        await mq.admin.create_topic(trace_topic, queues=1)
    async with Client(cometmq_servers, trace=True, trace_topic=trace_topic) as mq:
        await mq.admin.create_topic(topic, queues=1)
        result = await mq.producer("traced").send(Message(topic, b"x", tag="t", keys=["k"]))
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            done.set()

        consumer = mq.consumer(group, topic, start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await asyncio.wait_for(done.wait(), 10)
        await consumer.aclose()
        await task
    async with Client(cometmq_servers) as mq:

        async def records() -> dict[str, list[str]]:
            found = {}
            for body in await bodies(mq, trace_topic):
                for record in body.decode().rstrip("\x02").split("\x02"):
                    fields = record.split("\x01")
                    found[fields[0]] = fields
            return found if len(found) == 3 else {}

        found = await eventually(records)
    pub = found["Pub"]
    assert pub[3:8] == ["traced", topic, result.msg_id, "t", "k"]
    assert len(pub) == 14
    assert pub[12:] == [result.offset_msg_id, "true"]
    assert found["SubBefore"][3] == group
    assert found["SubBefore"][5] == result.msg_id
    assert found["SubAfter"][1] == found["SubBefore"][4]
    assert found["SubAfter"][4] == "true"
