"""``load``: the rows that the formats give, read the faster way."""

from __future__ import annotations

import importlib.util
import zlib
from pathlib import Path
from typing import Any

import pytest
from spark_kit import RunningBroker

import cometmq.spark
from cometmq.errors import ConfigError

pytestmark = pytest.mark.spark


def both(
    spark: Any, format: str, path: str | None = None, schema: str | None = None, **options: Any
) -> list[Any]:
    """The frame of ``spark.read`` and the frame of ``load``."""
    reader = spark.read.format(format).options(**options)
    plain = (reader.schema(schema) if schema else reader).load(path)
    return [plain, cometmq.spark.load(spark, format, path, schema=schema, **options)]


def texts(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.parametrize("options", [{}, {"metadata": "all", "decompress": True, "minPartitions": 3}])
@pytest.mark.parametrize(
    "schema", [None, "queueOffset bigint, properties map<string,string>, storeTimestamp timestamp"]
)
def test_messages_are_the_same(
    broker: RunningBroker, topic: str, spark: Any, options: dict[str, Any], schema: str | None
) -> None:
    broker.fill(topic, 100)
    broker.send(topic, zlib.compress(b"z" * 5000), 0, {"TAGS": "标签", "имя": "значение"}, sys_flag=1)
    plain, loaded = both(
        spark, "rocketmq", schema=schema, nameServer=broker.name_server, subscribe=topic, **options
    )
    assert loaded.schema == plain.schema
    assert texts(loaded) == texts(plain)
    assert loaded.count() == 101


def test_a_store_with_damage_gives_the_same(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    for number in range(50):
        broker.send(topic, b"to load %04d" % number * 20)
    copy = broker.copy_store(tmp_path / "copy")
    log = sorted((copy / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    data[data.find(b"to load 0025")] ^= 0xFF
    log.write_bytes(data)
    plain, loaded = both(spark, "rocketmq-store", str(copy), sliceBytes="100k")
    assert loaded.schema == plain.schema
    assert texts(loaded) == texts(plain)
    assert loaded.where("not valid").count() == 1


def test_times_are_the_same_in_another_time_zone(broker: RunningBroker, topic: str, spark: Any) -> None:
    broker.fill(topic, 3)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        plain, loaded = both(spark, "rocketmq", nameServer=broker.name_server, subscribe=topic)
        column = "cast(storeTimestamp as string)"
        assert texts(loaded.selectExpr(column)) == texts(plain.selectExpr(column))
        assert texts(loaded) == texts(plain)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_nothing_to_read_is_no_row(topic: str, broker: RunningBroker, spark: Any) -> None:
    _, loaded = both(spark, "rocketmq", nameServer=broker.name_server, subscribe=topic)
    assert loaded.collect() == []


def test_a_frame_gives_the_same_rows_twice(broker: RunningBroker, topic: str, spark: Any) -> None:
    broker.fill(topic, 10)
    loaded = cometmq.spark.load(spark, "rocketmq", nameServer=broker.name_server, subscribe=topic)
    broker.fill(topic, 10, first=10)
    assert loaded.count() == 10
    assert cometmq.spark.load(spark, "rocketmq", nameServer=broker.name_server, subscribe=topic).count() == 20


def test_with_pushdown_conditions_narrow_what_is_read(broker: RunningBroker, topic: str, spark: Any) -> None:
    broker.fill(topic, 40)
    loaded = cometmq.spark.load(
        spark, "rocketmq", nameServer=broker.name_server, subscribe=topic, pushdown=True, minRecordsPerTask=0
    )
    narrowed = loaded.where("queueId = 2 and queueOffset >= 8")
    assert narrowed.rdd.getNumPartitions() == 1
    assert narrowed.count() == 2


def test_frames_join_and_aggregate(broker: RunningBroker, topic: str, spark: Any) -> None:
    broker.fill(topic, 30)
    loaded = cometmq.spark.load(spark, "rocketmq", nameServer=broker.name_server, subscribe=topic)
    pairs = loaded.alias("a").join(loaded.alias("b"), ["queueId", "queueOffset"]).groupBy("a.tags").count()
    assert {row.tags: row["count"] for row in pairs.collect()} == {"t0": 10, "t1": 10, "t2": 10}
    assert len(loaded.limit(3).collect()) == 3


@pytest.mark.parametrize(
    ("format", "options", "text"),
    [
        ("rocketmq-stor", {}, "did you mean 'rocketmq-store'"),
        ("rocketmq", {"subscribe": "t", "nameServers": "x:1"}, "did you mean 'nameServer'"),
        ("rocketmq-store", {"schema": "bodie binary", "path": "."}, "did you mean 'body'"),
    ],
)
def test_what_is_wrong_is_said_at_once(spark: Any, format: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        cometmq.spark.load(spark, format, **options)


def test_a_file_that_retention_took_meanwhile_is_a_row(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    broker.fill(topic, 5)
    copy = broker.copy_store(tmp_path / "copy")
    loaded = cometmq.spark.load(spark, "rocketmq-store", str(copy))
    assert loaded.where("not valid").count() == 0
    first = min((copy / "commitlog").iterdir())
    first.unlink()
    bad = loaded.where("not valid").collect()
    assert [row.commitLogOffset for row in bad] == [0]
    assert bad[0].problem.startswith("the file was deleted after the scan was planned (")
    assert bad[0].problem.endswith(f" bytes of {first.name})")


def test_a_reader_that_fails_names_the_reason(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    broker.fill(topic, 5)
    copy = broker.copy_store(tmp_path / "copy")
    loaded = cometmq.spark.load(spark, "rocketmq-store", str(copy))
    for log in (copy / "commitlog").iterdir():
        log.write_bytes(b"short")
    with pytest.raises(Exception, match="cannot be read"):
        loaded.collect()


@pytest.mark.skipif(importlib.util.find_spec("pandas") is not None, reason="pandas is installed")
def test_pandas_is_not_needed(broker: RunningBroker, topic: str, spark: Any) -> None:
    assert cometmq.spark.load(spark, "rocketmq", nameServer=broker.name_server, subscribe=topic).count() == 0
