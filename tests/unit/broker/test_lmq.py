"""Light queues: one message in several queues at once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveClient, eventually, live_broker
from message_kit import StoppedClock, arrived, fields_of, props, stored

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.headers import ConsumerSendMsgBackHeader
from cometmq.protocol.record_cy import decode_records

TOPIC = "TopicLight"
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


async def send_to(client: LiveClient, queues: str, body: bytes = b"x", queue_id: int = 1, **more: Any) -> Any:
    text = props(INNER_MULTI_DISPATCH=queues, **more)
    return await client.send(TOPIC, queue_id, body, properties=text)


async def bodies(client: LiveClient, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in await stored(client, topic, queue_id)]


def test_one_message_is_readable_from_several_light_queues(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            fields_of(await send_to(client, "%LMQ%a,%LMQ%b", b"1"))
            fields_of(await send_to(client, "%LMQ%b", b"2", queue_id=2))
            fields_of(await client.send(TOPIC, 1, b"3"))
            assert await bodies(client, "%LMQ%a") == [b"1"]
            assert await bodies(client, "%LMQ%b") == [b"1", b"2"]
            assert await bodies(client, TOPIC, 1) == [b"1", b"3"]
            message = (await stored(client, "%LMQ%b"))[1]
            assert (message.topic, message.queue_id) == (TOPIC, 2)
            assert message.properties["INNER_MULTI_QUEUE_OFFSET"] == "1"

    run(main())


def test_light_queues_need_their_switches(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            fields_of(await send_to(client, "%LMQ%a"))
            assert (await client.pull("CG", "%LMQ%a")).code == 17
            assert live.broker.store.max_offset("%LMQ%a", 0) == 0

    run(main())


def test_held_pull_of_a_light_queue_is_woken(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            pull = asyncio.ensure_future(
                client.pull("%LMQ%g", "%LMQ%a", sys_flag=6, suspend_timeout_millis=5_000)
            )
            await eventually(lambda: live.broker.held_pulls.count == 1)
            fields_of(await send_to(client, "%LMQ%a", b"wake"))
            response = await pull
            assert [message.body for message in decode_records(response.body)] == [b"wake"]

    run(main())


def test_offsets_of_light_groups_have_their_own_table_and_survive(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            fields_of(await send_to(client, "%LMQ%a"))
            await client.commit("%LMQ%g", "%LMQ%a", 0, 1)
            await client.commit("CG", TOPIC, 1, 1)
            await client.pull("%LMQ%g", "%LMQ%a", 0, 1)
            assert "%LMQ%g" not in live.broker.groups
        saved = json.loads(
            (tmp_path / "store/config/lmqConsumerOffset.json").read_text().replace("{1:", '{"1":')
        )
        assert saved == {"lmqOffsetTable": {"%LMQ%a@%LMQ%g": 1}, "offsetTable": {f"{TOPIC}@CG": {"1": 1}}}
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            assert fields_of(await client.committed("%LMQ%g", "%LMQ%a"))["offset"] == "1"
            assert await bodies(client, "%LMQ%a") == [b"x"]

    run(main())


def test_light_queues_are_rebuilt_from_the_log(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            for number in range(20):
                fields_of(await send_to(client, "%LMQ%a,%LMQ%b" if number % 2 else "%LMQ%b", b"%d" % number))
            live.broker.store.kill_for_test()
        for path in sorted((tmp_path / "store/consumequeue").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            assert await bodies(client, "%LMQ%a") == [b"%d" % number for number in range(1, 20, 2)]
            assert await bodies(client, "%LMQ%b") == [b"%d" % number for number in range(20)]
            fields_of(await send_to(client, "%LMQ%a", b"next"))
            assert (await bodies(client, "%LMQ%a"))[-1] == b"next"

    run(main())


def test_too_many_light_queues_are_refused(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT, max_lmq_consume_queue_num=2) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            fields_of(await send_to(client, "%LMQ%a,%LMQ%b"))
            response = await send_to(client, "%LMQ%c")
            assert response.code == 1
            assert (response.remark or "").startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
            fields_of(await send_to(client, "%LMQ%b"))

    run(main())


def test_delayed_and_prepared_messages_reach_light_queues_when_they_are_delivered(
    run: Any, tmp_path: Path
) -> None:
    """Not when they are stored to wait, and not twice."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            fields_of(await send_to(client, "%LMQ%a", b"delayed", DELAY=1))
            fields_of(await send_to(client, "%LMQ%a", b"timed", TIMER_DELAY_MS=5_000))
            more = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U"}
            half = fields_of(await send_to(client, "%LMQ%a", b"half", **more))
            assert await bodies(client, "%LMQ%a") == []
            clock.ms += 1_000
            await arrived(client, "%LMQ%a")
            fields = {
                "producerGroup": "PG", "tranStateTableOffset": half["queueOffset"], "commitOrRollback": "8",
                "commitLogOffset": str(int(half["msgId"][16:], 16)), "msgId": "U",
            }  # fmt: skip
            assert (await client.call(RequestCode.END_TRANSACTION, fields=fields)).code == 0
            clock.ms += 4_000
            messages = await arrived(client, "%LMQ%a", 3)
            assert [message.body for message in messages] == [b"delayed", b"half", b"timed"]
            assert len(await stored(client, TOPIC, 1)) == 3

    run(main())


