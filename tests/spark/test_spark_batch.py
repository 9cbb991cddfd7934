"""Batch reads of the source ``rocketmq`` against a running broker."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from spark_kit import BROKER, WAYS, RunningBroker

from cometmq.protocol.message import Message
from cometmq.protocol.record_cy import encode_batch

pytestmark = pytest.mark.spark
Read = Callable[..., Any]


@pytest.fixture(params=WAYS)
def read(request: pytest.FixtureRequest, spark: Any, broker: RunningBroker) -> Read:
    """Each test reads by the format and by ``load``."""
    way = WAYS[request.param]
    return lambda schema=None, **options: way(spark, broker, schema, **options)


def bodies(frame: Any) -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def test_all_messages_of_a_topic_in_order_per_queue(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 500)
    rows = read(subscribe=topic).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"body-%d" % n for n in range(500))
    for queue_id in range(4):
        offsets = [row.queueOffset for row in rows if row.queueId == queue_id]
        assert offsets == list(range(125))
    row = next(row for row in rows if bytes(row.body) == b"body-7")
    assert (row.topic, row.brokerName, row.queueId, row.tags, row.keys) == (topic, BROKER, 3, "t1", "k7")
    assert row.properties["KEYS"] == "k7"
    assert row.msgId is None
    assert int(row.bornTimestamp.timestamp()) == 1_700_000_000


def test_schema_selects_columns(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 10)
    frame = read("queueOffset long, body binary", subscribe=topic)
    assert frame.columns == ["queueOffset", "body"]
    assert len(bodies(frame)) == 10


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("bodie binary", "did you mean 'body'?"),
        ("body string", "The column body is of type binary, not string"),
    ],
)
def test_wrong_column_is_named(read: Read, topic: str, schema: str, text: str) -> None:
    with pytest.raises(Exception, match="column") as failure:
        read(schema, subscribe=topic).collect()
    assert text in str(failure.value)


def test_wrong_option_is_named_with_the_nearest(read: Read, topic: str) -> None:
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        read(subscribe=topic, startingOffset="earliest").collect()


def test_metadata_all_has_the_remaining_fields(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.send(topic, b"x")
    row = read(subscribe=topic, metadata="all").collect()[0]
    assert row.storeHost == broker.address
    assert row.bornHost.startswith("127.0.0.1:")
    assert len(row.offsetMsgId) == 32
    assert row.bodyCRC == zlib.crc32(b"x") & 0x7FFFFFFF


def test_unicode_compressed_and_batched_messages(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.send(topic, zlib.compress(b"z" * 5000), 0, {"TAGS": "标签", "имя": "значение"}, sys_flag=1)
    broker.send(topic, encode_batch([Message(topic, b"one"), Message(topic, b"two")]), 1, batch=True)
    rows = read(subscribe=topic).collect()
    assert sorted(bytes(row.body) for row in rows) == [b"one", b"two", b"z" * 5000]
    packed = next(row for row in rows if row.sysFlag & 1)
    assert packed.tags == "标签"
    assert packed.properties["имя"] == "значение"
    assert bodies(read(subscribe=topic, decompress="false"))[-1] == zlib.compress(b"z" * 5000)


def test_starting_and_ending_offsets(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 40)
    start = {topic: {BROKER: {"0": 8, "1": -1, "2": -2, "3": 10}}}
    end = {topic: {BROKER: {"0": 9, "2": 3}}}
    frame = read(subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    found = sorted((row.queueId, row.queueOffset) for row in frame.collect())
    assert found == [(0, 8), (2, 0), (2, 1), (2, 2)]


def test_time_range_is_exact(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 40)
    times = sorted(read(subscribe=topic).collect(), key=lambda row: row.storeTimestamp)
    chosen = times[20].storeTimestamp
    after = {(row.queueId, row.queueOffset) for row in times if row.storeTimestamp >= chosen}
    instant = int(chosen.timestamp() * 1000)
    options = {"subscribe": topic, "startingOffsetsByTimestampStrategy": "latest"}
    found = read(**options, startingTimestamp=instant).collect()
    assert {(row.queueId, row.queueOffset) for row in found} == after
    before = read(**options, endingTimestamp=instant).collect()
    assert len(before) == 40 - len(after)
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy=latest"):
        read(subscribe=topic, startingTimestamp=int(time.time() * 1000) + 60_000).collect()


def test_explicit_assignment(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 40)
    rows = read(assign=json.dumps({topic: {BROKER: [1, 3]}})).collect()
    assert {row.queueId for row in rows} == {1, 3}
    with pytest.raises(Exception, match="names queues that do not exist"):
        read(assign=json.dumps({topic: {BROKER: [9]}})).collect()


def test_pattern_finds_topics_but_none_of_the_system(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.create_topic(f"{topic}-b", 1)
    broker.send(topic, b"1")
    broker.send(f"{topic}-b", b"2")
    rows = read(subscribePattern=f"{topic}.*").collect()
    assert {row.topic for row in rows} == {topic, f"{topic}-b"}
    assert "TBW102" not in broker.cluster.topics_like(".*")
    assert BROKER not in broker.cluster.topics_like(".*")


def test_tags_and_sql_filter_on_the_broker(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 300)
    assert read(subscribe=topic, tags="t1 || t2").count() == 200
    assert read(subscribe=topic, sql92="TAGS = 't0'").count() == 100


def test_unknown_topic_and_unreachable_name_server_are_named(read: Read, spark: Any, topic: str) -> None:
    with pytest.raises(Exception, match="knows the topic no-such-topic"):
        read(subscribe="no-such-topic").collect()
    frame = spark.read.format("rocketmq").options(nameServer="127.0.0.1:1", subscribe=topic, retries="0")
    with pytest.raises(Exception, match=r"The connection to 127\.0\.0\.1:1 failed"):
        frame.load().collect()


def test_start_behind_the_end_is_data_loss(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 8)
    start = json.dumps({topic: {BROKER: {"0": 50, "1": 0, "2": 0, "3": 0}}})
    with pytest.raises(Exception, match=r"wanted are offsets \[50, 2\), available are \[0, 2\), 48 are lost"):
        read(subscribe=topic, startingOffsets=start).collect()
    assert read(subscribe=topic, startingOffsets=start, failOnDataLoss="false").count() == 6


def test_queues_beyond_a_shrink_are_still_read(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 40)
    broker.create_topic(topic, 4, write=2)
    assert read(subscribe=topic).count() == 40


def test_small_ranges_share_a_task_and_large_ones_are_split(
    broker: RunningBroker, topic: str, read: Read
) -> None:
    broker.fill(topic, 400)
    assert read(subscribe=topic).rdd.getNumPartitions() == 1
    assert read(subscribe=topic, minPartitions="8").rdd.getNumPartitions() == 8
    frame = read(subscribe=topic, maxRecordsPerPartition="30", minRecordsPerTask="0")
    assert frame.rdd.getNumPartitions() == 16
    assert frame.count() == 400


def test_pushed_filters_read_less_and_give_the_same_rows(
    broker: RunningBroker, topic: str, read: Read
) -> None:
    broker.fill(topic, 400)
    frame = read(subscribe=topic, pushdown="true")
    assert frame.where("queueId = 2 and queueOffset >= 90").count() == 10
    assert frame.where("queueId = 2 and queueOffset >= 90").rdd.getNumPartitions() == 1
    assert frame.where("queueId in (0, 1) and tags = 't0'").count() == 67
    assert frame.where("storeTimestamp > timestamp'2000-01-01'").count() == 400


def test_temporary_view_in_sql(broker: RunningBroker, topic: str, spark: Any) -> None:
    broker.fill(topic, 30)
    spark.sql(
        f"create or replace temporary view v using rocketmq options "
        f"(nameServer '{broker.name_server}', subscribe '{topic}')"
    )
    assert spark.sql("select count(*) as n from v where tags = 't0'").collect()[0].n == 10


def test_start_from_a_groups_offset(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.fill(topic, 40)
    queues = broker.cluster.bounds(topic, broker.cluster.route(topic))
    broker.cluster.report_progress("G1", [(queue, 7) for queue in queues])
    assert read(subscribe=topic, startingOffsets="group", group="G1").count() == 12
    assert read(subscribe=topic, startingOffsets="group", group="G2").count() == 40
