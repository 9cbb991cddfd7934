"""Scans of store directories with the format ``rocketmq-store``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from spark_kit import RunningBroker

pytestmark = pytest.mark.spark


def scan(spark: Any, root: Path, **options: Any) -> Any:
    reader = spark.read.format("rocketmq-store")
    return reader.options(**{name: str(value) for name, value in options.items()}).load(str(root))


def test_live_store_gives_what_the_broker_gives(
    broker: RunningBroker, topic: str, spark: Any, read: Any
) -> None:
    broker.fill(topic, 200)
    rows = (
        scan(spark, broker.store, subscribe=topic, brokerName="broker-a").drop("valid", "problem").collect()
    )
    assert sorted(map(str, rows)) == sorted(map(str, read(subscribe=topic).collect()))


def test_small_slices_give_the_same_rows(broker: RunningBroker, topic: str, spark: Any) -> None:
    for number in range(300):
        broker.send(topic, b"x" * 2000, number % 4)
    frame = scan(spark, broker.store, subscribe=topic, sliceBytes="100k")
    assert frame.rdd.getNumPartitions() > 4
    assert frame.count() == 300
    assert frame.select("topic", "queueId", "queueOffset").distinct().count() == 300


def test_damage_is_a_row_and_the_rest_is_read(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    for number in range(50):
        broker.send(topic, b"body %04d" % number * 20)
    copy = broker.copy_store(tmp_path / "copy")
    log = sorted((copy / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    damaged = data.find(b"body 0025")
    data[damaged] ^= 0xFF
    log.write_bytes(data)
    frame = scan(spark, copy).cache()
    bad = frame.where("not valid").collect()
    assert len(bad) == 1
    assert bad[0].commitLogOffset < damaged
    assert "the CRC of the body is wrong" in bad[0].problem
    assert frame.where(f"valid and topic = '{topic}'").count() == 49


def test_java_store_is_read(golden_store: Any, spark: Any) -> None:
    frame = scan(spark, golden_store("clean"))
    assert frame.where("valid").count() > 0
    assert frame.where("not valid").count() == 0


def test_directory_that_is_no_store_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has no commit log"):
        scan(spark, tmp_path).count()
    with pytest.raises(Exception, match="option path is missing"):
        spark.read.format("rocketmq-store").load().count()


def test_scan_that_is_left_early_is_no_failure(broker: RunningBroker, topic: str, spark: Any) -> None:
    broker.fill(topic, 300)
    for _ in range(3):
        assert len(scan(spark, broker.store, subscribe=topic, sliceBytes="10k").limit(1).collect()) == 1
    assert scan(spark, broker.store, subscribe=topic).count() == 300


def test_worker_that_java_has_closed_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    from cometmq.spark import worker_daemon

    def broken(_sock: object, _authenticated: bool) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(worker_daemon, "_worker", broken)
    with socket.socket() as sock:
        assert worker_daemon.quiet_worker(sock, True) == worker_daemon.CLOSED
