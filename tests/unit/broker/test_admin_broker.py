"""Settings, figures, clean-up and the odd request, over the wire."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from live_broker import eventually, live_broker

from cometmq import properties_file
from cometmq.broker.config import BrokerConfig
from cometmq.broker.housekeeping import sample_rates
from cometmq.broker.runtime_info import byte_count_text
from cometmq.broker.slow_consumers import bytes_behind, stop_slow_consumers
from cometmq.protocol.bodies.stats import BrokerStatsData, KVTable, QueryConsumeQueueResponseBody
from cometmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.hashing import tag_hash
from cometmq.protocol.headers import (
    QueryConsumeQueueHeader,
    QueueHeader,
    TopicHeader,
    ViewBrokerStatsHeader,
)

# As the Java broker gives them without delayed messages and with one log path
RUNTIME_KEYS = """
    EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity bootTimestamp brokerVersion brokerVersionDesc
    commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset consumeQueueDiskRatio
    dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps getMessageEntireTimeMax getMissTps
    getTotalTps getTransferedTps msgGetTotalTodayMorning msgGetTotalTodayNow msgGetTotalYesterdayMorning
    msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning pageCacheLockTimeMills
    pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99
    putLatency999 putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
    putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
    queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
    remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
    sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
"""  # fmt: skip


async def settings_of(client: Any) -> tuple[dict[str, str], dict[str, int]]:
    answer = await client.call(RequestCode.GET_BROKER_CONFIG)
    lines = bytes(answer.body).decode().splitlines()
    version = json.loads((answer.ext_fields or {})["version"])
    return dict(line.split("=", 1) for line in lines), version


@pytest.mark.parametrize(("groups", "bits"), [(32, "112"), (100, "336")])
def test_length_of_bit_maps_is_what_the_filter_calculates(
    run: Any, tmp_path: Path, groups: int, bits: str
) -> None:
    """As the Java broker: bitMapLengthConsumeQueueExt of the file counts for nothing."""

    async def main() -> None:
        wanted = {"expect_consumer_num_use_filter": groups, "bit_map_length_consume_queue_ext": 64}
        async with live_broker(tmp_path, **wanted) as live:
            settings, _ = await settings_of(live.client())
            assert settings["bitMapLengthConsumeQueueExt"] == bits

    run(main())


def test_settings_change_while_running_and_the_file_is_written_anew(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("fileReservedTime=72\n")

    async def main() -> None:
        async with live_broker(tmp_path, config_file=str(file)) as live:
            client = live.client()
            before, version = await settings_of(client)
            assert before["fileReservedTime"] == "72"
            assert version["counter"] == 0
            body = b"fileReservedTime=48\nnoSuchKey=1\nmaxMessageSize=abc\n"
            answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert (answer.code, answer.remark) == (0, None)
            after, version = await settings_of(client)
            assert {key for key in after if after[key] != before[key]} == {"fileReservedTime"}
            assert version["counter"] == 1
            assert live.broker.store.config.file_reserved_time == 48
            assert properties_file.parse(file.read_text())["fileReservedTime"] == "48"
            assert (
                BrokerConfig.from_properties(properties_file.parse(file.read_text())).file_reserved_time == 48
            )

    run(main())


def test_settings_that_make_no_sense_change_nothing(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            before = await settings_of(client)
            body = b"fileReservedTime=1\nflushDiskType=NONSENSE\n"
            answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "flushDiskType" in (answer.remark or "")
            assert await settings_of(client) == before

    run(main())


def test_address_and_identity_change_at_the_next_start_only(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("tls.server.mode=permissive\n")

    async def main() -> None:
        config = {"config_file": str(file), "system_properties": {"tls.server.mode": "permissive"}}
        async with live_broker(tmp_path, **config) as live:
            client = live.client()
            port = live.broker.config.listen_port
            body = b"listenPort=1\nbrokerName=other\n"
            assert (await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
            assert (live.broker.config.listen_port, live.broker.config.broker_name) == (port, "broker-a")
            written = properties_file.parse(file.read_text())
            assert (written["listenPort"], written["brokerName"]) == ("1", "other")
            assert written["tls.server.mode"] == "permissive"
        async with live_broker(tmp_path) as live:
            answer = await live.client().call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "listenPort" in (answer.remark or "")

    run(main())


def test_broker_permission_takes_effect_at_once(run: Any, tmp_path: Path) -> None:
    """The setting brokerPermission=4 changes the registered topics (version) and order topics refuse sends."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic("TopicA", 1)
            version = live.broker.topics.data_version
            await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2\n")
            assert live.broker.topics.data_version.counter == version.counter + 1
            assert (await client.pull("G", "TopicA")).code == ResponseCode.NO_PERMISSION

    run(main())


