"""Request and reply: the broker hands replies to the requester's connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_broker import CLUSTER, LiveBroker, LiveClient, live_broker
from message_kit import props, stored

from cometmq.broker.handlers import reply as reply_handler
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import ReplyMessageHeader, SendMessageHeader, SendMessageV2Header
from cometmq.protocol.properties import decode_properties

REPLY_TOPIC = f"{CLUSTER}_REPLY_TOPIC"


def requester(live: LiveBroker, code: int = 0) -> LiveClient:
    """A producer that takes replies."""
    return live.client("asker", lambda request: request.response(code))


async def send_reply(
    client: LiveClient, body: bytes = b"answer", *, to: str | None = "asker", code: int = 325, **changes: Any
) -> RemotingCommand:
    properties: dict[str, object] = {"CORRELATION_ID": "c-1", "MSG_TYPE": "reply", "TTL": 3000}
    if to is not None:
        properties["REPLY_TO_CLIENT"] = to
    values: dict[str, Any] = {
        "producer_group": "PG",
        "topic": REPLY_TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 3,
        "properties": props(**properties),
    }
    kind = SendMessageV2Header if code == RequestCode.SEND_REPLY_MESSAGE_V2 else SendMessageHeader
    return await client.call(code, kind(**{**values, **changes}), body)


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_reply_is_pushed_to_the_requester_and_stored(run: Any, tmp_path: Path, code: int) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            asker, responder = requester(live), live.client("responder")
            await asker.heartbeat(producer="PG_ask")
            response = await send_reply(responder, code=code)
            assert (response.code, response.remark) == (0, None)
            (pushed,) = asker.asked
            assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
            assert bytes(pushed.body) == b"answer"
            header = ReplyMessageHeader.decode(pushed.ext_fields)
            assert (header.topic, header.flag) == (REPLY_TOPIC, 3)
            assert header.born_host.startswith("127.0.0.1:")
            properties = decode_properties(header.properties or "")
            assert properties["CORRELATION_ID"] == "c-1"
            assert int(properties["PUSH_REPLY_TIME"]) == header.store_timestamp
            (message,) = await stored(responder, REPLY_TOPIC)
            fields = response.ext_fields or {}
            assert fields["msgId"] == message.offset_msg_id
            assert (fields["queueId"], fields["queueOffset"], fields["MSG_REGION"]) == (
                "0",
                "0",
                "DefaultRegion",
            )
            assert "PUSH_REPLY_TIME" not in message.properties

    run(main())


def test_requester_that_is_gone_is_an_error_and_the_reply_is_kept(run: Any, tmp_path: Path) -> None:
    """With the remark `channel of <id> not found`."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            asker, responder = requester(live), live.client("responder")
            await asker.heartbeat(producer="PG_ask")
            await asker.close()
            while live.broker.producers.find_client("asker") is not None:
                await asyncio.sleep(0.005)
            response = await send_reply(responder)
            assert response.code == 1
            assert response.remark == "push reply message fail, channel of <asker> not found."
            (message,) = await stored(responder, REPLY_TOPIC)
            assert (response.ext_fields or {})["msgId"] == message.offset_msg_id

    run(main())


def test_reply_without_an_address_is_an_error(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            response = await send_reply(live.client(), to=None)
            assert response.remark == "reply message properties[REPLY_TO_CLIENT] is null"

    run(main())


def test_requester_that_refuses_or_does_not_answer_is_an_error(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_handler, "PUSH_TIMEOUT_MS", 100)

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            responder = live.client("responder")
            await requester(live, code=1).heartbeat(producer="PG_ask")
            response = await send_reply(responder)
            assert (response.code, response.remark) == (1, "push reply message to askerfail.")
            silent = live.client("silent")
            await silent.heartbeat(producer="PG_ask")
            response = await send_reply(responder, to="silent")
            assert (response.code, response.remark) == (1, "push reply message to silentfail.")

    run(main())


def test_replies_need_not_be_stored(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, store_reply_message_enable=False) as live:
            await requester(live).heartbeat(producer="PG_ask")
            response = await send_reply(live.client("responder"))
            fields = response.ext_fields or {}
            assert (response.code, fields["msgId"], fields["queueOffset"]) == (0, "0", "0")
            assert live.broker.store.max_physical_offset == 0

    run(main())


def test_replies_pass_the_checks_of_sends(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, auto_create_topic_enable=False) as live:
            client = live.client()
            assert (await send_reply(client, topic="Nowhere")).code == 17
            assert (await send_reply(client, topic="SCHEDULE_TOPIC_XXXX")).code == 16
            assert (await send_reply(client, queue_id=5)).code == 1
            assert (await send_reply(client, topic="a.b")).code == 1

    run(main())


def test_stored_replies_are_counted(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            await requester(live).heartbeat(producer="PG_ask")
            client = live.client("responder")
            await send_reply(client)
            assert live.broker.counters.puts == 1
            fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": REPLY_TOPIC}
            assert (await client.call(RequestCode.VIEW_BROKER_STATS_DATA, fields=fields)).code == 0
            live.broker.store.retention.disk.full = True
            response = await send_reply(client)
            assert (response.code, (response.ext_fields or {})["msgId"]) == (0, "0")
            assert live.broker.counters.puts_failed == 1

    run(main())


def test_many_replies_at_a_time_reach_their_requesters(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            askers = [
                live.client(f"asker-{number}", lambda request: request.response()) for number in range(5)
            ]
            for asker in askers:
                await asker.heartbeat(producer="PG_ask")
            responder = live.client("responder")
            replies = [send_reply(responder, b"%d" % (n % 5), to=f"asker-{n % 5}") for n in range(100)]
            assert {response.code for response in await asyncio.gather(*replies)} == {0}
            for number, asker in enumerate(askers):
                assert [bytes(request.body) for request in asker.asked] == [b"%d" % number] * 20

    run(main())
