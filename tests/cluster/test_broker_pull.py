"""Pulls from a running broker."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from wire_client import COMMIT, SUBSCRIPTION, SUSPEND, WireClient, pull_header, running_broker, until

from cometmq.broker.broker import Broker
from cometmq.broker.held_pulls import EXPIRED_PER_TURN_MAX, EXPIRY_STEP_S, FAR_AWAY_S
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.message import Message
from cometmq.protocol.record_cy import decode_records, encode_batch

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
HELD = SUBSCRIPTION | SUSPEND


def position(response: RemotingCommand) -> tuple[int, str | None, str, str, str]:
    """code, remark, nextBeginOffset, minOffset, maxOffset"""
    fields = response.ext_fields or {}
    assert fields["suggestWhichBrokerId"] == "0"
    return (
        response.code,
        response.remark,
        fields["nextBeginOffset"],
        fields["minOffset"],
        fields["maxOffset"],
    )


async def fill(client: WireClient, topic: str, count: int, **fields: Any) -> None:
    answers = await asyncio.gather(*(client.send(topic, b"%d" % n, **fields) for n in range(count)))
    assert {answer.code for answer in answers} == {0}


async def heartbeat(client: WireClient, **changes: Any) -> None:
    subscription = SubscriptionData(
        topic="TopicA", sub_string="*", sub_version=changes.pop("sub_version", 1), **changes.pop("sub", {})
    )
    values: dict[str, Any] = {
        "group_name": "CG",
        "consume_type": "CONSUME_PASSIVELY",
        "message_model": "CLUSTERING",
        "consume_from_where": "CONSUME_FROM_LAST_OFFSET",
        "subscription_data_set": [subscription],
    }
    consumer = ConsumerData(**{**values, **changes})
    data = HeartbeatData(client_id="c1", consumer_data_set=[consumer])
    assert (await client.call(RequestCode.HEART_BEAT, body=data.encode())).code == 0


# -- statuses ------------------------------------------------------------------------------------------------


def test_statuses_codes_and_corrected_offsets(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            await fill(client, "TopicA", 10)
            assert position(await client.pull("TopicA", 0)) == (0, "FOUND", "10", "0", "10")
            assert position(await client.pull("TopicA", 10)) == (19, "OFFSET_OVERFLOW_ONE", "10", "0", "10")
            assert position(await client.pull("TopicA", 99)) == (21, "OFFSET_OVERFLOW_BADLY", "10", "0", "10")
            assert position(await client.pull("TopicA", -1)) == (21, "OFFSET_TOO_SMALL", "0", "0", "10")
            empty = await client.pull("TopicA", 0, queue_id=1)
            assert position(empty) == (19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
            empty = await client.pull("TopicA", 5, queue_id=1)
            assert position(empty) == (21, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
            none = await client.pull("TopicA", 3, subscription="nobody")
            assert position(none) == (20, "NO_MATCHED_MESSAGE", "10", "0", "10")

    run(main())


def test_illegal_offset_leaves_an_event(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            await fill(client, "TopicA", 3)
            await client.pull("TopicA", 1000)
            [event] = await client.messages("OFFSET_MOVED_EVENT")
            assert (event.tag, event.keys) == ("CG", ["CG"])
            assert json.loads(event.body) == {
                "consumerGroup": "CG",
                "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "TopicA"},
                "offsetNew": 3,
                "offsetRequest": 1000,
            }

    run(main())


def test_pull_gets_as_many_messages_as_asked_for(run: Any, tmp_path: Path) -> None:
    """Row 24, where we differ on purpose: docs/decisions tells why. Zero still gets one."""

    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            await fill(client, "TopicA", 100)
            assert len(await client.messages("TopicA", max_msg_nums=100)) == 100
            assert len(await client.messages("TopicA", max_msg_nums=7)) == 7
            assert len(await client.messages("TopicA", max_msg_nums=0)) == 1

    run(main())


def test_pull_limits_of_the_original_when_configured(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {
            "max_transfer_count_on_message_in_memory": 32,
            "configured": {"max_transfer_count_on_message_in_memory"},
        }
        async with running_broker(tmp_path, **settings) as (_, client):
            await fill(client, "TopicA", 100)
            assert len(await client.messages("TopicA", max_msg_nums=100)) == 32

    run(main())


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({}, 100),
        ({"max_transfer_count_on_message_in_disk": 8}, 8),
        ({"max_transfer_bytes_on_message_in_disk": 1000}, 9),
        ({"max_transfer_count_on_message_in_memory": 32}, 32),
    ],
)
def test_messages_on_disk_have_limits_of_their_own_only_where_configured(
    run: Any, tmp_path: Path, limits: dict[str, int], count: int
) -> None:
    async def main() -> None:
        settings = {"access_message_in_memory_max_ratio": 0, "configured": set(limits)} | limits
        async with running_broker(tmp_path, **settings) as (_, client):
            await fill(client, "TopicA", 100)
            for _ in range(2):  # what was found out with the first pull is remembered
                assert len(await client.messages("TopicA", max_msg_nums=100)) == count

    run(main())


def test_consumer_far_behind_is_sent_to_the_slave_with_every_pull(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"access_message_in_memory_max_ratio": 0, "slave_read_enable": True}
        async with running_broker(tmp_path, **settings) as (_, client):
            await fill(client, "TopicA", 10)
            for _ in range(3):
                response = await client.pull("TopicA", 0)
                assert (response.ext_fields or {})["suggestWhichBrokerId"] == "1"

    run(main())


def test_pull_is_limited_in_bytes_but_gives_at_least_one_message(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            for size in (300_000, 100_000, 100_000, 100_000):
                await client.send("TopicA", b"x" * size)
            assert len(await client.messages("TopicA", 0)) == 1
            assert len(await client.messages("TopicA", 1)) == 2

    run(main())


def test_pull_that_names_its_bytes_gets_them_up_to_a_limit(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            for _ in range(5):
                await client.send("TopicA", b"x" * 250_000)
            counts = {
                asked: [len(await client.messages("TopicA", 0, max_msg_bytes=asked)) for _ in range(2)]
                for asked in (-1, 0, 1, 300_000, 800_000, 1 << 30, None)
            }
            assert counts == {
                -1: [1, 1],
                0: [1, 1],
                1: [1, 1],
                300_000: [1, 1],
                800_000: [3, 3],
                1 << 30: [4, 4],
                None: [1, 1],
            }
            request = RemotingCommand.request(
                RequestCode.PULL_MESSAGE, pull_header("TopicA", 0, max_msg_bytes=800_000)
            )
            request.serialize_type = SerializeType.ROCKETMQ  # the long way
            response = await client.client.invoke(client.address, request)
            assert len(decode_records(response.body)) == 3

    run(main())


def test_pull_that_names_its_bytes_keeps_to_the_configured_limit(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {
            "max_transfer_bytes_on_message_in_memory": 600_000,
            "configured": {"max_transfer_bytes_on_message_in_memory"},
        }
        async with running_broker(tmp_path, **settings) as (_, client):
            for _ in range(4):
                await client.send("TopicA", b"x" * 250_000)
            assert len(await client.messages("TopicA", 0, max_msg_bytes=1 << 20)) == 2

    run(main())


def test_pull_body_is_the_records_as_stored_in_both_header_encodings(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            await fill(client, "TopicA", 3)
            header = pull_header("TopicA", 0)
            for kind in SerializeType:
                request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
                request.serialize_type = kind
                response = await client.client.invoke(client.address, request)
                assert response.serialize_type == kind
                assert [bytes(m.body) for m in decode_records(response.body)] == [b"0", b"1", b"2"]

    run(main())


# -- checks --------------------------------------------------------------------------------------------------


def test_checks_before_reading(run: Any, tmp_path: Path) -> None:
    """With the words of the original."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)

            async def refusal(**fields: Any) -> tuple[int, str | None]:
                response = await client.pull(fields.pop("topic", "TopicA"), 0, **fields)
                assert response.ext_fields in ({}, None)
                return response.code, response.remark

            assert await refusal(topic="Nope") == (17, f"topic[Nope] not exist, apply first please! {FAQ}")
            code, remark = await refusal(queue_id=4)
            assert code == 1
            assert re.fullmatch(
                r"queueId\[4\] is illegal, topic:\[TopicA\] topicConfig.readQueueNums:\[4\] "
                r"consumer:\[/127\.0\.0\.1:\d+\]",
                remark or "",
            )
            broker.topics.table["TopicA"].perm = 2
            assert await refusal() == (16, "the topic[TopicA] pulling message is forbidden")
            broker.groups.put(SubscriptionGroupConfig(group_name="CG", consume_enable=False))
            assert await refusal() == (16, "subscription group no permission, CG")
            broker.config.auto_create_subscription_group = False
            assert await refusal(consumer_group="X") == (26, f"subscription group [X] does not exist, {FAQ}")
            broker.config.broker_permission = 2
            assert await refusal() == (16, "the broker[127.0.0.1] pulling message is forbidden")

    run(main())


