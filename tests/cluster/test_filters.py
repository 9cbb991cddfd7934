"""Filtering by tag and by SQL92 over the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveBroker, LiveClient, consumer_data, eventually, live_broker
from message_kit import StoppedClock, arrived, fields_of, props, stored

from cometmq.protocol.bodies.heartbeat import HeartbeatData, SubscriptionData
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.filters import sql92
from cometmq.protocol.hashing import tags_code
from cometmq.protocol.headers import ConsumerSendMsgBackHeader
from cometmq.protocol.record_cy import decode_records

TOPIC, GROUP = "TopicFilter", "CG_sql"
ROWS: list[dict[str, object]] = [
    {"a": 1, "color": "red"},
    {"a": 5, "color": "red"},
    {"a": 5, "color": "blue"},
    {"a": 9},
    {"color": "green"},
    {"a": "5.5", "ok": "TRUE"},
    {},
]

# expression -> which of ROWS match
SELECTIONS: dict[str, list[int]] = {
    "a > 3": [1, 2, 3],
    "a > 3.0": [1, 2, 3, 5],
    "a > 3 AND color = 'red'": [1],
    "a > 3 AND color = 'red' OR color = 'green'": [1, 4],
    "a BETWEEN 2 AND 6": [1, 2],
    "a NOT BETWEEN 2 AND 6": [0, 3],
    "color IN ('red', 'green')": [0, 1, 4],
    "color NOT IN ('red', 'green')": [2],
    "color IS NULL": [3, 5, 6],
    "a IS NOT NULL AND color IS NULL": [3, 5],
    "NOT (color = 'red')": [2, 4],
    "ok = TRUE": [5],
    "a": [],
    "TRUE": list(range(7)),
    "A > 3": [],
    "TAGS = 't2'": [2],
    "a <> 5": [0, 3],
}
BAD_EXPRESSIONS = ["a >", "a = NULL", "NOT a > 3", "a != 3", "a BETWEEN 5 AND 1", "a > 0.0", "5"]


async def send_rows(client: LiveClient) -> None:
    await client.create_topic(TOPIC, 1)
    for number, row in enumerate(ROWS):
        text = props(TAGS=f"t{number}", **row)
        fields_of(await client.send(TOPIC, 0, b"%d" % number, properties=text))


async def selected(client: LiveClient, expression: str, **header: Any) -> list[int]:
    values = {"subscription": expression, "expression_type": "SQL92", **header}
    return [int(message.body) for message in await stored(client, TOPIC, **values)]


async def subscribe(
    client: LiveClient, expression: str, version: int, *, group: str = GROUP, topic: str = TOPIC
) -> RemotingCommand:
    """A heartbeat with an expression, and the subscription to the retry topic that clients add."""
    retry = f"%RETRY%{group}"
    subscriptions = [
        SubscriptionData(topic=topic, sub_string=expression, expression_type="SQL92", sub_version=version),
        SubscriptionData(topic=retry, sub_string="*", sub_version=version),
    ]
    data = consumer_data(group, subscription_data_set=subscriptions)
    body = HeartbeatData(client_id=client.client_id, consumer_data_set=[data]).encode()
    return await client.call(RequestCode.HEART_BEAT, body=body)


async def pulled(
    client: LiveClient, *, group: str = GROUP, topic: str = TOPIC, offset: int = 0
) -> tuple[int, list[bytes]]:
    """A pull by what the heartbeat said."""
    response = await client.pull(group, topic, 0, offset, sys_flag=0)
    return response.code, [message.body for message in decode_records(response.body)]


# -- tags --------------------------------------------------------------------------------------------------------


def test_tags_select_by_hash_and_collisions_are_left_to_the_client(run: Any, tmp_path: Path) -> None:
    """The tags "AaAa" and "BBBB" have one hash."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            for tag in ("A", "B", "C", "AaAa", "BBBB", None):
                text = props(TAGS=tag) if tag else ""
                fields_of(await client.send(TOPIC, 0, (tag or "-").encode(), properties=text))
            assert tags_code("AaAa") == tags_code("BBBB")
            for expression, bodies in {
                "A || B": ["A", "B"], "A||C": ["A", "C"], "AaAa": ["AaAa", "BBBB"], "*": 6, "": 6, "D": [],
            }.items():  # fmt: skip
                found = [m.body.decode() for m in await stored(client, TOPIC, subscription=expression)]
                assert found == bodies or len(found) == bodies, expression

    run(main())


# -- SQL92 -------------------------------------------------------------------------------------------------------


def test_expressions_select_what_they_say(run: Any, tmp_path: Path) -> None:
    """By the subscription of the request, and by that of the heartbeat."""

    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=True) as live:
            client = live.client()
            await send_rows(client)
            for version, (expression, numbers) in enumerate(SELECTIONS.items(), 1):
                assert await selected(client, expression) == numbers, expression
                assert (await subscribe(client, expression, version)).code == 0
                code, bodies = await pulled(client)
                assert [int(body) for body in bodies] == numbers, expression
                assert code == (0 if numbers else 20)

    run(main())


