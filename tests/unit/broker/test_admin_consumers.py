"""Connected clients and requests that are passed on to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_broker import live_broker

from cometmq.broker.handlers import admin_consumers
from cometmq.protocol.bodies.connections import ConsumerConnection, ProducerConnection, ProducerTableInfo
from cometmq.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from cometmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    ConsumeMessageDirectlyHeader,
    ConsumerGroupHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ProducerGroupHeader,
    ResetOffsetHeader,
)
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.record_cy import decode_record

QUEUE = MessageQueue("TopicA", "broker-a", 0)
OFFLINE = "Consumer not online, so can not reset offset, Group: G Topic: TopicA Timestamp: 0"


def consumer_answers(request: RemotingCommand) -> RemotingCommand | None:
    """A consumer that answers what it is asked."""
    if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        return request.response(remark="as it is", body=b'{"properties":{}}')
    if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        return request.response(body=b'{"consumeResult":"CR_SUCCESS"}')
    if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        return request.response(body=GetConsumerStatusBody(message_queue_table={QUEUE: 7}).encode())
    return None


def test_connections_of_a_consumer_group(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1")
            await client.heartbeat("G", "TopicA")
            header = ConsumerGroupHeader(consumer_group="G")
            answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            body = ConsumerConnection.decode(answer.body)
            (connection,) = body.connection_set
            assert (connection.client_id, connection.language, connection.version) == ("c1", "JAVA", 407)
            assert connection.client_addr.startswith("127.0.0.1:")
            assert list(body.subscription_table) == ["TopicA"]
            assert (body.consume_type, body.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
            header = ConsumerGroupHeader(consumer_group="nobody")
            answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            assert (answer.code, answer.remark) == (206, "the consumer group[nobody] not online")

    run(main())


def test_connections_of_producers(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("p1")
            await client.heartbeat(producer="PG")
            answer = await client.call(
                RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader(producer_group="PG")
            )
            assert [c.client_id for c in ProducerConnection.decode(answer.body).connection_set] == ["p1"]
            answer = await client.call(RequestCode.GET_ALL_PRODUCER_INFO)
            (info,) = ProducerTableInfo.decode(answer.body).data["PG"]
            assert info.remote_ip.startswith("/127.0.0.1:")
            assert abs(info.last_update_timestamp - live.clock()) < 10_000
            header = ProducerGroupHeader(producer_group="nobody")
            answer = await client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            assert (answer.code, answer.remark) == (1, "the producer group[nobody] not exist")

    run(main())


def test_running_info_is_fetched_from_the_consumer(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            consumer, admin = live.client("c1", consumer_answers), live.client("admin")
            await consumer.heartbeat("G", "TopicA")
            header = ConsumerRunningInfoHeader(consumer_group="G", client_id="c1", jstack_enable=True)
            answer = await admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert (answer.code, answer.remark, bytes(answer.body)) == (0, "as it is", b'{"properties":{}}')
            assert consumer.asked[-1].ext_fields == header.encode()
            header = ConsumerRunningInfoHeader(consumer_group="G", client_id="c2")
            answer = await admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert (answer.code, answer.remark) == (1, "The Consumer <G> <c2> not online")

    run(main())


def test_old_consumer_is_not_asked(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1", consumer_answers)
            await client.heartbeat("G", "TopicA", version=37)
            header = ConsumerRunningInfoHeader(consumer_group="G", client_id="c1")
            answer = await client.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert (answer.code, answer.remark) == (
                1, "The Consumer <c1> Version <V3_0_11> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
            )  # fmt: skip

    run(main())


def test_consumer_that_does_not_answer_is_a_timeout(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_consumers, "RELAY_TIMEOUT_MS", 50)

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            consumer, admin = live.client("c1"), live.client("admin")
            await consumer.heartbeat("G", "TopicA")
            header = ConsumerRunningInfoHeader(consumer_group="G", client_id="c1")
            answer = await admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
            assert (answer.remark or "").startswith("consumer <G> <c1> Timeout: ")

    run(main())


def test_consumer_that_goes_away_meanwhile_is_an_error(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            consumer, admin = live.client("c1"), live.client("admin")

            def hang_up(request: RemotingCommand) -> None:
                if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                    consumer.remoting.close_connection(live.address)

            consumer._answer = hang_up
            await consumer.heartbeat("G", "TopicA")
            header = ConsumerRunningInfoHeader(consumer_group="G", client_id="c1")
            answer = await admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("invoke consumer <G> <c1> Exception: ")

    run(main())


def test_message_is_consumed_directly(run: Any, tmp_path: Path) -> None:
    """The broker sends the stored message and its name."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            consumer, admin = live.client("c1", consumer_answers), live.client("admin")
            await consumer.heartbeat("G", "TopicA")
            sent = await admin.send("TopicA", 0, b"consume me")
            header = ConsumeMessageDirectlyHeader(
                consumer_group="G", client_id="c1", msg_id=(sent.ext_fields or {})["msgId"]
            )
            answer = await admin.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
            assert bytes(answer.body) == b'{"consumeResult":"CR_SUCCESS"}'
            asked = consumer.asked[-1]
            assert (asked.ext_fields or {})["brokerName"] == "broker-a"
            assert decode_record(asked.body).body == b"consume me"
            for bad in ("", "xyz", "7F00000100002A9F00000000000F4240"):
                header = ConsumeMessageDirectlyHeader(consumer_group="G", client_id="c1", msg_id=bad)
                answer = await admin.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                assert answer.code == ResponseCode.SYSTEM_ERROR

    run(main())


