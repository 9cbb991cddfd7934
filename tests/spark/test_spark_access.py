"""Accounts, TLS and slaves: how the connector reaches brokers that are not plain masters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acl_kit import access_key, secret_key, write_accounts
from query_kit import Query
from spark_kit import RunningBroker, joining_broker, read_frame, running_broker, wait

from cometmq.errors import BrokerError
from cometmq.spark import link
from cometmq.spark.offsets import ranges_between
from cometmq.spark.options import ClusterOptions, ReadOptions
from cometmq.spark.pulls import RangeReader

pytestmark = pytest.mark.slow

ACCOUNTS = {
    "admin": {"admin": True},
    "reader": {"topicPerms": ["t=SUB"], "groupPerms": ["SPARK_SOURCE=SUB"]},
}


def keys_of(account: str) -> dict[str, str]:
    return {"accessKey": access_key(account), "secretKey": secret_key(account)}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningBroker]:
    write_accounts(tmp_path, ACCOUNTS)
    options = ClusterOptions(access_key=access_key("admin"), secret_key=secret_key("admin"))
    environment = {"ROCKETMQ_HOME": str(tmp_path)}
    store = tmp_path / "store"
    with running_broker(store, "aclEnable=true", options=options, environment=environment) as running:
        running.create_topic("t", 2)
        yield running


@pytest.mark.spark
def test_accounts_are_checked_and_secrets_stay_hidden(
    guarded: RunningBroker, spark: Any, tmp_path: Path
) -> None:
    guarded.fill("t", 20, queues=2)
    assert read_frame(spark, guarded, subscribe="t", **keys_of("admin")).count() == 20
    assert len(Query(spark, guarded, tmp_path / "c").run(subscribe="t", **keys_of("admin"))) == 20
    frame = read_frame(spark, guarded, subscribe="t", accessKey="nobody", secretKey="s3cret-x", retries=0)
    with pytest.raises(Exception, match="No acl config for nobody") as failure:
        frame.collect()
    assert "s3cret-x" not in str(failure.value)
    with pytest.raises(Exception, match="AclException"):
        read_frame(spark, guarded, subscribe="t", retries=0).collect()


@pytest.mark.spark
def test_sink_signs_what_it_sends(guarded: RunningBroker, spark: Any) -> None:
    writer = spark.range(50).selectExpr("cast(id as string) as body").write.format("rocketmq").mode("append")
    options = {"nameServer": guarded.name_server, "topic": "t"}
    writer.options(**options, **keys_of("admin")).save()
    assert sorted(guarded.bodies("t")) == sorted(b"%d" % number for number in range(50))
    with pytest.raises(Exception, match="AclException"):
        writer.options(**options, **keys_of("reader"), retries="0").save()


@pytest.mark.spark
def test_tls_is_used_when_asked_for(spark: Any, tmp_path: Path) -> None:
    settings = ("tls.server.mode=enforcing", "tls.test.mode.enable=true")
    with running_broker(tmp_path / "store", *settings, options=ClusterOptions(tls=True)) as sealed:
        sealed.create_topic("t", 2)
        sealed.fill("t", 20, queues=2)
        assert read_frame(spark, sealed, subscribe="t", tls="true").count() == 20
        with pytest.raises(Exception, match="The connection to"):
            read_frame(spark, sealed, subscribe="t", retries="0").collect()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    """A master that sends readers to its slave, and the slave with all messages."""
    sending = ("slaveReadEnable=true", "accessMessageInMemoryMaxRatio=0", "haListenPort=0")
    with running_broker(tmp_path / "store", *sending) as master:
        master.create_topic("t", 2)
        master.fill("t", 100, queues=2)
        role = ("brokerRole=SLAVE", "brokerId=1", "haListenPort=0")
        with joining_broker(master.name_server, tmp_path / "slave", "broker-a", *role) as slave:
            wait(lambda: 1 in master.cluster.route("t").addresses.get("broker-a", {}))
            wait(lambda: len(from_slave(master, slave)) == 100)
            yield master, slave


def from_slave(master: RunningBroker, slave: RunningBroker) -> list[int]:
    """What the slave has, read from it alone."""
    route = master.cluster.route("t")
    only = {"broker-a": {1: slave.address}}
    bounds = master.cluster.bounds("t", route)
    ranges = ranges_between(
        dict.fromkeys(bounds, 0), {queue: found.max_offset for queue, found in bounds.items()}
    )
    options = ReadOptions(name_server=(master.name_server,), subscribe=("t",), fail_on_data_loss=False)
    try:
        pieces = list(RangeReader(options, only, ranges).pieces())
    except BrokerError:
        return []  # it has not heard of the topic yet
    return [number for piece in pieces for number in range(piece.start, piece.end)]


@pytest.mark.parametrize(("read_from", "from_whom"), [("master", {0}), ("slave", {1}), ("auto", {0, 1})])
def test_reads_go_to_the_slave_when_told_or_suggested(
    pair: tuple[RunningBroker, RunningBroker], read_from: str, from_whom: set[int]
) -> None:
    master, slave = pair
    route = master.cluster.route("t")
    bounds = master.cluster.bounds("t", route)
    ranges = ranges_between(
        dict.fromkeys(bounds, 0), {queue: found.max_offset for queue, found in bounds.items()}
    )
    link.close_links()
    options = ReadOptions(
        name_server=(master.name_server,), subscribe=("t",), read_from=read_from, pull_batch_size=10
    )
    pieces = list(RangeReader(options, route.addresses, ranges).pieces())
    assert sum(piece.end - piece.start for piece in pieces) == 100
    used = {key[1] for key in link._links}
    assert {number for number, server in enumerate((master, slave)) if server.address in used} == from_whom


@pytest.mark.spark
def test_spark_reads_from_a_slave(pair: tuple[RunningBroker, RunningBroker], spark: Any) -> None:
    master, _ = pair
    for read_from in ("slave", "auto"):
        frame = read_frame(spark, master, subscribe="t", readFrom=read_from, pullBatchSize=10)
        assert frame.count() == 100