def test_retried_message_does_not_come_to_its_light_queues_again(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat("CG", TOPIC)
            fields_of(await send_to(client, "%LMQ%a"))
            (message,) = await stored(client, TOPIC, 1)
            for level in (1, -1):
                header = ConsumerSendMsgBackHeader(
                    offset=message.physical_offset, group="CG", delay_level=level
                )
                assert (await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
            clock.ms += 1_000
            await arrived(client, "%RETRY%CG")
            assert await bodies(client, "%DLQ%CG") == [b"x"]
            assert await bodies(client, "%LMQ%a") == [b"x"]

    run(main())


def test_other_topics_can_be_named_too(run: Any, tmp_path: Path) -> None:
    """Names without the prefix: the queue of the same id of another topic."""

    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.create_topic("Other")
            fields_of(await client.send("Other", 2, b"own"))
            fields_of(await send_to(client, "Other", b"both", queue_id=2))
            assert await bodies(client, "Other", 2) == [b"own", b"both"]
            fields_of(await client.send("Other", 2, b"own again"))
            assert await bodies(client, "Other", 2) == [b"own", b"both", b"own again"]

    run(main())


@pytest.mark.parametrize(
    "queues", ["%LMQ%a,%LMQ%a", "TopicLight", "%LMQ%a,,%LMQ%b", ",", "%LMQ%a,TopicLight"]
)
def test_queues_named_twice_get_a_message_once(run: Any, tmp_path: Path, queues: str) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            for number in range(3):
                fields_of(await send_to(client, queues, b"%d" % number))
            for name in {*queues.split(","), TOPIC} - {""}:
                queue_id = 1 if name == TOPIC else 0
                assert await bodies(client, name, queue_id) == [b"0", b"1", b"2"], name

    run(main())


@pytest.mark.parametrize("name", ["%LMQ%" + "a" * 200, "..", "a/b", "%LMQ%a\0b"])
def test_names_that_cannot_be_queues_are_refused_and_the_store_goes_on(
    run: Any, tmp_path: Path, name: str
) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            assert (await send_to(client, f"%LMQ%good,{name}")).code == 13
            fields_of(await client.send(TOPIC, 1, b"next"))
            assert await bodies(client, TOPIC, 1) == [b"next"]

    run(main())


def test_offsets_that_a_client_makes_up_do_not_count(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **LIGHT) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            fields_of(await send_to(client, "%LMQ%a", b"0", INNER_MULTI_QUEUE_OFFSET=500))
            fields_of(await send_to(client, "%LMQ%a", b"1"))
            assert await bodies(client, "%LMQ%a") == [b"0", b"1"]
            text = props(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET=900).encode()
            item = b"\0\0\0\0" + bytes(12) + b"\0\0\0\1x" + len(text).to_bytes(2, "big") + text
            item = len(item).to_bytes(4, "big") + item[4:]
            assert (await client.send("FreshTopic", 1, item, batch=True)).code == 13
            assert live.broker.store.max_offset("%LMQ%a", 0) == 2

    run(main())
