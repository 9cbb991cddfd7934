"""Administration against a real broker; runs against any cluster with --cometmq-servers."""

from __future__ import annotations

import uuid

import pytest

from cometmq import Client, ClientError, Message, StartFrom, TopicNotFound
from cometmq.testing import eventually


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


async def consume(mq: Client, group: str, topic: str, count: int) -> None:
    async with mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        for _ in range(count):
            async with (await anext(consumer)).process():
                pass


async def test_a_topic_is_created_changed_and_deleted(cometmq_client: Client, topic: str) -> None:
    admin = cometmq_client.admin
    made = await admin.create_topic(topic, queues=3)
    assert [(one.read_queues, one.write_queues, one.perm) for one in made] == [(3, 3, 6)]
    assert topic in await admin.topics()
    assert len(await admin.queues(topic)) == 3
    await admin.create_topic(topic, queues=5)
    await eventually(lambda: _queue_count_is(cometmq_client, topic, 5))
    await admin.delete_topic(topic)
    assert topic not in await admin.topics()
    with pytest.raises(TopicNotFound):
        await admin.topic_route(topic)


async def _queue_count_is(mq: Client, topic: str, count: int) -> bool:
    return len(await mq.admin.queues(topic)) == count


async def test_what_cannot_be_is_refused_with_the_choices(cometmq_client: Client, topic: str) -> None:
    admin = cometmq_client.admin
    with pytest.raises(ClientError, match="at least one queue"):
        await admin.create_topic(topic, queues=0)
    with pytest.raises(ClientError, match="there are: DefaultCluster"):
        await admin.create_topic(topic, cluster="nowhere")
    with pytest.raises(ClientError, match="there are: broker-a"):
        await admin.create_topic(topic, broker="nobody")
    with pytest.raises(ClientError, match="belongs to the system"):
        await admin.delete_topic("TBW102")
    with pytest.raises(ClientError, match="settings of a group are"):
        await admin.create_group("g", colour="red")
    with pytest.raises(ClientError, match="'begin' or 'end'"):
        await admin.reset_offsets("g", topic, "yesterday")


async def test_groups_have_settings_progress_and_offsets(
    cometmq_client: Client, topic: str, group: str
) -> None:
    admin = cometmq_client.admin
    await admin.create_topic(topic, queues=1)
    for n in range(4):
        await cometmq_client.producer("p").send(Message(topic, b"%d" % n))
    await consume(cometmq_client, group, topic, 3)
    queue = (await admin.queues(topic))[0]
    assert await admin.committed(group, queue) == 3
    assert await admin.lag(group) == {queue: 1}
    assert group in await admin.topic_groups(topic)
    await admin.create_group(group, retry_max_times=5)
    assert (await admin.group_settings(group)).retry_max_times == 5
    assert await admin.reset_offsets(group, topic, "begin") == {queue: 0}
    assert await admin.lag(group) == {queue: 4}
    await admin.reset_offsets(group, topic, "end")
    assert await admin.lag(group) == {queue: 0}
    assert await admin.members(group) is None
    await admin.delete_group(group, remove_offsets=True)
    assert group not in await admin.groups()


async def test_messages_are_found_by_either_id_and_by_key(cometmq_client: Client, topic: str) -> None:
    admin = cometmq_client.admin
    await admin.create_topic(topic, queues=2)
    sent = await cometmq_client.producer("p").send(Message(topic, b"find me", keys=["k1", "k2"]))

    async def indexed() -> bool:
        return bool(await admin.by_key(topic, "k2"))

    await eventually(indexed)
    assert (await admin.message(sent.msg_id, topic)).body == b"find me"
    assert (await admin.message(sent.offset_msg_id)).body == b"find me"
    assert [one.msg_id for one in await admin.by_unique_id(topic, sent.msg_id)] == [sent.msg_id]
    assert await admin.by_key(topic, "k3") == []
    with pytest.raises(ClientError, match="name its topic"):
        await admin.message(sent.msg_id)


async def test_servers_tell_figures_and_take_settings(cometmq_client: Client) -> None:
    admin = cometmq_client.admin
    ((name, address),) = (await admin.masters()).items()
    assert name == "broker-a"
    assert (await admin.runtime_info(address))["brokerVersionDesc"]
    assert (await admin.broker_config(address))["brokerName"] == name
    await admin.put_kv("tests", "key", "value")
    assert await admin.get_kv("tests", "key") == "value"
    assert await admin.kv_list("tests") == {"key": "value"}
    await admin.delete_kv("tests", "key")
    assert await admin.get_kv("tests", "key") is None
