"""Administration of topics over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_broker import live_broker

from cometmq.protocol.bodies.group import GroupList
from cometmq.protocol.bodies.stats import TopicStatsTable
from cometmq.protocol.bodies.topic import TopicConfigSerializeWrapper, TopicList
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import TopicHeader
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.names import SCHEDULE_TOPIC

SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."


def test_topic_is_created_grown_and_listed(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            answer = await client.create_topic("TopicA", 4)
            assert (answer.code, answer.remark) == (0, "not set any response code")
            assert (await client.send("TopicA", 7)).code == ResponseCode.SYSTEM_ERROR
            await client.create_topic("TopicA", 8, perm=4)
            assert (
                await client.send("TopicA", 7)
            ).code == ResponseCode.SUCCESS  # perm is not checked on sends
            answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert answer.ext_fields == {}
            table = TopicConfigSerializeWrapper.decode(answer.body)
            config = table.topic_config_table["TopicA"]
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (8, 8, 4)
            assert table.data_version == live.broker.topics.data_version

    run(main())


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        ("a.b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a" * 128, "The specified topic is longer than topic max length."),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
        ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
    ],
)
def test_bad_and_system_names_are_refused(run: Any, tmp_path: Path, topic: str, remark: str) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            answer = await client.create_topic(topic)
            assert (answer.code, answer.remark) == (1, remark)
            answer = await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic))
            assert (answer.code, answer.remark) == (1, remark)

    run(main())


@pytest.mark.parametrize("queues", [-1, 70_000])
def test_absurd_queue_counts_are_refused(run: Any, tmp_path: Path, queues: int) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            answer = await live.client().create_topic("TopicA", queues)
            assert answer.code == 1
            assert "readQueueNums" in (answer.remark or "")

    run(main())


def test_slave_refuses_changes(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, broker_role="SLAVE", broker_id=1) as live:
            client = live.client()
            for answer in (
                await client.create_topic("TopicA"),
                await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="TopicA")),
            ):
                assert (answer.code, answer.remark) == (1, SLAVE)

    run(main())


def test_deleted_topic_loses_settings_and_queues(run: Any, tmp_path: Path) -> None:
    """Code 17 afterwards, and the directory is gone."""

    async def main() -> None:
        async with live_broker(tmp_path, auto_create_topic_enable=False) as live:
            client = live.client()
            for topic in ("TopicA", "TopicB"):
                await client.create_topic(topic)
                await client.send(topic, 0)
            queues = tmp_path / "store" / "consumequeue"
            assert (queues / "TopicA").exists()
            header = TopicHeader(topic="TopicA")
            answer = await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, header)
            assert (answer.code, answer.remark) == (0, None)
            assert not (queues / "TopicA").exists()
            assert (queues / "TopicB").exists()
            assert (await client.pull("G", "TopicA")).code == ResponseCode.TOPIC_NOT_EXIST
            assert (await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, header)).code == 0  # again

    run(main())


def test_clean_up_removes_queues_without_settings_but_not_those_of_the_system(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.send("TopicA", 0)
            live.broker.topics.delete("TopicA")
            live.broker.topics.delete(SCHEDULE_TOPIC)
            assert (await client.call(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
            assert "TopicA" not in live.broker.store.topics_on_disk()

    run(main())


def test_topic_status_shows_every_write_queue(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("TopicA", 2)
            for _ in range(3):
                await client.send("TopicA", 1)
            answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic="TopicA"))
            table = TopicStatsTable.decode(answer.body).offset_table
            used = table[MessageQueue("TopicA", "broker-a", 1)]
            empty = table[MessageQueue("TopicA", "broker-a", 0)]
            assert (used.min_offset, used.max_offset) == (0, 3)
            assert abs(used.last_update_timestamp - live.clock()) < 10_000
            assert (empty.min_offset, empty.max_offset, empty.last_update_timestamp) == (0, 0, 0)
            answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic="nope"))
            assert (answer.code, answer.remark) == (17, "topic[nope] not exist")

    run(main())


def test_who_consumes_a_topic_is_online_or_has_offsets(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.heartbeat("online", "TopicA")
            await client.commit("offline", "TopicA", 0, 1)
            answer = await client.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic="TopicA"))
            assert GroupList.decode(answer.body).group_list == ["offline", "online"]

    run(main())


def test_system_topics_are_listed(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            answer = await live.client().call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            assert set(TopicList.decode(answer.body).topic_list) == {
                "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT",
                "C1_REPLY_TOPIC", "TBW102", "broker-a", "SELF_TEST_TOPIC", "C1",
            }  # fmt: skip

    run(main())


def test_unit_topics_and_namespaces_are_ordinary_names(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("ns%topic", 2, sys_flag=1)
            config = live.broker.topics.find("ns%topic")
            assert config is not None
            assert config.topic_sys_flag == 1
            assert (await client.send("ns%topic", 0)).code == 0
            assert (await client.pull("ns%group", "ns%topic")).code == 0

    run(main())