@pytest.mark.parametrize("expression", BAD_EXPRESSIONS)
def test_expression_that_does_not_compile_is_an_error_everywhere(
    run: Any, tmp_path: Path, expression: str
) -> None:
    """The original runs such a pull unfiltered."""

    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=True) as live:
            client = live.client()
            await send_rows(client)
            response = await client.pull(GROUP, TOPIC, subscription=expression, expression_type="SQL92")
            assert response.code == 23
            assert "does not compile" in (response.remark or "")
            for _ in range(2):  # the same heartbeat again gets the same answer
                beat = await subscribe(client, expression, 1)
                assert beat.code == 23
                assert "does not compile" in (beat.remark or "")
                assert (beat.remark or "").startswith(f"group {GROUP}, topic {TOPIC}: ")
            assert (await pulled(client))[0] == 27
            assert (await subscribe(client, "a > 3", 2)).code == 0
            assert (await pulled(client))[0] == 0

    run(main())


def test_bad_heartbeat_still_makes_its_client_known(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=True) as live:
            assert (await subscribe(live.client(), "a >", 1)).code == 23
            assert live.broker.consumers.member(GROUP, "c1") is not None

    run(main())


def test_unknown_type_and_switched_off_filters_are_errors(run: Any, tmp_path: Path) -> None:
    """With enablePropertyFilter off: code 1 and the original's text."""

    async def main() -> None:
        async with live_broker(tmp_path / "on", enable_property_filter=True) as live:
            client = live.client()
            await send_rows(client)
            response = await client.pull(GROUP, TOPIC, subscription="a", expression_type="XPATH")
            assert response.code == 23
        async with live_broker(tmp_path / "off") as live:
            client = live.client()
            await send_rows(client)
            response = await client.pull(GROUP, TOPIC, subscription="a > 3", expression_type="SQL92")
            assert (response.code, response.remark) == (
                1, "The broker does not support consumer to filter message by SQL92",
            )  # fmt: skip
            assert (await subscribe(client, "a > 3", 1)).code == 0
            assert (await pulled(client))[0] == 1

    run(main())


def test_version_of_the_subscription_counts(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=True) as live:
            client = live.client()
            await send_rows(client)
            await subscribe(client, "a > 3", 5)
            response = await client.pull(GROUP, TOPIC, sys_flag=0, sub_version=6)
            assert response.code == 25
            await subscribe(client, "color = 'red'", 4)  # an old heartbeat changes nothing
            assert (await pulled(client))[1] == [b"1", b"2", b"3"]
            await subscribe(client, "color = 'red'", 6)
            assert (await pulled(client))[1] == [b"0", b"1"]

    run(main())


def test_only_a_matching_message_wakes_a_held_pull(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, enable_property_filter=True) as live:
            client = live.client()
            await send_rows(client)
            await subscribe(client, "a > 100", 1)
            pull = asyncio.ensure_future(
                client.pull(GROUP, TOPIC, 0, len(ROWS), sys_flag=2, suspend_timeout_millis=5_000)
            )
            await eventually(lambda: live.broker.held_pulls.count == 1)
            await client.send(TOPIC, 0, b"no", properties=props(a=7))
            await client.send(TOPIC, 0, b"yes", properties=props(a=700))
            response = await pull
            assert [message.body for message in decode_records(response.body)] == [b"yes"]

    run(main())


