"""Looking messages up, moving offsets without consumers, and who gets what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from live_broker import LiveClient, live_broker
from message_kit import StoppedClock, fields_of, props, stored

from cometmq.protocol.bodies.heartbeat import BROADCASTING
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.headers import (
    QueryMessageHeader,
    QueueHeader,
    ResetOffsetHeader,
    SearchOffsetHeader,
    ViewMessageHeader,
)
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records

TOPIC = "TopicControl"


async def by_key(client: LiveClient, key: str, **changes: Any) -> list[MessageExt]:
    values: dict[str, Any] = {"max_num": 32, "begin_timestamp": 0, "end_timestamp": 2**62}
    response = await client.call(
        RequestCode.QUERY_MESSAGE, QueryMessageHeader(topic=TOPIC, key=key, **{**values, **changes})
    )
    return decode_records(response.body) if response.code == 0 else []


async def at_time(client: LiveClient, timestamp_ms: int) -> int:
    header = SearchOffsetHeader(topic=TOPIC, queue_id=0, timestamp=timestamp_ms)
    return int(fields_of(await client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))["offset"])


def test_messages_are_found_by_key_unique_key_id_offset_and_time(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            times, ids = [], []
            for number in range(5):
                clock.ms += 1_000
                times.append(clock.ms)
                text = props(KEYS=f"k{number} shared", UNIQ_KEY=f"{number:032X}")
                sent = fields_of(await client.send(TOPIC, 0, b"%d" % number, properties=text))
                ids.append(sent["msgId"])
            assert [message.body for message in await by_key(client, "k3")] == [b"3"]
            assert len(await by_key(client, "shared")) == 5
            assert [message.body for message in await by_key(client, f"{2:032X}")] == [b"2"]
            window = {"begin_timestamp": times[1], "end_timestamp": times[2]}
            assert sorted(m.body for m in await by_key(client, "shared", **window)) == [b"1", b"2"]
            assert await by_key(client, "nothing") == []
            view = ViewMessageHeader(offset=int(ids[4][16:], 16))
            response = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, view)
            assert decode_records(response.body)[0].body == b"4"
            assert [message.body for message in await stored(client, TOPIC, 0, 3)] == [b"3", b"4"]
            # Between two messages the nearer one counts.
            found = [
                await at_time(client, ms) for ms in (0, times[2], times[2] + 1, times[3] - 1, times[4] + 9)
            ]
            assert found == [0, 2, 2, 3, 4]
            queue = QueueHeader(topic=TOPIC, queue_id=0)
            assert fields_of(await client.call(RequestCode.GET_MAX_OFFSET, queue))["offset"] == "5"
            assert fields_of(await client.call(RequestCode.GET_MIN_OFFSET, queue))["offset"] == "0"

    run(main())


def test_offsets_of_an_offline_group_are_reset_by_committing_them(run: Any, tmp_path: Path) -> None:
    """Code 206, and what tools do then."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC, 1)
            middle_ms = 0
            for number in range(6):
                clock.ms += 1_000
                middle_ms = clock.ms if number == 3 else middle_ms
                await client.send(TOPIC, 0, b"%d" % number)
            await client.commit("CG", TOPIC, 0, 6)
            header = ResetOffsetHeader(topic=TOPIC, group="CG", timestamp=middle_ms, is_force=True)
            response = await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            assert response.code == 206
            offset = await at_time(client, middle_ms)
            await client.commit("CG", TOPIC, 0, offset)
            assert fields_of(await client.committed("CG", TOPIC))["offset"] == "3"
            assert [message.body for message in await stored(client, TOPIC, 0, offset)] == [b"3", b"4", b"5"]

    run(main())


def test_broadcast_consumers_all_read_everything_and_leave_no_offsets(run: Any, tmp_path: Path) -> None:
    """Members of a broadcasting group pull by the heartbeat's subscription, each on its own."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            clients = [live.client(f"c{number}") for number in range(2)]
            await clients[0].create_topic(TOPIC, 1)
            for client in clients:
                await client.heartbeat("CG_b", TOPIC, message_model=BROADCASTING)
            for number in range(3):
                await clients[0].send(TOPIC, 0, b"%d" % number)
            for client in clients:
                response = await client.pull("CG_b", TOPIC, sys_flag=0)
                assert [message.body for message in decode_records(response.body)] == [b"0", b"1", b"2"]
            assert live.broker.offsets.query("CG_b", TOPIC, 0) == -1
            ids = await clients[0].call(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields={"consumerGroup": "CG_b"}
            )
            assert bytes(ids.body) == b'{"consumerIdList":["c0","c1"]}'

    run(main())