def test_pull_creates_its_group(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            assert broker.groups.get("CG") is None
            await client.pull("TopicA")
            assert broker.groups.get("CG") is not None

    run(main())


def test_subscription_of_the_heartbeat(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 2, properties="TAGS\x01TagA")
            await client.send("Other")
            bare = {"sys_flag": 0, "subscription": None, "sub_version": 1}
            response = await client.pull("TopicA", **bare)
            assert (response.code, response.remark) == (24, f"the consumer's group info not exist{FAQ}")
            await heartbeat(client)
            assert len(await client.messages("TopicA", **bare)) == 2
            response = await client.pull("Other", **bare)
            assert (response.code, response.remark) == (24, f"the consumer's subscription not exist{FAQ}")
            response = await client.pull("TopicA", **{**bare, "sub_version": 2})
            assert (response.code, response.remark) == (25, "the consumer's subscription not latest")
            await heartbeat(client, sub_version=3, sub={"tags_set": ["TagB"], "code_set": [2598920]})
            assert (await client.pull("TopicA", **bare)).code == 20
            broker.groups.put(SubscriptionGroupConfig(group_name="CG", consume_broadcast_enable=False))
            await heartbeat(client, message_model="BROADCASTING")
            response = await client.pull("TopicA", **bare)
            remark = "the consumer group[CG] can not consume by broadcast way"
            assert (response.code, response.remark) == (16, remark)

    run(main())


def test_expressions_need_the_switch(run: Any, tmp_path: Path) -> None:
    """A wrong expression is an error with us."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 2, properties="a\x015")
            sql = {"expression_type": "SQL92", "subscription": "a > 3"}
            response = await client.pull("TopicA", **sql)
            remark = "The broker does not support consumer to filter message by SQL92"
            assert (response.code, response.remark) == (1, remark)
            broker.config.enable_property_filter = True
            assert len(await client.messages("TopicA", **sql)) == 2
            assert (await client.pull("TopicA", **{**sql, "subscription": "a > 7"})).code == 20
            assert (await client.pull("TopicA", **{**sql, "subscription": "a >"})).code == 23
            response = await client.pull("TopicA", **{**sql, "subscription": ""})
            assert (response.code, response.remark) == (23, "parse the consumer's subscription failed")

    run(main())


def test_tags_are_filtered_by_hash(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            for tag in ("TagA", "TagB", "AaAa", "BBBB"):
                await client.send("TopicA", tag.encode(), properties=f"TAGS\x01{tag}")
            await client.send("TopicA", b"none")
            found = await client.messages("TopicA", subscription="TagA || TagB")
            assert [bytes(m.body) for m in found] == [b"TagA", b"TagB"]
            found = await client.messages("TopicA", subscription="AaAa")
            assert [bytes(m.body) for m in found] == [b"AaAa", b"BBBB"]

    run(main())


# -- offsets -------------------------------------------------------------------------------------------------


def test_pull_commits_on_the_way(run: Any, tmp_path: Path) -> None:
    """Also when nothing was found or the pull is held, not when a check failed."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 5)
            flags = SUBSCRIPTION | COMMIT
            await client.pull("TopicA", 3, sys_flag=flags, commit_offset=3)
            answer = await client.call(
                RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "CG", "topic": "TopicA", "queueId": "0"}
            )
            assert answer.ext_fields == {"offset": "3"}
            await client.pull("TopicA", 5, sys_flag=flags, commit_offset=5)
            assert broker.offsets.query("CG", "TopicA", 0) == 5
            await client.pull("TopicA", 0, queue_id=99, sys_flag=flags, commit_offset=1)
            assert broker.offsets.query("CG", "TopicA", 99) == -1
            held = asyncio.ensure_future(
                client.pull(
                    "TopicA", 5, sys_flag=flags | SUSPEND, commit_offset=4, suspend_timeout_millis=60_000
                )
            )
            await until(lambda: broker.held_pulls.count == 1)
            assert broker.offsets.query("CG", "TopicA", 0) == 4
            broker.offsets.commit("CG", "TopicA", 0, 9)
            await client.send("TopicA")
            assert (await held).code == 0
            assert broker.offsets.query("CG", "TopicA", 0) == 9  # not committed again on waking up

    run(main())


