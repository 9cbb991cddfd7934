"""Delayed messages over the wire, on a clock that stands still until it is turned."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveBroker, LiveClient, live_broker
from message_kit import StoppedClock, arrived, calm, fields_of, props, stored

from cometmq.protocol import json_java
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.names import SCHEDULE_TOPIC
from cometmq.store.delay_levels import DelayLevels

LEVELS_MS = DelayLevels().delays_ms
TOPIC = "TopicDelay"


async def send_delayed(
    client: LiveClient, level: object, body: bytes = b"later", **more: Any
) -> dict[str, str]:
    return fields_of(
        await client.send(TOPIC, more.pop("queue_id", 0), body, properties=props(DELAY=level), **more)
    )


def test_message_comes_when_its_level_has_passed_and_keeps_what_it_was_born_with(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            text = props(KEYS="k", DELAY=2, WAIT="true", colour="red")
            answer = fields_of(await client.send(TOPIC, 3, b"x", flag=7, reconsume_times=2, properties=text))
            assert (answer["queueId"], answer["queueOffset"]) == ("3", "0")
            sent_ms = clock.ms
            clock.ms += LEVELS_MS[1] - 1
            await calm()
            assert await stored(client, TOPIC, 3) == []
            clock.ms += 1
            (message,) = await arrived(client, TOPIC, queue_id=3)
            assert (message.body, message.flag, message.reconsume_times) == (b"x", 7, 2)
            assert message.store_timestamp_ms == sent_ms + LEVELS_MS[1]
            assert message.born_timestamp_ms <= sent_ms + 5_000
            assert message.properties == {
                "KEYS": "k", "DELAY": "2", "WAIT": "true", "colour": "red", "CLUSTER": "C1",
                "REAL_TOPIC": TOPIC, "REAL_QID": "3",
            }  # fmt: skip

    run(main())


def test_all_eighteen_levels_come_on_time_and_none_before(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            start_ms = clock.ms
            for level in range(18, 0, -1):
                await send_delayed(client, level, b"%d" % level)
            for level, delay_ms in enumerate(LEVELS_MS, 1):
                clock.ms = start_ms + delay_ms - 1
                await asyncio.sleep(0.11)
                assert len(await stored(client, TOPIC)) == level - 1
                clock.ms = start_ms + delay_ms
                assert (await arrived(client, TOPIC, level))[-1].body == b"%d" % level

    run(main())


def test_level_above_the_highest_is_the_highest(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 99)
            assert live.broker.store.max_offset(SCHEDULE_TOPIC, 17) == 1
            clock.ms += LEVELS_MS[17]
            (message,) = await arrived(client, TOPIC)
            assert message.properties["DELAY"] == "18"

    run(main())


@pytest.mark.parametrize("level", [0, -1, "soon", "", "9999999999"])
def test_other_values_do_not_delay(run: Any, tmp_path: Path, level: object) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, level)
            assert [message.body for message in await stored(client, TOPIC)] == [b"later"]

    run(main())


def test_order_within_a_level_is_the_order_of_sending(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            bodies = [b"%d" % number for number in range(500)]
            await asyncio.gather(*(send_delayed(client, 1, body) for body in bodies))
            clock.ms += 1_000
            assert [message.body for message in await arrived(client, TOPIC, 500)] == bodies

    run(main())


def test_waiting_messages_survive_a_restart_and_delivered_ones_do_not_come_again(
    run: Any, tmp_path: Path
) -> None:
    """The file delayOffset.json has the form of the original."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 1, b"first")
            await send_delayed(client, 3, b"second")
            clock.ms += 1_000
            await arrived(client, TOPIC)
        assert (tmp_path / "store/config/delayOffset.json").read_text() == '{\n\t"offsetTable":{1:1\n\t}\n}'
        clock.ms += LEVELS_MS[2]
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            messages = await arrived(client, TOPIC, 2)
            assert [message.body for message in messages] == [b"first", b"second"]
            await calm()
            assert len(await stored(client, TOPIC)) == 2

    run(main())


def test_offsets_of_the_levels_are_told(run: Any, tmp_path: Path) -> None:
    """GET_ALL_DELAY_OFFSET and the runtime figures."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 1)
            await send_delayed(client, 1)
            await send_delayed(client, 4)
            clock.ms += 1_000
            await arrived(client, TOPIC, 2)
            response = await client.call(RequestCode.GET_ALL_DELAY_OFFSET)
            assert bytes(response.body) == b'{"offsetTable":{1:2}}'
            info = json_java.loads((await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
            assert info["scheduleMessageOffset_1"] == "2,2"
            assert live.broker.delay.pending == 1

    run(main())


def test_clock_turned_back_does_not_hold_messages_for_longer_than_their_level(
    run: Any, tmp_path: Path
) -> None:
    """A delivery time further away than the level allows counts as due."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 5)
            await calm()
            clock.ms -= 3_600_000
            await arrived(client, TOPIC)

    run(main())


def test_clock_turned_forward_brings_what_is_due_then(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 17)
            await send_delayed(client, 18)
            clock.ms += 3_600_000
            await arrived(client, TOPIC)
            await calm()
            assert live.broker.delay.pending == 1

    run(main())


def test_messages_keep_their_time_when_a_level_gets_longer(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, message_delay_level="10s") as live:
            await live.client().create_topic(TOPIC, 1)
            await send_delayed(live.client(), 1)
        async with live_broker(tmp_path, clock=clock, message_delay_level="1h") as live:
            clock.ms += 9_999
            await calm()
            assert await stored(live.client(), TOPIC) == []
            clock.ms += 1
            await arrived(live.client(), TOPIC)

    run(main())


