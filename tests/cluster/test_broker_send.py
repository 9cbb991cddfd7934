"""Sends to a running broker."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from wire_client import running_broker, until

from cometmq.broker.broker import Broker
from cometmq.clock import now_ms
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.message import Message
from cometmq.protocol.record_cy import encode_batch
from cometmq.store.model import PutResult, PutStatus, StoreMessage

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


def fields(response: RemotingCommand) -> dict[str, str]:
    assert response.ext_fields is not None
    return response.ext_fields


def test_send_and_pull_over_the_wire(run: Any, tmp_path: Path) -> None:
    """A message comes back with what the broker added."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            response = await client.send(
                "TopicA", b"hello", properties="KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01a\x02"
            )
            assert response.code == 0
            assert response.remark is None
            [message] = await client.messages("TopicA")
            assert bytes(message.body) == b"hello"
            assert message.properties == {"KEYS": "k1", "TAGS": "a", "CLUSTER": "C1"}
            assert message.queue_offset == 0
            assert str(message.store_host) == broker.address
            assert message.born_timestamp_ms == 1_700_000_000_000
            assert fields(response)["msgId"] == message.offset_msg_id

    run(main())


def test_both_header_spellings_and_growing_queue_offsets(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            offsets = [fields(await client.send("TopicA"))["queueOffset"] for _ in range(3)]
            long_names = {
                "producerGroup": "PG", "topic": "TopicA", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
                "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "7", "properties": "",
            }  # fmt: skip
            response = await client.call(RequestCode.SEND_MESSAGE, long_names, b"v1")
            offsets.append(fields(response)["queueOffset"])
            assert offsets == ["0", "1", "2", "3"]
            messages = await client.messages("TopicA")
            assert messages[3].flag == 7

    run(main())


def test_one_way_send_is_stored_and_not_answered(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await client.send("TopicA", b"quiet", oneway=True)
            await until(lambda: broker.store.max_offset("TopicA", 0) == 1)
            [message] = await client.messages("TopicA")
            assert bytes(message.body) == b"quiet"
            assert client.client.metrics.responses_unmatched == 0

    run(main())


@pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (100, 8)])
def test_topic_is_created_by_the_first_send(run: Any, tmp_path: Path, wanted: int, queues: int) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            assert (await client.send("New", default_topic_queue_nums=wanted)).code == 0
            topic = broker.topics.find("New")
            assert topic is not None
            assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (queues, queues, 6)
            file = tmp_path / "config" / "topics.json"
            await until(lambda: file.exists() and '"New"' in file.read_text())

    run(main())


def test_unknown_topic_is_refused_without_automatic_creation(run: Any, tmp_path: Path) -> None:
    """A retry topic is created all the same."""

    async def main() -> None:
        async with running_broker(tmp_path, auto_create_topic_enable=False) as (broker, client):
            response = await client.send("New")
            assert (response.code, response.remark) == (17, f"topic[New] not exist, apply first please!{FAQ}")
            assert (await client.send("%RETRY%G")).code == 0
            assert broker.topics.table["%RETRY%G"].read_queue_nums == 1

    run(main())


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("a.b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, "The specified topic is longer than topic max length."),
        (" ", "The specified topic is blank."),
    ],
)
def test_bad_topic_names_are_refused(run: Any, tmp_path: Path, topic: str, remark: str) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            response = await client.send(topic)
            assert (response.code, response.remark) == (1, remark)
            assert (await client.send("x" * 127)).code == 0

    run(main())


