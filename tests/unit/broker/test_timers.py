"""Messages with a delivery time of their own, as in RocketMQ 5, over the wire on a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveBroker, LiveClient, eventually, live_broker
from message_kit import StoppedClock, arrived, calm, fields_of, props, stored

from cometmq.broker.timers import DELAY_MS_MAX, HOPS_MS, hop_level
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.names import TIMER_TOPIC

TOPIC = "TopicTimer"
DAY_MS = 86_400_000


async def send_timed(client: LiveClient, body: bytes = b"later", **times: int) -> dict[str, str]:
    return fields_of(await client.send(TOPIC, 0, body, properties=props(**times)))


async def turn_to(live: LiveBroker, clock: StoppedClock, ms: int) -> None:
    """Turn the clock, and let every message make the hops that are due by then."""
    clock.ms = ms
    await eventually(lambda: all(_is_quiet(queue, ms) for queue in live.broker.timers.queues.values()))


def _is_quiet(queue: Any, ms: int) -> bool:
    return queue.pending == 0 or (queue._due_ms is not None and queue._due_ms > ms)


@pytest.mark.parametrize(
    ("name", "value", "delay_ms"),
    [
        ("TIMER_DELIVER_MS", None, 90_000),
        ("TIMER_DELAY_MS", 1_500, 1_500),
        ("TIMER_DELAY_SEC", 3_600, 3_600_000),
    ],
)
def test_message_comes_at_its_time_and_not_before(
    run: Any, tmp_path: Path, name: str, value: int | None, delay_ms: int
) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            sent_ms = clock.ms
            answer = await send_timed(client, **{name: sent_ms + delay_ms if value is None else value})
            assert answer["queueId"] == "0"
            await turn_to(live, clock, sent_ms + delay_ms // 2)
            await turn_to(live, clock, sent_ms + delay_ms - 1)
            assert await stored(client, TOPIC) == []
            clock.ms = sent_ms + delay_ms
            (message,) = await arrived(client, TOPIC)
            assert message.store_timestamp_ms == sent_ms + delay_ms
            assert message.properties["TIMER_OUT_MS"] == str(sent_ms + delay_ms)
            assert message.properties["REAL_TOPIC"] == TOPIC

    run(main())


def test_times_up_to_thirty_days_are_kept_to_the_millisecond_over_restarts(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock, chance = StoppedClock(), random.Random(7)
        start_ms = clock.ms
        # Two that are due within one shortest hop would come in the order of their queue: these are far apart.
        times = [*(int(1_000 * 1.81**number) for number in range(25)), DELAY_MS_MAX]
        async with live_broker(tmp_path, clock=clock) as live:
            await live.client().create_topic(TOPIC, 1)
            for delay_ms in chance.sample(times, len(times)):
                await send_timed(live.client(), b"%d" % delay_ms, TIMER_DELIVER_MS=start_ms + delay_ms)
        for part in (times[:9], times[9:18], times[18:]):
            async with live_broker(tmp_path, clock=clock) as live:
                for delay_ms in part:
                    await turn_to(live, clock, start_ms + delay_ms - 1)
                    await turn_to(live, clock, start_ms + delay_ms)
        async with live_broker(tmp_path, clock=clock) as live:
            messages = await stored(live.client(), TOPIC)
            assert [int(message.body) for message in messages] == times
            assert [message.store_timestamp_ms - start_ms for message in messages] == times

    run(main(), timeout=60)


def test_steady_clock_brings_messages_within_the_shortest_hop(run: Any, tmp_path: Path) -> None:
    """The real clock: messages of mixed delays share the queues, none waits long behind another."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            chance = random.Random(3)
            for number in range(60):
                await send_timed(client, b"%d" % number, TIMER_DELAY_MS=chance.randrange(1, 900))
            messages = await arrived(client, TOPIC, 60)
            late = [one.store_timestamp_ms - int(one.properties["TIMER_OUT_MS"]) for one in messages]
            assert min(late) >= 0
            assert sorted(late)[30] <= 100

    run(main())