def test_retried_messages_are_filtered_by_the_expression_of_their_first_topic(
    run: Any, tmp_path: Path
) -> None:
    """filterSupportRetry."""

    async def main() -> None:
        clock = StoppedClock()
        settings = {"enable_property_filter": True, "filter_support_retry": True}
        async with live_broker(tmp_path, clock=clock, **settings) as live:
            client = live.client()
            await send_rows(client)
            await subscribe(client, "a > 3", 1)
            for message in await stored(client, TOPIC):
                header = ConsumerSendMsgBackHeader(offset=message.physical_offset, group=GROUP, delay_level=1)
                assert (await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
            clock.ms += 1_000
            retry = f"%RETRY%{GROUP}"
            assert len(await arrived(client, retry, len(ROWS))) == len(ROWS)
            assert (await pulled(client, topic=retry))[1] == [b"1", b"2", b"3"]

    run(main())


# -- Bloom filter ------------------------------------------------------------------------------------------------

BLOOMED = {
    "enable_property_filter": True,
    "enable_calc_filter_bit_map": True,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 65_536,
}


async def forge(live: LiveBroker, queue_offset: int, old: bytes, new: bytes) -> None:
    """Change a property of a stored message, so that only its bits still tell what it was."""
    (entry,) = live.broker.store.queue_entries(TOPIC, 0, queue_offset, 1)
    record = live.broker.store.read_record(entry.physical_offset)
    assert record is not None
    at = bytes(record).index(old)
    record[at : at + len(old)] = new


def test_bits_of_the_queue_keep_records_from_being_read(run: Any, tmp_path: Path) -> None:
    """A message whose bits miss is passed over without a look at it; one without valid bits is looked at."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, **BLOOMED) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await client.send(TOPIC, 0, b"before", properties=props(a=1))
            await subscribe(client, "a > 5", 1)
            clock.ms += 10
            for number in (2, 7):
                await client.send(TOPIC, 0, b"%d" % number, properties=props(a=number))
            assert (await pulled(client))[1] == [b"7"]
            await forge(live, 0, b"a\x011", b"a\x018")
            await forge(live, 1, b"a\x012", b"a\x018")
            # The first was stored before the expression came, the second has bits that say no.
            assert (await pulled(client))[1] == [b"before", b"7"]
            other = live.client("c2")
            await subscribe(other, "a > 5", 1, group="CG_late")
            assert (await pulled(other, group="CG_late"))[1] == [b"before", b"2", b"7"]

    run(main())


def test_bits_and_expressions_agree_for_many_groups(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, **BLOOMED) as live:
            clients = [live.client(f"c{number}") for number in range(20)]
            await clients[0].create_topic(TOPIC, 1)
            for number, client in enumerate(clients):
                await subscribe(client, f"a BETWEEN {number} AND {number + 3}", 1, group=f"CG{number}")
            clock.ms += 10
            for value in range(25):
                await clients[0].send(TOPIC, 0, b"%d" % value, properties=props(a=value))
            for number, client in enumerate(clients):
                _, bodies = await pulled(client, group=f"CG{number}")
                assert [int(body) for body in bodies] == list(range(number, number + 4))

    run(main())


def test_bits_are_valid_after_restarts_and_changed_expressions(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, **BLOOMED) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            await subscribe(client, "a > 5", 1)
            clock.ms += 10
            for number in (2, 7):
                await client.send(TOPIC, 0, b"%d" % number, properties=props(a=number))
        clock.ms += 10
        async with live_broker(tmp_path, clock=clock, **BLOOMED) as live:
            client = live.client()
            for number in (3, 8):
                await client.send(TOPIC, 0, b"%d" % number, properties=props(a=number))
            clock.ms += 10
            await subscribe(client, "a > 5", 2)
            assert (await pulled(client))[1] == [b"7", b"8"]
            clock.ms += 10
            await subscribe(client, "a < 5", 3)
            assert (await pulled(client))[1] == [b"2", b"3"]
            clock.ms += 10
            await client.send(TOPIC, 0, b"4", properties=props(a=4))
            assert (await pulled(client))[1] == [b"2", b"3", b"4"]

    run(main())


def test_tags_are_found_behind_the_extension(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, **BLOOMED) as live:
            client = live.client()
            await send_rows(client)
            found = await stored(client, TOPIC, subscription="t1 || t3")
            assert [message.body for message in found] == [b"1", b"3"]

    run(main())


# -- speed -------------------------------------------------------------------------------------------------------


def test_an_expression_costs_about_as_much_as_the_condition_written_by_hand() -> None:
    """The expression of the issue. The rate itself, a million a second, depends on the machine: python -m bench.sql."""
    wanted = sql92.compile("a > 3 AND b = 'x' OR c BETWEEN 1 AND 5")
    rows = [
        {"a": "5", "b": "x", "c": "3"},
        {"a": "2", "b": "x", "c": "3"},
        {"a": "2", "b": "y", "c": "9"},
        {},
    ]
    assert [wanted(row) for row in rows] == [True, True, False, None]
    assert [_by_hand(row) for row in rows] == [True, True, False, None]
    costs = [(_evaluations_s(wanted, rows), _evaluations_s(_by_hand, rows)) for _ in range(8)]
    # 1.7 to 2.0 as it is; where the condition makes 3.5 million a second, the bound is the million.
    assert min(ours for ours, _ in costs) < 3.5 * min(plain for _, plain in costs)


def _by_hand(row: Mapping[str, str]) -> bool | None:
    a, b, c = row.get("a"), row.get("b"), row.get("c")
    if a is not None and float(a) > 3 and b == "x":
        return True
    return None if c is None else 1 <= float(c) <= 5


def _evaluations_s(wanted: Callable[[dict[str, str]], bool | None], rows: list[dict[str, str]]) -> float:
    """Processor time of 80,000 evaluations."""
    first, second, third, fourth = rows
    began = time.process_time()
    for _ in range(20_000):
        wanted(first)
        wanted(second)
        wanted(third)
        wanted(fourth)
    return time.process_time() - began