def test_messages_come_at_once_when_a_level_gets_shorter_than_their_rest(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, message_delay_level="1h") as live:
            await live.client().create_topic(TOPIC, 1)
            await send_delayed(live.client(), 1)
        async with live_broker(tmp_path, clock=clock, message_delay_level="10s") as live:
            await arrived(live.client(), TOPIC)

    run(main())


def test_levels_that_were_removed_still_deliver_what_they_hold(run: Any, tmp_path: Path) -> None:
    """The original never serves their queues again."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, message_delay_level="1s 5s 10s") as live:
            await live.client().create_topic(TOPIC, 1)
            await send_delayed(live.client(), 3)
        async with live_broker(tmp_path, clock=clock, message_delay_level="1s") as live:
            client = live.client()
            await send_delayed(client, 3, b"level 1 now")
            clock.ms += 1_000
            await arrived(client, TOPIC)
            clock.ms += 9_000
            assert [message.body for message in await arrived(client, TOPIC, 2)] == [b"level 1 now", b"later"]

    run(main())


def test_refused_put_is_tried_again_and_nothing_is_lost_or_out_of_order(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            for number in range(3):
                await send_delayed(client, 1, b"%d" % number)
            disk = live.broker.store.retention.disk
            disk.full = True
            clock.ms += 1_000
            await calm()
            assert await stored(client, TOPIC) == []
            disk.full = False
            assert [message.body for message in await arrived(client, TOPIC, 3)] == [b"0", b"1", b"2"]
            assert len(await stored(client, TOPIC)) == 3

    run(main())


def test_message_that_can_never_be_stored_does_not_hold_up_the_others(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 1, b"x" * 10_000)
            await send_delayed(client, 1, b"small")
            await set_option(client, "maxMessageSize=1000")
            clock.ms += 1_000
            assert [message.body for message in await arrived(client, TOPIC)] == [b"small"]
            assert "MESSAGE_ILLEGAL" in caplog.text

    run(main())


async def set_option(client: LiveClient, text: str) -> None:
    response = await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    assert response.code == 0, response


def test_damaged_record_is_passed_over(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            for number in range(5):
                await send_delayed(client, 1, b"%d" % number)
            damage(live, queue_offset=2)
            clock.ms += 1_000
            messages = await arrived(client, TOPIC, 4)
            assert [message.body for message in messages] == [b"0", b"1", b"3", b"4"]

    run(main())


def damage(live: LiveBroker, queue_offset: int) -> None:
    (entry,) = live.broker.store.queue_entries(SCHEDULE_TOPIC, 0, queue_offset, 1)
    record = live.broker.store.read_record(entry.physical_offset)
    assert record is not None
    record[68 + 16 : 72 + 16] = b"\x7f\xff\xff\xff"  # the length of the body


def test_delivery_times_are_found_behind_the_extension_of_the_queue(run: Any, tmp_path: Path) -> None:
    """With enableConsumeQueueExt the entry points to a unit that holds the time."""

    async def main() -> None:
        clock = StoppedClock()
        settings = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 65_536}
        async with live_broker(tmp_path, clock=clock, **settings) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 3)
            clock.ms += 9_999
            await calm()
            assert await stored(client, TOPIC) == []
            clock.ms += 1
            await arrived(client, TOPIC)

    run(main())


def test_messages_in_a_log_file_that_goes_are_delivered_all_the_same(run: Any, tmp_path: Path) -> None:
    """With fileReservedTime below the longest level the original loses them."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, mapped_file_size_commit_log=65_536) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 18, b"waits two hours")
            while live.broker.store.min_physical_offset + 65_536 * 3 > live.broker.store.max_physical_offset:
                await client.send("Other", 0, b"x" * 20_000)
            live.broker.store.retention._take_files(clock.ms, True)
            assert live.broker.store.min_physical_offset > 0
            clock.ms += LEVELS_MS[17] - 1
            await calm()
            assert await stored(client, TOPIC) == []
            clock.ms += 1
            (message,) = await arrived(client, TOPIC)
            assert message.body == b"waits two hours"

    run(main())


def test_delayed_messages_count_for_their_topic_when_they_are_delivered(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 1)
            clock.ms += 1_000
            await arrived(client, TOPIC)
            header = {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}
            assert (await client.call(RequestCode.VIEW_BROKER_STATS_DATA, fields=header)).code == 0

    run(main())


def test_saved_offsets_outside_of_the_queue_are_moved_into_it(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        config = tmp_path / "store/config"
        config.mkdir(parents=True)
        (config / "delayOffset.json").write_text('{"offsetTable":{1:5000,2:-3}}')
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_delayed(client, 1, b"1")
            await send_delayed(client, 2, b"2")
            clock.ms += 5_000
            assert {message.body for message in await arrived(client, TOPIC, 2)} == {b"1", b"2"}

    run(main())


def test_batch_with_a_delay_is_refused(run: Any, tmp_path: Path) -> None:
    """The batch path itself is tested with the sends."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            for name in ("DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"):
                body = b"\0\0\0\x18" + bytes(14) + b"\0\1x" + b"\0\0"
                response = await live.client().send(TOPIC, 0, body, batch=True, properties=props(**{name: 1}))
                assert response.code == 13, name

    run(main())