def test_unreadable_settings_are_refused(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            answer = await live.client().call(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=\\uZZZZ\n")
            assert (answer.code, answer.remark) == (1, "string2Properties error")

    run(main())


def test_runtime_info_has_the_keys_of_the_original(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for _ in range(3):
                await client.send("TopicA", 0)
            await client.pull("G", "TopicA")
            await client.pull("G", "TopicA", offset=3)
            live.broker.collect()
            for _ in range(11):
                live.clock.shift_ms += 1000
                sample_rates(live.broker)
            table = KVTable.decode((await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
            path = live.broker.config.store_path_commit_log
            schedule = {key for key in table if key.startswith("scheduleMessageOffset_")}
            assert set(table) - schedule == {*RUNTIME_KEYS.split(), f"commitLogDiskRatio_{path}"}
            assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "3"
            assert table["msgGetTotalTodayNow"] == "3"
            assert table["brokerVersionDesc"] == "V4_9_7"
            assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, 1")
            assert [len(table[key].split(" ")) for key in ("putTps", "getFoundTps", "getMissTps", "getTotalTps")] == [
                3, 3, 3, 3,
            ]  # fmt: skip
            assert table["commitLogDirCapacity"].startswith("Total : ")
            assert float(table["putMessageAverageSize"]) * 3 == pytest.approx(
                int(table["putMessageSizeTotal"])
            )
            assert int(table["commitLogMaxOffset"]) == int(table["putMessageSizeTotal"])

    run(main())


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (270582939648, "252.0 GiB"), (1 << 60, "1.0 EiB")],
)
def test_byte_counts_are_shown_as_the_original_does(count: int, text: str) -> None:
    assert byte_count_text(count) == text


def test_statistics_by_name_and_key(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for _ in range(4):
                await client.send("TopicA", 0)
            live.broker.collect()
            live.broker.stats.sample()
            header = ViewBrokerStatsHeader(stats_name="TOPIC_PUT_NUMS", stats_key="TopicA")
            data = BrokerStatsData.decode(
                (await client.call(RequestCode.VIEW_BROKER_STATS_DATA, header)).body
            )
            assert (data.stats_minute.sum, data.stats_minute.tps, data.stats_minute.avgpt) == (4, 0.4, 1.0)
            assert data.stats_day.sum == 4
            header = ViewBrokerStatsHeader(stats_name="TOPIC_PUT_NUMS", stats_key="no")
            answer = await client.call(RequestCode.VIEW_BROKER_STATS_DATA, header)
            assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <no> not exist")

    run(main())


def test_clean_up_requests_are_answered_at_once(run: Any, tmp_path: Path) -> None:
    """The commands cleanExpiredCQ and deleteExpiredCommitLog."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.send("TopicA", 0)
            for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
                answer = await client.call(code)
                assert (answer.code, answer.remark, answer.ext_fields) == (0, None, None)
            assert (await client.pull("G", "TopicA")).code == 0

    run(main())


async def queue_entries(
    client: Any, **header: Any
) -> tuple[RemotingCommand, QueryConsumeQueueResponseBody | None]:
    answer = await client.call(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueHeader(**header))
    return answer, QueryConsumeQueueResponseBody.decode(answer.body) if answer.body else None


def test_entries_of_a_queue_are_shown(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for _ in range(3):
                await client.send("TopicA", 0, properties="TAGS\x01TagA")
            await client.heartbeat("G", "TopicA")
            answer, body = await queue_entries(client, topic="TopicA", queue_id=0, index=1, count=5)
            assert answer.remark == "not set any response code"
            assert body is not None
            assert (body.min_queue_index, body.max_queue_index, len(body.queue_data)) == (0, 3, 2)
            first, second = body.queue_data
            assert second.physic_offset == first.physic_offset + first.physic_size
            assert first.tags_code == tag_hash("TagA")
            _, body = await queue_entries(
                client, topic="TopicA", queue_id=0, index=0, count=1, consumer_group="G"
            )
            assert body is not None
            assert body.subscription_data is not None
            assert body.queue_data[0].eval
            _, body = await queue_entries(
                client, topic="TopicA", queue_id=0, index=0, count=1, consumer_group="no"
            )
            assert body is not None
            assert body.filter_data == "no@TopicA is not online!"

    run(main())


def test_missing_queues_and_entries_are_told(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.send("TopicA", 0)
            answer, _ = await queue_entries(client, topic="TopicA", queue_id=77, index=0, count=1)
            assert (answer.code, answer.remark) == (1, "77@TopicA is not exist!")
            answer, _ = await queue_entries(client, topic="TopicA", queue_id=0, index=9, count=1)
            assert (answer.code, answer.remark) == (0, "Index 9 of 0@TopicA is not exist!")
            answer, _ = await queue_entries(client, topic="TopicA", queue_id=0, index=-1, count=2**31 - 1)
            assert answer.code == 0

    run(main())


def test_unknown_code_is_answered_and_oneway_is_not(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            for code in (9999, 13, 22, 27, 209, 301):
                answer = await client.call(code)
                assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
            await client.remoting.invoke_oneway(client.address, RemotingCommand.request(9999, oneway=True))
            assert (await client.heartbeat(producer="PG")).code == 0

    run(main())


def test_fast_port_serves_everything_but_pulls(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client("c1", fast_port=True)
            assert (await client.heartbeat("G", "TopicA", producer="PG")).code == 0
            assert (await client.send("TopicA", 0)).code == 0
            answer = await client.pull("G", "TopicA")
            assert (answer.code, answer.remark) == (3, " request type 11 not supported")
            assert (await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0

    run(main())


@pytest.mark.parametrize("kind", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_answers_have_the_header_form_of_the_request(run: Any, tmp_path: Path, kind: SerializeType) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            reader, writer = await asyncio.open_connection("127.0.0.1", live.broker.config.listen_port)
            for code, header in (
                (RequestCode.GET_MAX_OFFSET, QueueHeader(topic="TopicA", queue_id=0)),
                (RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic="no such topic")),
                (RequestCode.HEART_BEAT, None),
                (9999, None),
            ):
                request = RemotingCommand.request(code, header)
                request.serialize_type = kind
                writer.write(request.encode())
                size, word = struct.unpack(">iI", await reader.readexactly(8))
                assert word >> 24 == kind
                await reader.readexactly(size - 4)
            writer.close()

    run(main())


def test_slow_group_is_stopped_when_the_broker_is_told_to(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, consumer_fallbehind_threshold=1000) as live:
            client = live.client("c1")
            for _ in range(20):
                await client.send("TopicA", 0, b"x" * 100)
            await client.commit("G", "TopicA", 0, 1)
            await client.heartbeat("G", "TopicA")
            assert bytes_behind(live.broker, "G") > 3000
            assert stop_slow_consumers(live.broker) == []
            live.broker.config.disable_consume_if_consumer_read_slowly = True
            assert stop_slow_consumers(live.broker) == ["G"]
            assert (await client.pull("G", "TopicA")).code == ResponseCode.NO_PERMISSION

    run(main())


def test_expired_log_files_go_and_a_new_group_then_gets_no_offset(run: Any, tmp_path: Path) -> None:
    """An offset of a truncated queue is answered with code 22; fileReservedTime and deleteExpiredCommitLog do it."""

    async def main() -> None:
        async with live_broker(tmp_path, mapped_file_size_commit_log=64 << 10) as live:
            client = live.client()
            for _ in range(150):
                await client.send("TopicA", 0, b"x" * 1000)
            files = tmp_path / "store" / "commitlog"
            before = len(list(files.iterdir()))
            assert before >= 3
            await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=1\n")
            live.clock.shift_ms += 2 * 3_600_000
            for _ in range(before):  # one round may delete only some
                assert (await client.call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
            await eventually(lambda: live.broker.store.min_offset("TopicA", 0) > 0)
            answer = await client.committed("new group", "TopicA")
            assert (answer.code, answer.remark) == (
                22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )  # fmt: skip
            assert (await client.pull("G", "TopicA")).code == ResponseCode.PULL_OFFSET_MOVED

    run(main())