# -- long polling --------------------------------------------------------------------------------------------


def hold(
    client: WireClient, queue_offset: int, timeout_ms: int = 60_000, **fields: Any
) -> asyncio.Task[RemotingCommand]:
    values = {"sys_flag": HELD, "suspend_timeout_millis": timeout_ms, **fields}
    return asyncio.ensure_future(client.pull("TopicA", queue_offset, timeout_ms=30_000, **values))


def test_held_pull_is_woken_by_the_send(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            held = hold(client, 1)
            await until(lambda: broker.held_pulls.count == 1)
            await client.send("TopicA", b"new")
            response = await held
            assert position(response) == (0, "FOUND", "2", "0", "2")
            assert [bytes(m.body) for m in decode_records(response.body)] == [b"new"]
            assert (broker.held_pulls.count, broker.held_pulls.woken) == (0, 1)

    run(main())


def test_held_pull_of_a_topic_without_messages_is_woken(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            broker.topics.find_or_create("TopicA", queue_nums=4)
            held = hold(client, 0)
            await until(lambda: broker.held_pulls.count == 1)
            await client.send("TopicA", b"first")
            assert (await held).code == 0

    run(main())


def test_held_pull_is_woken_when_its_topic_was_deleted_and_made_again(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            for _ in range(2):
                await client.send("TopicA", b"old")
                end = broker.store.max_offset("TopicA", 0)
                held = hold(client, end)
                await until(lambda: broker.held_pulls.count == 1)
                await client.send("TopicA", b"new")
                assert (await held).code == 0
                assert (await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TopicA"})).code == 0

    run(main())


def test_held_pull_is_answered_when_its_time_is_over(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            first, second = hold(client, 1, 1_000), hold(client, 1, 40)
            assert position(await second) == (19, "OFFSET_OVERFLOW_ONE", "1", "0", "1")
            assert not first.done()
            assert position(await first) == (19, "OFFSET_OVERFLOW_ONE", "1", "0", "1")
            assert broker.held_pulls.expired == 2

    run(main())


def test_only_a_matching_message_wakes_and_the_others_are_not_seen_again(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            held = hold(client, 1, subscription="TagA")
            late = hold(client, 1, 150, subscription="TagC")
            await until(lambda: broker.held_pulls.count == 2)
            await client.send("TopicA", properties="TAGS\x01TagB")
            assert broker.held_pulls.count == 2
            await client.send("TopicA", b"mine", properties="TAGS\x01TagA")
            response = await held
            assert [bytes(m.body) for m in decode_records(response.body)] == [b"mine"]
            assert position(await late) == (20, "NO_MATCHED_MESSAGE", "3", "0", "3")

    run(main())


def test_message_behind_many_others_of_the_same_batch_is_found(run: Any, tmp_path: Path) -> None:
    """One pull examines 800 entries; a held one must not sleep with more to look at."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            held = hold(client, 1, subscription="TagA")
            await until(lambda: broker.held_pulls.count == 1)
            others = [Message("TopicA", b"x", tag="TagB")] * 1_500
            batch = encode_batch([*others, Message("TopicA", b"mine", tag="TagA")])
            await client.send("TopicA", batch, batch=True)
            response = await held
            assert response.code == 20
            while response.code == 20:
                response = await client.pull("TopicA", int(position(response)[2]), subscription="TagA")
            assert [bytes(m.body) for m in decode_records(response.body)] == [b"mine"]

    run(main())


def test_other_queues_do_not_wake(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            held = hold(client, 1)
            await until(lambda: broker.held_pulls.count == 1)
            await client.send("TopicA", queue_id=1)
            await client.send("TopicB")
            assert not held.done()
            held.cancel()

    run(main())


def test_closed_connection_takes_its_held_pulls_with_it(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            other = WireClient(broker.address)
            pulls = [hold(other, 1) for _ in range(10)]
            stays = hold(client, 1)
            await until(lambda: broker.held_pulls.count == 11)
            await other.close()
            await until(lambda: broker.held_pulls.count == 1)
            assert broker.held_pulls.abandoned == 10
            await asyncio.gather(*pulls, return_exceptions=True)
            await client.send("TopicA")
            assert (await stays).code == 0

    run(main())


def test_short_polling_holds_for_its_own_time(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"long_polling_enable": False, "short_polling_time_mills": 50}
        async with running_broker(tmp_path, **settings) as (_, client):
            await fill(client, "TopicA", 1)
            assert (await hold(client, 1, 600_000)).code == 19

    run(main())


def test_held_pull_is_checked_again_when_woken(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            held = hold(client, 1)
            await until(lambda: broker.held_pulls.count == 1)
            broker.groups.put(SubscriptionGroupConfig(group_name="CG", consume_enable=False))
            await client.send("TopicA")
            assert (await held).code == 16

    run(main())


def test_five_thousand_held_pulls_use_one_timer_and_all_wake(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            pulls = [hold(client, 1) for _ in range(5_000)]
            await until(lambda: broker.held_pulls.count == 5_000)
            await client.send("TopicA")
            answers = await asyncio.gather(*pulls)
            assert {answer.code for answer in answers} == {0}
            assert broker.held_pulls.count == 0

    run(main())


def test_many_pulls_whose_time_is_over_at_once_are_all_answered(run: Any, tmp_path: Path) -> None:
    """They end in one step of time, a part of them in each turn of the loop."""
    wait_ms = int(FAR_AWAY_S * 1000)

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            pulls = [hold(client, 1, wait_ms) for _ in range(4 * EXPIRED_PER_TURN_MAX + 1)]
            await until(lambda: broker.held_pulls.count == len(pulls))
            steps = {held.deadline / EXPIRY_STEP_S for _, _, held in broker.held_pulls._deadlines}
            assert all(step == pytest.approx(round(step), abs=1e-3) for step in steps)
            answers = await asyncio.gather(*pulls)
            assert {answer.remark for answer in answers} == {"OFFSET_OVERFLOW_ONE"}
            assert broker.held_pulls.expired == len(pulls)
            assert broker.held_pulls.count == 0

    run(main())


def test_too_many_held_pulls_are_refused_as_busy(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, pull_thread_pool_queue_capacity=2) as (_, client):
            await fill(client, "TopicA", 1)
            pulls = [hold(client, 1) for _ in range(3)]
            done, waiting = await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
            [refused] = done
            assert refused.result().code == 2
            assert refused.result().remark == "[OVERLOAD]system busy, start flow control for a while"
            for task in waiting:
                task.cancel()

    run(main())


# -- what was found out about a pull is remembered -----------------------------------------------------------


def test_a_change_of_topic_group_or_switch_counts_for_the_next_pull(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 3)
            topic = broker.topics.find("TopicA")
            assert topic is not None

            async def code() -> int:
                return (await client.pull("TopicA")).code

            assert [await code(), await code()] == [0, 0]
            group = "CG"
            broker.groups.put(SubscriptionGroupConfig(group_name=group, consume_enable=False))
            assert await code() == ResponseCode.NO_PERMISSION
            broker.groups.put(SubscriptionGroupConfig(group_name=group))
            assert await code() == 0
            broker.groups.disable_consume(group)
            assert await code() == ResponseCode.NO_PERMISSION
            broker.groups.put(SubscriptionGroupConfig(group_name=group))
            broker.topics.put(replace(topic, read_queue_nums=0))
            assert await code() == ResponseCode.SYSTEM_ERROR
            broker.topics.put(replace(topic, perm=2))
            assert await code() == ResponseCode.NO_PERMISSION
            broker.topics.put(topic)
            broker.config.broker_permission = 2
            assert await code() == ResponseCode.NO_PERMISSION
            broker.config.broker_permission = 6
            assert await code() == 0

    run(main())


def test_what_is_remembered_of_pulls_goes_with_the_next_change(run: Any, tmp_path: Path) -> None:
    """Consumers come and go, each with its own version of a subscription."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            for version in range(20):
                await heartbeat(client, sub_version=version)
                await client.pull("TopicA", 0, sub_version=version)
                assert 0 < len(broker.pulls._plain._plans) <= 2

    run(main())


def test_a_held_pull_is_refused_when_its_topic_may_not_be_read_any_more(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 1)
            held = asyncio.create_task(
                client.pull("TopicA", 1, sys_flag=SUSPEND | SUBSCRIPTION, suspend_timeout_millis=30_000)
            )
            await until(lambda: broker.held_pulls.count == 1)
            topic = broker.topics.find("TopicA")
            assert topic is not None
            broker.topics.put(replace(topic, perm=2))
            assert (await client.send("TopicA")).code == 0
            assert (await held).code == ResponseCode.NO_PERMISSION

    run(main())


# -- the fast port, cold data --------------------------------------------------------------------------------


def test_fast_port_serves_all_but_pulls(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, _):
            fast = WireClient(f"127.0.0.1:{broker.config.listen_port - 2}")
            assert (await fast.send("TopicA")).code == 0
            response = await fast.pull("TopicA")
            assert (response.code, response.remark) == (3, " request type 11 not supported")
            await fast.close()

    run(main())


def test_cold_messages_are_touched_in_a_thread_first(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 20)
            _make_cold(broker)
            assert len(await client.messages("TopicA")) == 20
            assert broker.counters.cold_reads == 1

    run(main())


def _make_cold(broker: Broker) -> None:
    get = broker.store.get

    def cold_get(*args: Any, **kwargs: Any) -> Any:
        result = get(*args, **kwargs)
        result.cold_parts = list(result.slices)
        return result

    broker.store.get = cold_get  # type: ignore[method-assign]
    broker.store.reader.at_hand = lambda *_args: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("enabled", "slow", "suggested"), [(False, True, 0), (True, True, 1), (True, False, 0)]
)
def test_slow_readers_are_sent_to_a_replica(
    run: Any, tmp_path: Path, enabled: bool, slow: bool, suggested: int
) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, slave_read_enable=enabled) as (broker, client):
            await fill(client, "TopicA", 1)
            get = broker.store.get

            def slow_get(*args: Any, **kwargs: Any) -> Any:
                result = get(*args, **kwargs)
                result.suggest_slave = slow
                return result

            broker.store.get = slow_get  # type: ignore[method-assign]
            broker.store.reader.at_hand = lambda *_args: None  # type: ignore[method-assign]
            response = await client.pull("TopicA")
            assert (response.ext_fields or {})["suggestWhichBrokerId"] == str(suggested)

    run(main())


def test_pulls_that_may_wait_no_time_at_all_are_held_and_answered(tmp_path: Path) -> None:
    """uvloop's timers have no time when they are due at once."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await client.send("TopicA", b"first")
            pulls = [
                client.pull("TopicA", 1, sys_flag=SUSPEND | SUBSCRIPTION, suspend_timeout_millis=timeout_ms)
                for timeout_ms in (0, 0, 30, 0, 1)
            ]
            answers = await asyncio.gather(*pulls)
            assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}
            assert broker.held_pulls.expired == len(pulls)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


def test_only_the_offset_among_the_fields_counts(run: Any, tmp_path: Path) -> None:
    """Pulls that look alike are decoded once; a member of the same name elsewhere must not be taken for the offset."""

    async def pull_raw(address: str, offset: int, decoy: int) -> str:
        fields = {
            "consumerGroup": "CG", "topic": "TopicA", "queueId": "0", "queueOffset": offset, "maxMsgNums": "1",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        header = {
            "code": 11,
            "other": {"queueOffset": str(decoy)},
            "extFields": fields,
            "flag": 0,
            "opaque": 1,
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(struct.pack(">II", 4 + len(text), len(text)) + text)
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = decode_frame(size.to_bytes(4, "big") + await reader.readexactly(size))
        writer.close()
        return str((answer.ext_fields or {})["nextBeginOffset"])

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await fill(client, "TopicA", 10)
            for offset, decoy in ((3, 3), (3, 5), (4, 5), (0, 9)):
                assert await pull_raw(broker.address, offset, decoy) == str(offset + 1)

    run(main())