async def prepare_reset(live: Any, client: Any) -> None:
    await client.create_topic("TopicA", 2)
    for _ in range(4):
        await client.send("TopicA", 0)
        live.clock.shift_ms += 1000
    for queue_id, offset in ((0, 3), (1, 0)):
        await client.commit("G", "TopicA", queue_id, offset)


@pytest.mark.parametrize(
    ("timestamp", "force", "expected"), [(-1, True, 4), (-1, False, 3), (0, False, 0), (0, True, 0)]
)
def test_reset_tells_the_consumers_and_leaves_the_table(
    run: Any, tmp_path: Path, timestamp: int, force: bool, expected: int
) -> None:
    """The clients are told; to skip is to reset to the end."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client, admin = live.client("c1"), live.client("admin")
            await prepare_reset(live, admin)
            await client.heartbeat("G", "TopicA")
            header = ResetOffsetHeader(topic="TopicA", group="G", timestamp=timestamp, is_force=force)
            answer = await admin.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            assert (answer.code, answer.remark) == (0, "not set any response code")
            table = ResetOffsetBody.decode(answer.body).offset_table
            assert table[QUEUE] == expected
            order = client.asked[-1]
            assert (order.code, order.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
            assert bytes(order.body) == bytes(answer.body)
            assert (order.ext_fields or {})["isForce"] == "false"
            assert live.broker.offsets.query("G", "TopicA", 0) == 3

    run(main())


def test_reset_by_time_goes_to_the_first_message_not_older(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1")
            began = live.clock()
            await prepare_reset(live, client)
            await client.heartbeat("G", "TopicA")
            header = ResetOffsetHeader(topic="TopicA", group="G", timestamp=began + 1900, is_force=True)
            answer = await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            assert ResetOffsetBody.decode(answer.body).offset_table[QUEUE] == 2

    run(main())


def test_reset_without_consumers_says_so(run: Any, tmp_path: Path) -> None:
    """Tools then commit the offsets themselves."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await prepare_reset(live, client)
            for topic, group, code, remark in (
                ("TopicA", "G", 206, OFFLINE),
                ("TopicA", "other", 1, "THe consumer group <other> not exist"),
                ("no", "G", 1, "[reset-offset] reset offset failed, no topic in this broker. topic=no"),
            ):  # fmt: skip
                header = ResetOffsetHeader(topic=topic, group=group, timestamp=0, is_force=True)
                answer = await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
                assert (answer.code, answer.remark) == (code, remark)

    run(main())


def test_reset_asked_by_cpp_has_the_list_form(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1")
            await prepare_reset(live, client)
            await client.heartbeat("G", "TopicA")
            header = ResetOffsetHeader(topic="TopicA", group="G", timestamp=0, is_force=True)
            await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, language=LanguageCode.CPP)
            assert bytes(client.asked[-1].body).startswith(
                b'{"offsetTable":[{"brokerName":"broker-a","offset":0,'
            )

    run(main())


def test_status_of_consumers_is_merged(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            clients = [live.client(f"c{number}", consumer_answers) for number in (1, 2)]
            for client in clients:
                await client.heartbeat("G", "TopicA")
            for wanted, expected in ((None, {"c1", "c2"}), ("", {"c1", "c2"}), ("c2", {"c2"})):
                header = ConsumerStatusHeader(topic="TopicA", group="G", client_addr=wanted)
                answer = await clients[0].call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
                table = GetConsumerStatusBody.decode(answer.body).consumer_table
                assert set(table) == expected
                assert table["c2"] == {QUEUE: 7}
            header = ConsumerStatusHeader(topic="TopicA", group="nobody")
            answer = await clients[0].call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
            assert answer.code == 1

    run(main())
