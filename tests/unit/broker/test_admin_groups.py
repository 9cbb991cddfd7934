"""Administration of consumer groups and their progress over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from live_broker import LiveClient, live_broker

from cometmq.broker.offsets import OFFSET_MAX
from cometmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from cometmq.protocol.bodies.heartbeat import BROADCASTING
from cometmq.protocol.bodies.offsets import QueryCorrectionOffsetBody
from cometmq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import (
    CloneGroupOffsetHeader,
    DeleteSubscriptionGroupHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    QueryCorrectionOffsetHeader,
    TopicGroupHeader,
)
from cometmq.protocol.message import MessageQueue


async def update_group(client: LiveClient, **settings: Any) -> None:
    config = SubscriptionGroupConfig(**settings)
    answer = await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
    assert (answer.code, answer.remark) == (0, None)


async def consume_stats(client: LiveClient, group: str, topic: str | None = None) -> ConsumeStats:
    header = GetConsumeStatsHeader(consumer_group=group, topic=topic)
    return ConsumeStats.decode((await client.call(RequestCode.GET_CONSUME_STATS, header)).body)


def test_stopped_group_cannot_pull(run: Any, tmp_path: Path) -> None:
    """What updateSubGroup -s false does: the group is stopped."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.send("TopicA", 0)
            await update_group(client, group_name="G", consume_enable=False)
            answer = await client.pull("G", "TopicA")
            assert (answer.code, answer.remark) == (16, "subscription group no permission, G")
            await update_group(client, group_name="G")
            assert (await client.pull("G", "TopicA")).code == 0

    run(main())


