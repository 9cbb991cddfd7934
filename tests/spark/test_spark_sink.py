"""The sink ``rocketmq``: what rows become, repeatable ids, and exactly-once delivery over failed attempts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_kit import BROKER, RunningBroker

pytestmark = pytest.mark.spark
Read = Callable[..., Any]
WAIT_S = 90


def write(frame: Any, broker: RunningBroker, **options: Any) -> None:
    writer = frame.write.format("rocketmq").mode("append").option("nameServer", broker.name_server)
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def test_columns_become_parts_of_the_message(
    broker: RunningBroker, topic: str, spark: Any, read: Read
) -> None:
    row = (topic, "größe", "tag", ["k1", "k2"], {"a": "b", "пример": "да"}, 3, 2, "id-1")
    columns = "topic string, body string, tags string, keys array<string>, properties map<string,string>"
    write(spark.createDataFrame([row], f"{columns}, flag int, queueId int, msgId string"), broker)
    found = read(subscribe=topic, metadata="all").collect()[0]
    assert bytes(found.body) == "größe".encode()
    assert (found.tags, found.keys, found.flag, found.queueId, found.msgId) == ("tag", "k1 k2", 3, 2, "id-1")
    assert found.properties["пример"] == "да"


def test_many_rows_in_batches_all_arrive_once(
    broker: RunningBroker, topic: str, spark: Any, read: Read
) -> None:
    frame = spark.range(5000).selectExpr("concat('message ', id) as body", "cast(id as string) as keys")
    write(frame, broker, topic=topic, sendBatchBytes="32k")
    rows = read(subscribe=topic).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"message %d" % n for n in range(5000))
    assert len({row.msgId for row in rows}) == 5000
    assert {row.queueId for row in rows} == {0, 1, 2, 3}


def test_rows_of_a_sharding_key_stay_in_order(
    broker: RunningBroker, topic: str, spark: Any, read: Read
) -> None:
    frame = spark.range(0, 600, 1, 1).selectExpr(
        "cast(id as string) as body", "concat('s', id % 7) as shardingKey"
    )
    write(frame, broker, topic=topic, sendBatchBytes="2k", sendInFlight=8)
    by_key: dict[str, list[int]] = {}
    for row in read(subscribe=topic).orderBy("queueId", "queueOffset").collect():
        by_key.setdefault(row.properties["SHARDING_KEY"], []).append(int(bytes(row.body)))
    assert len(by_key) == 7
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_large_bodies_are_compressed(broker: RunningBroker, topic: str, spark: Any, read: Read) -> None:
    write(spark.createDataFrame([("x" * 9000,), ("y",)], "body string"), broker, topic=topic)
    rows = {bytes(row.body)[:1]: row for row in read(subscribe=topic).collect()}
    assert rows[b"x"].sysFlag & 1
    assert len(rows[b"x"].body) == 9000
    assert not rows[b"y"].sysFlag & 1


def test_source_rows_keep_keys_tags_and_get_ids_of_their_origin(
    broker: RunningBroker, topic: str, read: Read
) -> None:
    broker.fill(topic, 40)
    broker.create_topic(f"{topic}-copy", 4)
    write(read(subscribe=topic), broker, topic=f"{topic}-copy")
    rows = read(subscribe=f"{topic}-copy").collect()
    assert len(rows) == 40
    row = next(row for row in rows if row.keys == "k7")
    assert (row.tags, row.queueId, row.msgId) == ("t1", 3, f"{topic}:{BROKER}:3:1")


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("'a' as body, 'b' as tag", {"topic": "T"}, "The sink knows no column 'tag'; did you mean 'tags'?"),
        ("1 as body", {"topic": "T"}, "The column body is of type int; the sink takes binary or string"),
        ("'a' as topic", {}, "The sink needs a column body"),
        ("'a' as body", {}, "The sink needs a column topic or the option topic"),
        ("'a' as body", {"topic": "T", "idColumn": "id"}, "which is no column of the data"),
        ("'a' as body", {"topic": "T", "delivery": "exactlyOnce"}, "delivery=exactlyOnce needs ids"),
        ("'a' as body", {"topic": "T", "sendInflight": "x"}, "The option sendInFlight has 'x'"),
        ("'a' as body", {"topic": "T", "sendTimeout": "1"}, "did you mean 'sendTimeoutMs'?"),
    ],
)
def test_wrong_columns_and_options_are_named(
    broker: RunningBroker, spark: Any, columns: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match="SQLSTATE") as failure:
        write(spark.sql(f"select {columns}"), broker, **options)
    assert text in str(failure.value)


def test_rate_is_kept(broker: RunningBroker, topic: str, spark: Any) -> None:
    began = time.monotonic()
    write(spark.range(0, 100, 1, 1).selectExpr("cast(id as string) as body"), broker, topic=topic, rate=50)
    assert time.monotonic() - began > 1.5


def copy_stream(
    spark: Any, broker: RunningBroker, source: str, target: str, checkpoint: Path, **more: Any
) -> None:
    reader = spark.readStream.format("rocketmq").options(
        nameServer=broker.name_server, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="25"
    )
    options = {
        "nameServer": broker.name_server,
        "topic": target,
        "checkpointLocation": str(checkpoint),
        **more,
    }
    query = reader.load().writeStream.format("rocketmq").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)


def test_batch_that_is_tried_again_is_not_doubled(
    broker: RunningBroker, topic: str, spark: Any, read: Read, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    broker.create_topic(target, 4)
    broker.fill(topic, 60)
    checkpoint = tmp_path / "c"
    copy_stream(spark, broker, topic, target, checkpoint, delivery="exactlyOnce")
    assert read(subscribe=target).count() == 60
    # The driver dies before Spark notes that the last batch is done: the batch comes again.
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    copy_stream(spark, broker, topic, target, checkpoint, delivery="exactlyOnce")
    assert read(subscribe=target).count() == 60
    broker.fill(topic, 3, first=60)
    copy_stream(spark, broker, topic, target, checkpoint, delivery="exactlyOnce")
    rows = read(subscribe=target).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"body-%d" % n for n in range(63))
    fences = list((checkpoint / "cometmq-fences").iterdir())
    assert len(fences) <= 2


def test_at_least_once_doubles_have_the_same_id(
    broker: RunningBroker, topic: str, spark: Any, read: Read, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    broker.create_topic(target, 4)
    broker.fill(topic, 20)
    for number in range(2):
        copy_stream(spark, broker, topic, target, tmp_path / f"c{number}")
    rows = read(subscribe=target).collect()
    assert len(rows) == 40
    assert len({row.msgId for row in rows}) == 20
    assert min(row.msgId for row in rows) == f"{topic}:{BROKER}:0:0"
