"""The connector against the real Java broker 4.9.7: everything that goes over the wire."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.rig.build import Unavailable, build_java
from interop.rig.servers import Foundry
from spark_kit import WAYS, RunningBroker, wait

from cometmq.errors import CometMQError
from cometmq.protocol.message import Message
from cometmq.protocol.record_cy import encode_batch

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow]

Read = Callable[..., Any]
STREAM_S = 120
_numbers = itertools.count()


@pytest.fixture(scope="module")
def java_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    try:
        kit = build_java()
    except Unavailable as reason:
        pytest.skip(f"needs Java 11+ and Maven: {reason}")
    foundry = Foundry(kit, tmp_path_factory.mktemp("java"))
    try:
        cluster = foundry.cluster("java").start()
        ready = {"nameserver": cluster.namesrv, "broker": cluster.broker.address}
        running = RunningBroker(cluster.broker.directory / "store", cluster.broker.process, ready)
        yield running
        running.close()
    finally:
        foundry.close()


@pytest.fixture
def java_topic(java_broker: RunningBroker) -> str:
    return create(java_broker, f"java-{next(_numbers)}")


def create(broker: RunningBroker, topic: str) -> str:
    broker.create_topic(topic, 4)
    wait(lambda: has_route(broker, topic))
    return topic


def has_route(broker: RunningBroker, topic: str) -> bool:
    try:
        return bool(broker.cluster.route(topic).read_queues)
    except CometMQError:
        return False


@pytest.fixture(params=WAYS)
def java_read(request: pytest.FixtureRequest, spark: Any, java_broker: RunningBroker) -> Read:
    way = WAYS[request.param]
    return lambda schema=None, **options: way(spark, java_broker, schema, **options)


def bodies(frame: Any) -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def test_batch_read_has_all_messages_in_order(
    java_broker: RunningBroker, java_topic: str, java_read: Read
) -> None:
    java_broker.fill(java_topic, 1000)
    rows = java_read(subscribe=java_topic, metadata="all").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"body-%d" % n for n in range(1000))
    for queue_id in range(4):
        assert [row.queueOffset for row in rows if row.queueId == queue_id] == list(range(250))
    row = next(row for row in rows if row.keys == "k7")
    assert (row.topic, row.tags, row.storeHost) == (java_topic, "t1", java_broker.address)
    assert row.bodyCRC == zlib.crc32(b"body-7") & 0x7FFFFFFF


def test_compressed_batched_and_unicode_messages(
    java_broker: RunningBroker, java_topic: str, java_read: Read
) -> None:
    large = "größer ".encode() * 2000
    properties = {"TAGS": "标签", "KEYS": "ключ", "имя": "значение"}
    java_broker.send(java_topic, zlib.compress(large), 0, properties, sys_flag=1)
    items = [Message(java_topic, b"one", tag="a"), Message(java_topic, "zwölf".encode(), tag="b")]
    java_broker.send(java_topic, encode_batch(items), 1, batch=True)
    rows = java_read(subscribe=java_topic).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted([large, b"one", "zwölf".encode()])
    packed = next(row for row in rows if row.sysFlag & 1)
    assert (packed.tags, packed.keys, packed.properties["имя"]) == ("标签", "ключ", "значение")
    assert bodies(java_read(subscribe=java_topic, tags="标签")) == [large]


def test_tags_and_sql_filter_on_the_broker(
    java_broker: RunningBroker, java_topic: str, java_read: Read
) -> None:
    for number in range(300):
        properties = {"TAGS": f"t{number % 3}", "size": str(number)}
        java_broker.send(java_topic, b"body-%d" % number, number % 4, properties)
    assert java_read(subscribe=java_topic, tags="t1 || t2").count() == 200
    assert java_read(subscribe=java_topic, sql92="size >= 100 AND size < 110").count() == 10
    assert java_read(subscribe=java_topic, sql92="TAGS = 't0'", minPartitions="4").count() == 100


def test_time_range_and_group_offsets(java_broker: RunningBroker, java_topic: str, java_read: Read) -> None:
    java_broker.fill(java_topic, 80)
    rows = sorted(java_read(subscribe=java_topic).collect(), key=lambda row: row.storeTimestamp)
    chosen = rows[40].storeTimestamp
    options = {"subscribe": java_topic, "startingOffsetsByTimestampStrategy": "latest"}
    found = java_read(**options, startingTimestamp=int(chosen.timestamp() * 1000)).count()
    assert found == len([row for row in rows if row.storeTimestamp >= chosen])
    queues = java_broker.cluster.bounds(java_topic, java_broker.cluster.route(java_topic))
    java_broker.cluster.report_progress("G-java", [(queue, 15) for queue in queues])
    assert java_read(subscribe=java_topic, startingOffsets="group", group="G-java").count() == 20


def copy_once(spark: Any, broker: RunningBroker, source: str, target: str, checkpoint: Path) -> int:
    """Batches of one run that copies a topic exactly once."""
    reader = spark.readStream.format("rocketmq").options(
        nameServer=broker.name_server, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="50"
    )
    options = {"nameServer": broker.name_server, "topic": target, "checkpointLocation": str(checkpoint)}
    writer = reader.load().writeStream.format("rocketmq").options(**options, delivery="exactlyOnce")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_S)
    return len([progress for progress in query.recentProgress if progress.numInputRows])


def test_stream_and_exactly_once_sink(
    java_broker: RunningBroker, java_topic: str, spark: Any, tmp_path: Path
) -> None:
    target = create(java_broker, f"{java_topic}-copy")
    java_broker.fill(java_topic, 200)
    assert copy_once(spark, java_broker, java_topic, target, tmp_path / "c") >= 4
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as if the driver had died before it noted the last batch
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    java_broker.fill(java_topic, 20, first=200)
    copy_once(spark, java_broker, java_topic, target, tmp_path / "c")
    assert Counter(java_broker.bodies(target)) == Counter(b"body-%d" % n for n in range(220))


def test_sink_writes_batches_compressed_and_sharded(
    java_broker: RunningBroker, java_topic: str, spark: Any, java_read: Read
) -> None:
    large = "x" * 9000
    frame = spark.range(0, 2000, 1, 2).selectExpr(
        f"if(id % 100 = 0, '{large}', concat('größe ', id)) as body",
        "concat('s', id % 7) as shardingKey",
        "array(cast(id as string), 'all') as keys",
        "map('имя', cast(id as string)) as properties",
    )
    options = {"nameServer": java_broker.name_server, "topic": java_topic, "sendBatchBytes": "64k"}
    frame.write.format("rocketmq").mode("append").options(**options).save()
    rows = java_read(subscribe=java_topic).collect()
    assert {row.properties["имя"] for row in rows} == {str(number) for number in range(2000)}
    assert len([row for row in rows if row.sysFlag & 1 and len(row.body) == 9000]) == 20
    by_key: dict[str, set[int]] = {}
    for row in rows:
        by_key.setdefault(row.properties["SHARDING_KEY"], set()).add(row.queueId)
    assert len(by_key) == 7
    assert all(len(queues) == 1 for queues in by_key.values())