def test_group_made_by_a_tool_cannot_broadcast(run: Any, tmp_path: Path) -> None:
    """The tool sends consumeBroadcastEnable=false."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.send("TopicA", 0)
            await update_group(client, group_name="G", consume_broadcast_enable=False)
            await client.heartbeat("G", "TopicA", message_model=BROADCASTING)
            answer = await client.pull("G", "TopicA", sys_flag=0)
            assert (answer.code, answer.remark) == (
                16,
                "the consumer group[G] can not consume by broadcast way",
            )

    run(main())


def test_groups_are_listed_and_survive_a_restart(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            await update_group(live.client(), group_name="G", retry_queue_nums=3)
            version = live.broker.groups.data_version
        async with live_broker(tmp_path) as live:
            answer = await live.client().call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            wrapper = SubscriptionGroupWrapper.decode(answer.body)
            assert wrapper.subscription_group_table["G"].retry_queue_nums == 3
            assert "TOOLS_CONSUMER" in wrapper.subscription_group_table
            assert wrapper.data_version == version

    run(main())


def test_group_without_name_is_refused(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            answer = await live.client().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"{}")
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(main())


def test_deleting_a_group_drops_its_offsets_only_when_asked_to(run: Any, tmp_path: Path) -> None:
    """The command deleteSubGroup -r."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for remove, expected in ((False, 5), (True, -1)):
                await update_group(client, group_name="G")
                await client.commit("G", "TopicA", 0, 5)
                header = DeleteSubscriptionGroupHeader(group_name="G", remove_offset=remove)
                assert (await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == 0
                assert live.broker.groups.get("G") is None
                assert live.broker.offsets.query("G", "TopicA", 0) == expected

    run(main())


def test_slave_refuses_changes_of_groups(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, broker_role="SLAVE", broker_id=1) as live:
            client = live.client()
            body = SubscriptionGroupConfig(group_name="G").encode()
            answer = await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            assert answer.code == 1
            header = DeleteSubscriptionGroupHeader(group_name="G")
            assert (await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == 1

    run(main())


def test_progress_of_a_group_covers_every_read_queue(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("TopicA", 2)
            for _ in range(3):
                await client.send("TopicA", 1)
            await client.commit("G", "TopicA", 1, 2)
            await client.commit("G", "deleted topic", 0, 7)
            stats = await consume_stats(client, "G")
            assert set(stats.offset_table) == {
                MessageQueue("TopicA", "broker-a", number) for number in (0, 1)
            }
            progress = stats.offset_table[MessageQueue("TopicA", "broker-a", 1)]
            assert (progress.broker_offset, progress.consumer_offset) == (3, 2)
            assert abs(progress.last_timestamp - live.clock()) < 10_000
            assert stats.offset_table[MessageQueue("TopicA", "broker-a", 0)] == OffsetWrapper()
            assert (await consume_stats(client, "nobody")).offset_table == {}
            assert len((await consume_stats(client, "nobody", "TopicA")).offset_table) == 2

    run(main())


def test_progress_leaves_out_what_an_online_group_subscribes_no_more(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for topic in ("TopicA", "TopicB"):
                await client.create_topic(topic, 1)
                await client.commit("G", topic, 0, 0)
            assert len((await consume_stats(client, "G")).offset_table) == 2
            await client.heartbeat("G", "TopicB")
            assert {queue.topic for queue in (await consume_stats(client, "G")).offset_table} == {"TopicB"}

    run(main())


def test_progress_shows_the_rate_of_the_last_minute(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("TopicA", 1)
            for _ in range(6):
                await client.send("TopicA", 0)
            await client.pull("G", "TopicA")
            await client.commit("G", "TopicA", 0, 6)
            live.broker.stats.sample()
            assert (await consume_stats(client, "G")).consume_tps == 0.6

    run(main())


def test_progress_of_all_groups_with_the_sum_of_differences(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("TopicA", 1)
            for _ in range(5):
                await client.send("TopicA", 0)
            for group, offset in (("G1", 2), ("G2", 5)):
                await update_group(client, group_name=group)
                await client.commit(group, "TopicA", 0, offset)
            header = GetBrokerConsumeStatsHeader(is_order=False)
            answer = ConsumeStatsList.decode(
                (await client.call(RequestCode.GET_BROKER_CONSUME_STATS, header)).body
            )
            assert answer.total_diff == 3
            assert answer.broker_addr == live.address
            groups = {name: stats for entry in answer.consume_stats_list for name, stats in entry.items()}
            assert len(groups["G1"]) == 1
            assert groups["TOOLS_CONSUMER"] == []
            header = GetBrokerConsumeStatsHeader(is_order=True)
            answer = ConsumeStatsList.decode(
                (await client.call(RequestCode.GET_BROKER_CONSUME_STATS, header)).body
            )
            assert answer.total_diff == 0

    run(main())


def test_time_span_of_a_group(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("TopicA", 2)
            times = []
            for _ in range(3):
                times.append(live.clock())
                await client.send("TopicA", 0)
                live.clock.shift_ms += 1000
            await client.commit("G", "TopicA", 0, 2)
            header = TopicGroupHeader(topic="TopicA", group="G")
            answer = await client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            used, empty = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
            assert 0 <= used.min_time_stamp - times[0] < 900
            assert 0 <= used.max_time_stamp - times[2] < 900
            assert 0 <= used.consume_time_stamp - times[1] < 900
            assert 1000 <= used.delay_time < 1900
            assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
            answer = await client.call(
                RequestCode.QUERY_CONSUME_TIME_SPAN, TopicGroupHeader(topic="no", group="G")
            )
            assert (answer.code, answer.remark) == (17, "topic[no] not exist")

    run(main())


def test_asking_for_correction_offsets_deletes_nothing(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for group, offset in (("G1", 5), ("G2", 3), ("G3", 1)):
                await client.commit(group, "TopicA", 0, offset)
            header = QueryCorrectionOffsetHeader(filter_groups="G3", compare_group="G1", topic="TopicA")
            answer = await client.call(RequestCode.QUERY_CORRECTION_OFFSET, header)
            assert QueryCorrectionOffsetBody.decode(answer.body).correction_offsets == {0: 3}
            assert live.broker.offsets.query("G3", "TopicA", 0) == 1
            header = QueryCorrectionOffsetHeader(filter_groups="G2,G3", compare_group="G3", topic="TopicA")
            answer = await client.call(RequestCode.QUERY_CORRECTION_OFFSET, header)
            assert QueryCorrectionOffsetBody.decode(answer.body).correction_offsets == {0: OFFSET_MAX}

    run(main())


def test_offsets_are_cloned_for_one_topic_or_all(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for topic in ("TopicA", "TopicB"):
                await client.create_topic(topic, 1)
                await client.commit("G", topic, 0, 9)
            for topic, target in (("TopicA", "one"), (None, "all")):
                header = CloneGroupOffsetHeader(src_group="G", dest_group=target, topic=topic, offline=True)
                assert (await client.call(RequestCode.CLONE_GROUP_OFFSET, header)).code == 0
            assert live.broker.offsets.topics_of("one") == ["TopicA"]
            assert live.broker.offsets.topics_of("all") == ["TopicA", "TopicB"]
            assert (await consume_stats(client, "all")).offset_table == (
                await consume_stats(client, "G")
            ).offset_table

    run(main())
