"""Consumer retry over the wire: send-back, growing delays, dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveClient, live_broker
from message_kit import StoppedClock, arrived, calm, fields_of, props, stored

from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import ConsumerSendMsgBackHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.names import SCHEDULE_TOPIC
from cometmq.store.delay_levels import DelayLevels

TOPIC, GROUP = "TopicRetry", "CG"
RETRY, DLQ = "%RETRY%CG", "%DLQ%CG"
LEVELS_MS = DelayLevels().delays_ms


async def send_back(
    client: LiveClient, message: MessageExt | int, level: int = 0, *, version: int = 407, **header: Any
) -> RemotingCommand:
    offset = message if isinstance(message, int) else message.physical_offset
    fields = ConsumerSendMsgBackHeader(offset=offset, group=GROUP, delay_level=level, **header)
    return await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields, version=version)


async def first_message(client: LiveClient, **properties: object) -> MessageExt:
    await client.create_topic(TOPIC, 1)
    await client.heartbeat(GROUP, TOPIC)
    text = props(UNIQ_KEY="U1", KEYS="k1", TAGS="t", **properties)
    fields_of(await client.send(TOPIC, 0, b"job", properties=text, flag=5))
    (message,) = await stored(client, TOPIC)
    return message


def test_failed_message_comes_again_after_growing_delays(run: Any, tmp_path: Path) -> None:
    """10 s, 30 s, 1 min ..., with its count of tries, RETRY_TOPIC and its first id."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            message = first = await first_message(client)
            for tries in range(1, 17):
                assert (await send_back(client, message)).code == 0
                clock.ms += LEVELS_MS[min(2 + tries, 18) - 1] - 1
                if tries < 4:
                    await calm()
                    assert len(await stored(client, RETRY)) == tries - 1
                clock.ms += 1
                message = (await arrived(client, RETRY, tries))[-1]
                assert message.reconsume_times == tries
                assert (message.body, message.flag, message.unique_id) == (b"job", 5, "U1")
                assert message.properties["RETRY_TOPIC"] == TOPIC
                assert message.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
                assert message.born_timestamp_ms == first.born_timestamp_ms
                assert message.properties["WAIT"] == "false"
            assert (await send_back(client, message)).code == 0
            (dead,) = await stored(client, DLQ)
            assert dead.reconsume_times == 17

    run(main())


def test_tries_used_up_or_a_negative_level_make_a_dead_letter(run: Any, tmp_path: Path) -> None:
    """In %DLQ%group, queue 0, at once and readable."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            message = await first_message(client, DELAY=0)
            assert (await send_back(client, message, -1)).code == 0
            assert (await send_back(client, message, max_reconsume_times=0)).code == 0
            dead = await stored(client, DLQ)
            assert [one.reconsume_times for one in dead] == [1, 1]
            assert dead[0].properties["RETRY_TOPIC"] == TOPIC
            assert dead[0].properties["ORIGIN_MESSAGE_ID"] == message.offset_msg_id
            assert dead[0].properties["DELAY"] == "0"
            topic = live.broker.topics.find(DLQ)
            assert topic is not None
            assert (topic.perm, topic.read_queue_nums) == (6, 1)

    run(main())


def test_level_of_the_consumer_goes_before_the_growing_one(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            message = await first_message(client)
            assert (await send_back(client, message, 1)).code == 0
            clock.ms += 1_000
            await arrived(client, RETRY)
            assert (await send_back(client, message, 99)).code == 0
            assert live.broker.store.max_offset(SCHEDULE_TOPIC, 17) == 1

    run(main())


def test_limit_of_the_request_counts_since_version_3_4_9(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            message = await first_message(client)
            assert (await send_back(client, message, max_reconsume_times=0, version=120)).code == 0
            assert await stored(client, DLQ) == []
            assert (await send_back(client, message, max_reconsume_times=0, version=121)).code == 0
            assert len(await stored(client, DLQ)) == 1

    run(main())


@pytest.mark.parametrize("offset", [-1, 3, 10_000_000])
def test_unknown_offset_is_told(run: Any, tmp_path: Path, offset: int) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await first_message(client)
            response = await send_back(client, offset)
            assert (response.code, response.remark) == (1, f"look message by offset failed, {offset}")

    run(main())


def test_refusals_in_their_order(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, auto_create_subscription_group=False) as live:
            client, broker = live.client(), live.broker
            response = await send_back(client, 0)
            assert response.code == 26
            assert (response.remark or "").startswith("subscription group not exist, CG \nSee http")
            broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
            broker.config.broker_permission = 4
            response = await send_back(client, 0)
            assert (response.code, response.remark) == (
                16,
                "the broker[127.0.0.1] sending message is forbidden",
            )
            broker.config.broker_permission = 6
            broker.groups.put(SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=0))
            assert (await send_back(client, 0)).code == 0
            broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
            await client.create_topic(RETRY, 1, perm=4)
            response = await send_back(client, 0)
            assert (response.code, response.remark) == (
                16,
                "the topic[%RETRY%CG] sending message is forbidden",
            )

    run(main())


def test_full_disk_is_an_error_and_the_consumer_keeps_the_message(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            message = await first_message(client)
            live.broker.store.retention.disk.full = True
            response = await send_back(client, message)
            assert (response.code, response.remark) == (1, "SERVICE_NOT_AVAILABLE")

    run(main())


def test_retries_go_to_queues_that_consumers_see(run: Any, tmp_path: Path) -> None:
    """The group's retryQueueNums, but not more than the retry topic has."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            message = await first_message(client)
            live.broker.groups.put(SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=8))
            for _ in range(20):
                await send_back(client, message, 1)
            clock.ms += 1_000
            assert len(await arrived(client, RETRY, 20)) == 20
            await client.create_topic(RETRY, 4)
            for _ in range(60):
                await send_back(client, message, 1)
            clock.ms += 1_000
            for queue_id in range(1, 4):
                await arrived(client, RETRY, 1, queue_id)

    run(main())


def test_client_that_could_not_send_back_sends_to_the_retry_topic_itself(run: Any, tmp_path: Path) -> None:
    """Sent on as any message with a DELAY property."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await first_message(client)
            text = props(DELAY=4, RETRY_TOPIC=TOPIC, UNIQ_KEY="U1")
            sent = await client.send(
                RETRY, 0, b"job", properties=text, reconsume_times=1, max_reconsume_times=16,
                producer_group="CLIENT_INNER_PRODUCER",
            )  # fmt: skip
            assert sent.code == 0
            assert await stored(client, RETRY) == []
            clock.ms += LEVELS_MS[3]
            (message,) = await arrived(client, RETRY)
            assert message.reconsume_times == 1

    run(main())


def test_send_backs_are_counted(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await send_back(client, await first_message(client))
            fields = {"statsName": "SNDBCK_PUT_NUMS", "statsKey": f"{TOPIC}@{GROUP}"}
            assert (await client.call(RequestCode.VIEW_BROKER_STATS_DATA, fields=fields)).code == 0

    run(main())
