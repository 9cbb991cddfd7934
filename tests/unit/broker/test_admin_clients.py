"""Heartbeats, notifications, consumer lists, offsets and locks over the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveBroker, LiveClient, eventually, live_broker

from cometmq.broker.clients import CLIENT_EXPIRY_MS
from cometmq.broker.handlers.clients import HEARTBEAT, drop_expired_clients
from cometmq.broker.notifications import AT_ONCE_MEMBERS_MAX
from cometmq.protocol import json_java
from cometmq.protocol.bodies.group import ConsumerIdList, SubscriptionGroupConfig
from cometmq.protocol.bodies.heartbeat import CheckClientRequestBody, SubscriptionData
from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import ConsumerGroupHeader, UnregisterClientHeader
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.names import UNIT_SUB_FLAG

QUEUE = MessageQueue("TopicA", "broker-a", 0)
NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def client_ids(client: LiveClient, group: str) -> list[str]:
    answer = await client.call(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group=group)
    )
    return ConsumerIdList.decode(answer.body).consumer_id_list


def last_heartbeats(live: LiveBroker) -> list[Any]:
    """The memory of the broker's side of each connection."""
    assert live.broker.server is not None
    return [connection.attachments[HEARTBEAT] for connection in live.broker.server.connections]


def test_first_heartbeat_creates_group_and_retry_topic(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1")
            answer = await client.heartbeat("G", "TopicA", unit_mode=True)
            assert answer.code == ResponseCode.SUCCESS
            assert answer.version == 407
            assert answer.ext_fields is None
            assert live.broker.groups.get("G") is not None
            topic = live.broker.topics.find("%RETRY%G")
            assert topic is not None
            assert (topic.read_queue_nums, topic.perm, topic.topic_sys_flag) == (1, 6, UNIT_SUB_FLAG)
            assert await client_ids(client, "G") == ["c1"]

    run(main())


def test_second_consumer_makes_the_first_one_hear_at_once(run: Any, tmp_path: Path) -> None:
    """The joining client hears it before its heartbeat is answered."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            first, second = live.client("c1"), live.client("c2")
            await first.heartbeat("G", "TopicA")
            assert first.codes_asked() == [NOTIFY]
            await second.heartbeat("G", "TopicA")
            assert second.codes_asked() == [NOTIFY]
            await eventually(lambda: first.codes_asked() == [NOTIFY, NOTIFY])
            assert first.asked[0].ext_fields == {"consumerGroup": "G"}
            assert first.asked[0].is_oneway

    run(main())


def test_leaving_consumers_make_the_rest_hear(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            first, second, third = (live.client(f"c{number}") for number in (1, 2, 3))
            for client in (first, second, third):
                await client.heartbeat("G", "TopicA")
            await eventually(lambda: len(first.asked) == 3)
            header = UnregisterClientHeader(client_id="c2", consumer_group="G", producer_group="PG")
            answer = await second.call(RequestCode.UNREGISTER_CLIENT, header)
            assert answer.ext_fields == {}
            await eventually(lambda: len(first.asked) == 4)
            await third.close()
            await eventually(lambda: len(first.asked) == 5)
            assert await client_ids(first, "G") == ["c1"]

    run(main())


@pytest.mark.parametrize("by_group", [True, False])
def test_notifications_can_be_switched_off(run: Any, tmp_path: Path, by_group: bool) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, notify_consumer_ids_changed_enable=by_group) as live:
            client = live.client("c1")
            config = SubscriptionGroupConfig(group_name="G", notify_consumer_ids_changed_enable=not by_group)
            await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
            await client.heartbeat("G", "TopicA")
            assert await client_ids(client, "G") == ["c1"]
            assert client.asked == []

    run(main())


def test_members_of_a_crowd_are_told_together(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            first = live.client("first")
            await first.heartbeat("G", "T")
            crowd = [live.client(f"c{number}") for number in range(AT_ONCE_MEMBERS_MAX + 30)]
            await asyncio.gather(*(client.heartbeat("G", "T") for client in crowd))
            await eventually(lambda: NOTIFY in crowd[-1].codes_asked())
            assert AT_ONCE_MEMBERS_MAX <= len(first.asked) < len(crowd)

    run(main())


def test_repeated_heartbeat_is_recognised_until_something_changes(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1")
            await client.heartbeat("G", "TopicA", producer="PG")
            (first,) = last_heartbeats(live)
            live.clock.shift_ms += 60_000
            await client.heartbeat("G", "TopicA", producer="PG")
            assert last_heartbeats(live) == [first]
            assert last_heartbeats(live)[0] is first
            assert first.info.last_update_ms >= live.clock() - 1000
            live.broker.groups.delete("G")
            await client.heartbeat("G", "TopicA", producer="PG")
            assert live.broker.groups.get("G") is not None
            assert last_heartbeats(live)[0] is not first

    run(main())


def test_deleted_retry_topic_comes_back_with_the_next_heartbeat(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1")
            await client.heartbeat("G", "TopicA")
            live.broker.topics.delete("%RETRY%G")
            await client.heartbeat("G", "TopicA")
            assert live.broker.topics.find("%RETRY%G") is not None

    run(main())


def test_the_last_heartbeat_of_a_group_decides_its_subscriptions(run: Any, tmp_path: Path) -> None:
    """Two clients with different subscriptions flap the table, also with repeated heartbeats."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            first, second = live.client("c1"), live.client("c2")
            for client, topic in ((first, "T1"), (second, "T2")) * 3:
                await client.heartbeat("G", topic)
                group = live.broker.consumers.find("G")
                assert group is not None
                assert list(group.subscriptions) == [topic]

    run(main())


def test_client_without_heartbeats_is_dropped_after_two_minutes(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            silent, alive = live.client("silent"), live.client("alive")
            await silent.heartbeat("G", "TopicA", producer="PG")
            await alive.heartbeat("G", "TopicA")
            live.clock.shift_ms += CLIENT_EXPIRY_MS - 1000
            await alive.heartbeat("G", "TopicA")
            drop_expired_clients(live.broker)
            assert sorted(await client_ids(alive, "G")) == ["alive", "silent"]
            live.clock.shift_ms += 2000
            drop_expired_clients(live.broker)
            assert await client_ids(alive, "G") == ["alive"]
            assert live.broker.producers.members("PG") == []
            await eventually(lambda: not silent.remoting.open_connections())

    run(main())


def test_unknown_group_is_registered_but_not_created_when_groups_are_not_automatic(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, auto_create_subscription_group=False) as live:
            client = live.client("c1")
            await client.heartbeat("G", "TopicA")
            assert await client_ids(client, "G") == ["c1"]
            assert live.broker.groups.get("G") is None
            assert live.broker.topics.find("%RETRY%G") is None

    run(main())


def test_consumer_list_of_nobody_is_an_error(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            header = ConsumerGroupHeader(consumer_group="nobody")
            answer = await live.client().call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            assert (answer.code, answer.remark) == (1, "no consumer for this group, nobody")

    run(main())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff" * 10, b'{"consumerDataSet":7}'])
def test_unreadable_heartbeat_is_an_error_and_the_connection_stays(
    run: Any, tmp_path: Path, body: bytes
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            assert (await client.call(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SYSTEM_ERROR
            assert (await client.heartbeat("G", "T")).code == ResponseCode.SUCCESS

    run(main())


@pytest.mark.parametrize(
    ("enabled", "kind", "expression", "code", "words"),
    [
        (False, "TAG", "a || b", 0, ""),
        (False, "SQL92", "a > 1", 1, "The broker does not support consumer to filter message by SQL92"),
        (True, "SQL92", "a > 1", 0, ""),
        (True, "SQL92", "a >< 1", 23, ""),
        (True, "CLASS", "x", 23, "CLASS"),
    ],
)
def test_subscription_is_checked_before_a_consumer_starts(
    run: Any, tmp_path: Path, enabled: bool, kind: str, expression: str, code: int, words: str
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=enabled) as live:
            data = SubscriptionData(topic="T", sub_string=expression, expression_type=kind)
            body = CheckClientRequestBody(client_id="c", group="g", subscription_data=data).encode()
            answer = await live.client().call(RequestCode.CHECK_CLIENT_CONFIG, body=body)
            assert answer.code == code
            assert words in (answer.remark or "")

    run(main())


def test_sql_subscription_of_a_heartbeat_becomes_filter_data_and_dies_with_the_group(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=True) as live:
            client = live.client("c1")
            data = [SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92", sub_version=3)]
            await client.heartbeat("G", subscription_data_set=data)
            known = live.broker.filter_data.get("T", "G")
            assert known is not None
            assert (known.client_version, known.dead) == (3, False)
            await client.close()
            await eventually(lambda: known.dead)

    run(main())


# --- offsets ---


def test_new_group_on_a_young_queue_starts_at_zero(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for topic in ("never seen", "TopicA"):
                answer = await client.committed("G", topic)
                assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
                await client.send("TopicA", 0)

    run(main())


def test_committed_offset_is_returned_even_when_smaller_or_of_unknown_topics(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for offset in (10, 3):
                answer = await client.commit("G", "no such topic", 77, offset)
                assert (answer.code, answer.ext_fields) == (0, {})
                assert (await client.committed("G", "no such topic", 77)).ext_fields == {
                    "offset": str(offset)
                }

    run(main())


def test_offsets_survive_a_restart(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            await live.client().commit("G", "TopicA", 1, 42)
        async with live_broker(tmp_path) as live:
            assert (await live.client().committed("G", "TopicA", 1)).ext_fields == {"offset": "42"}

    run(main())


def test_offsets_are_written_within_the_interval(run: Any, tmp_path: Path) -> None:
    """A killed broker loses at most flushConsumerOffsetInterval."""

    async def main() -> None:
        async with live_broker(tmp_path, flush_consumer_offset_interval=50) as live:
            await live.client().commit("G", "TopicA", 1, 42)
            file = tmp_path / "store" / "config" / "consumerOffset.json"
            await eventually(lambda: file.exists() and '"TopicA@G":{1:42' in file.read_text())

    run(main())


def test_all_offsets_are_given_to_replicas(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.commit("G", "TopicA", 1, 42)
            answer = await client.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
            assert bytes(answer.body) == b'{"offsetTable":{"TopicA@G":{1:42}}}'
            answer = await client.call(RequestCode.GET_ALL_DELAY_OFFSET)
            assert list(json_java.loads(answer.body)) == ["offsetTable"]

    run(main())


# --- locks ---


async def lock(client: LiveClient, client_id: str, *queues: MessageQueue) -> list[MessageQueue]:
    body = LockBatchRequestBody(consumer_group="g1", client_id=client_id, mq_set=list(queues))
    answer = await client.call(RequestCode.LOCK_BATCH_MQ, body=body.encode())
    return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set


def test_queue_is_locked_for_one_client_until_it_unlocks_or_a_minute_passes(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            assert await lock(client, "c1", QUEUE) == [QUEUE]
            assert await lock(client, "c2", QUEUE) == []
            live.clock.shift_ms += 60_500
            assert await lock(client, "c2", QUEUE) == [QUEUE]
            assert await lock(client, "c1", QUEUE) == []
            body = UnlockBatchRequestBody(consumer_group="g1", client_id="c2", mq_set=[QUEUE])
            assert (await client.call(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())).code == 0
            assert await lock(client, "c1", QUEUE) == [QUEUE]

    run(main())