def test_few_copies_are_made(run: Any, tmp_path: Path) -> None:
    """One per binary digit of the delay at most, whatever the clock does meanwhile."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            start_ms = clock.ms
            await send_timed(client, TIMER_DELAY_MS=HOPS_MS[12] - 1)
            for step in range(1, 200):
                await turn_to(live, clock, start_ms + HOPS_MS[12] * step // 200)
            clock.ms = start_ms + HOPS_MS[12]
            await arrived(client, TOPIC)
            copies = sum(live.broker.store.max_offset(TIMER_TOPIC, level) for level in range(len(HOPS_MS)))
            assert copies <= 13

    run(main())


def test_hops_are_the_longest_that_fit() -> None:
    assert [hop_level(rest) for rest in (0, 1, 24, 25, 49, 50, 99, 100)] == [0, 0, 0, 0, 0, 1, 1, 2]
    assert all(hop_level(hop_ms) == level for level, hop_ms in enumerate(HOPS_MS))
    assert hop_level(DELAY_MS_MAX) == len(HOPS_MS) - 1
    assert hop_level(-5) == 0


@pytest.mark.parametrize(
    ("times", "remark"),
    [
        ({"TIMER_DELAY_MS": DELAY_MS_MAX + 60_000}, "max delay 2592000000ms"),
        ({"TIMER_DELAY_SEC": 31 * 86_400}, "max delay"),
        ({"TIMER_DELIVER_MS": "tomorrow"}, "is a number of milliseconds"),
        ({"TIMER_DELIVER_MS": "-5"}, "is a number"),
        ({"TIMER_DELAY_MS": "9" * 30}, "is a number"),
    ],
)
def test_impossible_times_are_refused(run: Any, tmp_path: Path, times: dict[str, Any], remark: str) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for more in ({}, {"TRAN_MSG": "true", "PGROUP": "PG"}):
                response = await client.send(TOPIC, 0, properties=props(**times, **more))
                assert response.code == 13
                assert remark in (response.remark or "")
            assert live.broker.store.max_physical_offset == 0

    run(main())


def test_time_that_has_passed_means_now(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_timed(client, TIMER_DELIVER_MS=live.clock() - 1)
            await send_timed(client, TIMER_DELAY_MS=0)
            messages = await stored(client, TOPIC)
            assert len(messages) == 2
            assert "REAL_TOPIC" not in messages[0].properties

    run(main())


def test_delay_level_goes_before_a_time(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await send_timed(client, DELAY=1, TIMER_DELAY_SEC=3_600)
            clock.ms += 1_000
            await arrived(client, TOPIC)

    run(main())


def test_committed_transaction_waits_for_its_time(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            text = props(TRAN_MSG="true", PGROUP="PG", TIMER_DELAY_MS=2_000, UNIQ_KEY="U")
            half = fields_of(await client.send(TOPIC, 0, b"half", properties=text, sys_flag=4))
            clock.ms += 5_000  # a relative time counts from the commit
            fields = {
                "producerGroup": "PG", "tranStateTableOffset": half["queueOffset"],
                "commitLogOffset": str(int(half["msgId"][16:], 16)), "commitOrRollback": "8", "msgId": "U",
            }  # fmt: skip
            assert (await client.call(RequestCode.END_TRANSACTION, fields=fields)).code == 0
            clock.ms += 1_999
            await calm()
            assert await stored(client, TOPIC) == []
            clock.ms += 1
            (message,) = await arrived(client, TOPIC)
            assert message.body == b"half"

    run(main())


def test_clock_turned_back_waits_for_the_time_again(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            out_ms = clock.ms + 60_000
            await send_timed(client, TIMER_DELIVER_MS=out_ms)
            await turn_to(live, clock, out_ms - 10_000)
            await turn_to(live, clock, out_ms - DAY_MS)
            for hour in range(1, 25):
                await turn_to(live, clock, min(out_ms - DAY_MS + hour * 3_600_000, out_ms - 1))
            assert await stored(client, TOPIC) == []
            clock.ms = out_ms
            await arrived(client, TOPIC)

    run(main(), timeout=60)


def test_retention_never_cancels_a_waiting_message(run: Any, tmp_path: Path) -> None:
    """Log files go while a message waits ten days, by age and by force, also with a short fileReservedTime."""

    async def main() -> None:
        clock = StoppedClock()
        settings = {"mapped_file_size_commit_log": 65_536, "file_reserved_time": 1}
        async with live_broker(tmp_path, clock=clock, **settings) as live:
            client, store = live.client(), live.broker.store
            await client.create_topic(TOPIC, 1)
            out_ms = clock.ms + 10 * DAY_MS
            await send_timed(client, TIMER_DELIVER_MS=out_ms)
            for day in range(1, 10):
                for _ in range(9):
                    await client.send("Other", 0, b"x" * 20_000)
                await turn_to(live, clock, out_ms - 10 * DAY_MS + day * DAY_MS)
                before = store.min_physical_offset
                store.retention._take_files(clock.ms, day % 2 == 0)
                assert store.min_physical_offset > before
            assert live.broker.timers.pending == 1
            clock.ms = out_ms
            (message,) = await arrived(client, TOPIC)
            assert message.body == b"later"
            assert message.store_timestamp_ms == out_ms

    run(main(), timeout=60)


def test_log_file_stays_while_its_waiting_messages_cannot_be_stored_anew(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, mapped_file_size_commit_log=65_536) as live:
            client, store = live.client(), live.broker.store
            await send_timed(client, TIMER_DELAY_SEC=86_400)
            for _ in range(9):
                await client.send("Other", 0, b"x" * 20_000)
            clock.ms += 30 * DAY_MS - DAY_MS // 2 - 1
            store.retention.disk.full = True
            clock.ms = clock.ms - 29 * DAY_MS  # not due yet
            removed = store.retention._take_files(clock.ms + 29 * DAY_MS, False)
            assert removed == []
            store.retention.disk.full = False
            assert store.retention._take_files(clock.ms + 29 * DAY_MS, False) != []
            assert live.broker.timers.pending == 1

    run(main())


def test_nobody_sends_to_or_reads_from_the_queues_of_waiting_messages(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await send_timed(client, TIMER_DELAY_SEC=60)
            assert (await client.send(TIMER_TOPIC)).code == 16
            assert (await client.create_topic(TIMER_TOPIC)).code == 1
            assert (await client.pull("CG", TIMER_TOPIC)).code == 17
            assert (await client.call(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
            assert live.broker.timers.pending == 1

    run(main())


def test_dead_letters_do_not_wait(run: Any, tmp_path: Path) -> None:
    """A consumed message that its client sends to the retry topic for the last time still has its timer properties."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.heartbeat("CG", TOPIC)
            text = props(TIMER_DELAY_SEC=60)
            response = await client.send(
                "%RETRY%CG", 0, b"dead", properties=text, reconsume_times=16, max_reconsume_times=16
            )
            assert response.code == 0
            assert [message.body for message in await stored(client, "%DLQ%CG")] == [b"dead"]

    run(main())


def test_many_timers_share_their_queues(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client, chance = live.client(), random.Random(11)
            await client.create_topic(TOPIC, 1)
            start_ms = clock.ms
            delays = [chance.randrange(1, 100_000) for _ in range(1_000)]
            sends = (send_timed(client, b"%d" % delay, TIMER_DELAY_MS=delay) for delay in delays)
            await asyncio.gather(*sends)
            for ms in range(1_000, 100_001, 3_000):
                await turn_to(live, clock, start_ms + ms)
            await turn_to(live, clock, start_ms + 100_000)
            messages = await arrived(client, TOPIC, 1_000)
            assert sorted(int(message.body) for message in messages) == sorted(delays)
            late = [message.store_timestamp_ms - start_ms - int(message.body) for message in messages]
            assert min(late) >= 0
            assert max(late) < 3_000

    run(main(), timeout=60)