def test_missing_topic_is_a_blank_one(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            response = await client.call(RequestCode.SEND_MESSAGE_V2, {"a": "PG", "e": "0"})
            assert (response.code, response.remark) == (1, "The specified topic is blank.")
            response = await client.call(RequestCode.SEND_MESSAGE_V2, {"a": "PG", "b": "T", "e": "zero"})
            assert response.code == 1

    run(main())


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT"])
def test_system_topics_take_no_sends(run: Any, tmp_path: Path, topic: str) -> None:
    """TBW102, the broker's and the cluster's name do take them."""

    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            response = await client.send(topic)
            assert (response.code, response.remark) == (
                16,
                f"Sending message to topic[{topic}] is forbidden.",
            )
            assert [(await client.send(t)).code for t in ("TBW102", "broker-a", "C1", "BenchmarkTest")] == [
                0
            ] * 4

    run(main())


def test_queue_id_must_exist_and_a_negative_one_is_chosen(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await client.send("TopicA")
            response = await client.send("TopicA", queue_id=4)
            assert response.code == 1
            assert re.fullmatch(
                r"request queueId\[4\] is illegal, TopicConfig \[topicName=TopicA, readQueueNums=4, "
                r"writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false\] "
                r"Producer: 127\.0\.0\.1:\d+",
                response.remark or "",
            )
            chosen = {fields(await client.send("TopicA", queue_id=-1))["queueId"] for _ in range(40)}
            assert chosen <= {"0", "1", "2", "3"}
            assert len(chosen) > 1
            broker.topics.table["TopicA"].read_queue_nums = 8
            assert (await client.send("TopicA", queue_id=7)).code == 0  # the larger of both counts

    run(main())


def test_batch_is_stored_in_a_row(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            body = encode_batch([Message("TopicA", b"one", tag="x"), Message("TopicA", b"two", keys="k")])
            response = await client.send(
                "TopicA", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties="WAIT\x01true"
            )
            assert response.code == 0
            first, second = await client.messages("TopicA")
            assert fields(response)["msgId"] == f"{first.offset_msg_id},{second.offset_msg_id}"
            assert fields(response)["queueOffset"] == "0"
            assert [m.queue_offset for m in (first, second)] == [0, 1]
            assert [bytes(m.body) for m in (first, second)] == [b"one", b"two"]
            assert first.properties["TAGS"] == "x"
            assert first.properties["CLUSTER"] == "C1"
            assert first.properties["WAIT"] == "true"  # kept in batches

    run(main())


def test_the_batch_flag_decides_not_the_code(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            body = encode_batch([Message("TopicA", b"one"), Message("TopicA", b"two")])
            assert (await client.send("TopicA", body, batch=True)).code == 0
            await client.send("TopicA", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=False)
            assert [bytes(m.body) for m in await client.messages("TopicA")] == [b"one", b"two", body]

    run(main())


def test_illegal_batches_are_refused_whole(run: Any, tmp_path: Path) -> None:
    """A DELAY property, transaction bits, damage, no message at all."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            body = encode_batch([Message("TopicA", b"one")])
            attempts = [
                await client.send("TopicA", body, batch=True, properties="DELAY\x013"),
                await client.send("TopicA", body, batch=True, sys_flag=4),
                await client.send("TopicA", body[:-1], batch=True),
                await client.send("TopicA", b"", batch=True),
            ]
            assert [response.code for response in attempts] == [13] * 4
            assert broker.store.max_offset("TopicA", 0) == 0

    run(main())


def test_batch_to_a_retry_topic_is_simply_stored(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            body = encode_batch([Message("%RETRY%G", b"one")])
            response = await client.send("%RETRY%G", body, batch=True, reconsume_times=99)
            assert response.code == 0
            assert broker.store.max_offset("%RETRY%G", 0) == 1

    run(main())


def test_size_limits(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (_, client):
            limit = 4 * 1024 * 1024
            assert (await client.send("TopicA", b"x" * limit)).code == 0
            response = await client.send("TopicA", b"x" * (limit + 1))
            assert response.code == 13
            assert response.remark == (
                "the message is illegal, maybe msg body or properties length not matched. "
                "msg body length limit 4194304B, msg properties length limit 32KB."
            )
            assert fields(response) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
            room = 32767 - len("k\x01\x02CLUSTER\x01C1")
            assert (await client.send("TopicA", properties="k\x01" + "v" * room)).code == 0
            assert (await client.send("TopicA", properties="k\x01" + "v" * (room + 1))).code == 13
            assert (await client.send("TopicA", b"")).code == 0  # an empty body is legal here

    run(main())


def test_answers_carry_region_and_trace_switch(run: Any, tmp_path: Path) -> None:
    """Row 17, errors too."""

    async def main() -> None:
        async with running_broker(tmp_path, region_id="R7", trace_on=False) as (_, client):
            for response in (await client.send("TopicA"), await client.send("a.b")):
                assert fields(response)["MSG_REGION"] == "R7"
                assert fields(response)["TRACE_ON"] == "false"

    run(main())


def test_send_behind_a_stalled_append_is_told_to_slow_down(run: Any, tmp_path: Path) -> None:
    """Sends become readable together, and the store stalls with each."""

    async def main() -> None:
        async with running_broker(tmp_path, wait_time_mills_in_send_queue=50) as (broker, client):
            await client.send("%RETRY%G")  # a topic that the compiled path leaves to the handlers
            put = broker.store.put

            def slow_put(message: StoreMessage) -> PutResult:
                time.sleep(0.06)
                return put(message)

            broker.store.put = slow_put  # type: ignore[method-assign]
            answers: list[RemotingCommand] = []
            # one slow turn of the loop is forgiven; a machine that stalls by itself makes more of them
            while [answer.code for answer in answers] != [0, 2]:
                answers = await asyncio.gather(*(client.send("%RETRY%G") for _ in range(2)))
            assert re.fullmatch(
                r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, "
                r"period in queue: \d+ms, size of queue: 0",
                answers[1].remark or "",
            )

    run(main())


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        (PutStatus.CREATE_MAPPED_FILE_FAILED, 1, "create mapped file failed, server is busy or broken."),
        (PutStatus.OS_PAGECACHE_BUSY, 1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
        (PutStatus.UNKNOWN_ERROR, 1, "UNKNOWN_ERROR"),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14, None),
    ],
)
def test_store_failures_have_the_words_clients_know(
    run: Any, tmp_path: Path, status: PutStatus, code: int, remark: str | None
) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            broker.store.put = lambda message: PutResult(status)  # type: ignore[method-assign]
            response = await client.send("TopicA")
            assert response.code == code
            if remark is not None:
                assert response.remark == remark
            else:
                assert re.fullmatch(
                    r"service not available now\. It may be caused by one of the following reasons: the broker's "
                    r"disk is full \[CL: +\d\.\d\d CQ: +\d\.\d\d INDEX: +\d\.\d\d\], messages are put to the slave, "
                    r"message store has been shut down, etc\.",
                    response.remark or "",
                )

    run(main())


def test_full_disk_refuses_sends_until_there_is_room(run: Any, tmp_path: Path) -> None:
    """The levels are lowered below what the disk has in use, and raised again."""

    async def main() -> None:
        warning = "rocketmq.broker.diskSpaceWarningLevelRatio"
        forcibly = "rocketmq.broker.diskSpaceCleanForciblyRatio"
        jump = [0]
        async with running_broker(tmp_path, now_ms=lambda: now_ms() + jump[0]) as (broker, client):
            assert (await client.send("TopicA")).code == 0
            for full, code in ((True, 14), (False, 0)):
                levels = {warning: "0.001", forcibly: "0.0005"} if full else {warning: "1", forcibly: "1"}
                broker.config.system_properties.update(levels)
                broker.store.reconfigure(broker.config.store_config())
                jump[0] += 60_000  # the disk is looked at now and then
                broker.store.tick()
                assert (await client.send("TopicA")).code == code

    run(main())


def test_start_time_of_accepting_sends(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        later = 4_102_444_800_123
        async with running_broker(tmp_path, start_accept_send_request_time_stamp=later) as (_, client):
            response = await client.send("TopicA")
            assert response.code == 1
            assert re.fullmatch(
                r"broker unable to service, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,123", response.remark or ""
            )

    run(main())


def test_permission_of_the_broker_counts_for_order_topics_only(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await client.send("Plain")
            await client.send("Ordered")
            broker.topics.apply_order_table({"Ordered": "broker-a:4"})
            broker.config.broker_permission = 4
            assert (await client.send("Plain")).code == 0
            response = await client.send("Ordered")
            assert (response.code, response.remark) == (
                16,
                "the broker[127.0.0.1] sending message is forbidden",
            )

    run(main())


def test_read_only_topic_still_takes_sends(run: Any, tmp_path: Path) -> None:
    """Only clients look at the write permission of a topic."""

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await client.send("TopicA")
            broker.topics.table["TopicA"].perm = 4
            assert (await client.send("TopicA")).code == 0

    run(main())


def test_used_up_retries_go_to_the_dead_letter_topic(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            retry = {"properties": "DELAY\x013\x02RETRY_TOPIC\x01TopicA", "reconsume_times": 3}
            response = await client.send("%RETRY%G", max_reconsume_times=3, **retry)
            assert response.code == 0
            [dead] = await client.messages("%DLQ%G")
            assert dead.reconsume_times == 3
            assert "DELAY" not in dead.properties
            assert broker.store.max_offset("%RETRY%G", 0) == 0
            # An old client's limit does not count, the group's does (16).
            await client.send("%RETRY%G", max_reconsume_times=3, version=100, reconsume_times=15)
            assert broker.store.max_offset("%RETRY%G", 0) == 1
            await client.send("%RETRY%G", reconsume_times=16)
            assert broker.store.max_offset("%DLQ%G", 0) == 2

    run(main())


def test_retry_to_an_unknown_group_is_refused(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, auto_create_subscription_group=False) as (_, client):
            response = await client.send("%RETRY%G")
            assert (response.code, response.remark) == (26, f"subscription group not exist, G {FAQ}")

    run(main())


def test_sync_flush_answers_after_the_disk(run: Any, tmp_path: Path) -> None:
    """R0 when flushed; WAIT=false does not wait."""

    async def main() -> None:
        async with running_broker(tmp_path, flush_disk_type="SYNC_FLUSH") as (broker, client):
            answers = await asyncio.gather(*(client.send("TopicA") for _ in range(20)))
            assert {answer.code for answer in answers} == {0}
            assert broker.store.flushed_offset == broker.store.max_physical_offset
            assert broker.flow_control.waiting == 0
            assert (await client.send("TopicA", properties="WAIT\x01false")).code == 0

    run(main())


def test_sync_flush_that_does_not_finish_answers_stored_but_not_flushed(run: Any, tmp_path: Path) -> None:
    """R10 with the ids of the stored message."""

    async def main() -> None:
        async with running_broker(tmp_path, flush_disk_type="SYNC_FLUSH") as (broker, client):
            await client.send("%RETRY%G")
            _never_flush(broker)
            response = await client.send("%RETRY%G")
            assert response.code == 10
            assert fields(response)["queueOffset"] == "1"
            assert len(await client.messages("%RETRY%G")) == 2

    run(main())


def _never_flush(broker: Broker) -> None:
    """The flush thread reports that it could not make it in time."""
    broker.store.flush_waiter = lambda end_offset, callback: callback(False)  # type: ignore[method-assign]
    broker.durability.must_wait = lambda result, wait: wait  # type: ignore[method-assign]
