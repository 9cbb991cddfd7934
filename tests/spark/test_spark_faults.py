"""What may happen to a cluster under a streaming query, and how the query ends: with nothing lost unseen.

COMETMQ_SPARK_DOWN_S sets how long the broker is away (5).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from query_kit import Query
from spark_kit import RunningBroker, joining_broker, running_broker, wait

pytestmark = pytest.mark.spark

DOWN_S = float(os.environ.get("COMETMQ_SPARK_DOWN_S", "5"))
LOG_FILE_SIZE = 1 << 20


def bodies(count: int, first: int = 0) -> list[bytes]:
    return sorted(b"body-%d" % number for number in range(first, first + count))


@pytest.fixture
def queries(spark: Any) -> Iterator[Callable[[RunningBroker, Path], Query]]:
    yield lambda broker, directory: Query(spark, broker, directory)
    for running in spark.streams.active:
        running.stop()


@pytest.fixture
def query(queries: Callable[[RunningBroker, Path], Query], broker: RunningBroker, tmp_path: Path) -> Query:
    return queries(broker, tmp_path / "checkpoint")


def test_queues_that_are_written_no_more_are_read_to_their_end(
    broker: RunningBroker, topic: str, query: Query
) -> None:
    broker.fill(topic, 8)
    assert query.run(subscribe=topic) == bodies(8)
    broker.fill(topic, 8, first=8)
    broker.create_topic(topic, 4, write=2)
    broker.fill(topic, 4, queues=2, first=16)
    assert query.run(subscribe=topic) == bodies(12, first=8)


def test_queues_that_are_read_no_more_are_data_loss(broker: RunningBroker, topic: str, query: Query) -> None:
    broker.fill(topic, 8)
    query.run(subscribe=topic)
    broker.create_topic(topic, 2)
    broker.fill(topic, 2, queues=2, first=8)
    with pytest.raises(Exception, match="is gone; it was read up to offset 2") as failure:
        query.run(subscribe=topic)
    assert "failOnDataLoss=false" in str(failure.value)
    assert query.run(subscribe=topic, failOnDataLoss="false") == bodies(2, first=8)


class Restarted:
    """A broker that is killed and started again on the same ports and the same store."""

    def __init__(self, store: Path, *settings: str) -> None:
        self._store = store
        self._settings = settings
        self._stack = ExitStack()
        self.broker = self._stack.enter_context(running_broker(store, *settings))

    def kill(self) -> None:
        self._stack.close()

    def start(self) -> None:
        ports = {
            "port": int(self.broker.address.rpartition(":")[2]),
            "nameserver_port": int(self.broker.name_server.rpartition(":")[2]),
        }
        again: AbstractContextManager[RunningBroker] = running_broker(self._store, *self._settings, **ports)
        self.broker = self._stack.enter_context(again)


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Restarted]:
    made = Restarted(tmp_path / "store", f"mappedFileSizeCommitLog={LOG_FILE_SIZE}")
    made.broker.create_topic("t", 1)
    yield made
    made.kill()


@pytest.mark.slow
def test_retention_that_overtook_the_checkpoint_is_data_loss(
    restarted: Restarted, queries: Callable[[RunningBroker, Path], Query], tmp_path: Path
) -> None:
    query = queries(restarted.broker, tmp_path / "c")
    restarted.broker.send("t", b"first")
    assert query.run(subscribe="t") == [b"first"]
    for _ in range(300):
        restarted.broker.send("t", b"x" * 10_000)
    restarted.kill()
    oldest = min((tmp_path / "store" / "commitlog").iterdir())
    oldest.unlink()
    restarted.start()
    queue, found = next(
        iter(restarted.broker.cluster.bounds("t", restarted.broker.cluster.route("t")).items())
    )
    assert 1 < found.min_offset < 301
    lost = found.min_offset - 1
    sentence = (
        rf"Messages of .*{queue.topic}.* are gone: wanted are offsets \[1, {found.min_offset}\), "
        rf"available are \[{found.min_offset}, 301\), {lost} are lost"
    )
    with pytest.raises(Exception, match=sentence):
        query.run(subscribe="t")
    assert len(query.run(subscribe="t", failOnDataLoss="false")) == 300 - lost


@pytest.mark.slow
def test_query_outlives_a_broker_that_is_away_for_a_while(
    restarted: Restarted, queries: Callable[[RunningBroker, Path], Query], tmp_path: Path
) -> None:
    query = queries(restarted.broker, tmp_path / "c")
    restarted.broker.fill("t", 10, queues=1)
    running = query.start(once=False, subscribe="t", retries=20)
    wait(lambda: query.bodies() == bodies(10))
    restarted.kill()
    time.sleep(DOWN_S)
    restarted.start()
    restarted.broker.fill("t", 10, queues=1, first=10)
    wait(lambda: len(query.bodies()) >= 20 or running.exception() is not None)
    assert running.exception() is None
    assert query.bodies() == bodies(20)
    running.stop()


@pytest.mark.slow
def test_broker_that_stays_away_ends_the_query_but_is_no_data_loss(
    restarted: Restarted, queries: Callable[[RunningBroker, Path], Query], tmp_path: Path
) -> None:
    query = queries(restarted.broker, tmp_path / "c")
    restarted.broker.fill("t", 10, queues=1)
    running = query.start(once=False, subscribe="t", retries=1)
    wait(lambda: query.bodies() == bodies(10))
    restarted.kill()
    wait(lambda: not running.isActive)
    assert "The connection to" in str(running.exception())
    assert "are gone" not in str(running.exception())
    restarted.start()
    restarted.broker.fill("t", 5, queues=1, first=10)
    assert query.run(subscribe="t") == bodies(5, first=10)


@pytest.mark.slow
def test_broker_that_its_name_server_forgot_is_down_and_not_lost(
    broker: RunningBroker, queries: Callable[[RunningBroker, Path], Query], tmp_path: Path
) -> None:
    query = queries(broker, tmp_path / "c")
    store = tmp_path / "b"
    with joining_broker(broker.name_server, store, "broker-b") as other:
        other.create_topic("forgotten", 1)
        other.fill("forgotten", 10, queues=1)
        options = {"subscribe": "forgotten", "metadataRefreshMs": 500, "retries": 20}
        running = query.start(once=False, **options)
        wait(lambda: query.bodies() == bodies(10))
    wait(lambda: "forgotten" not in broker.cluster.topics_like(".*"))
    time.sleep(DOWN_S)
    assert running.exception() is None
    with joining_broker(broker.name_server, store, "broker-b") as other:  # at another address
        other.fill("forgotten", 10, queues=1, first=10)
        wait(lambda: len(query.bodies()) >= 20 or running.exception() is not None)
        assert running.exception() is None
        assert query.bodies() == bodies(20)
        running.stop()
    with pytest.raises(Exception, match="knows the topic forgotten"):
        query.run(subscribe="forgotten", retries=0)


@pytest.mark.slow
def test_broker_that_joins_is_read_from_its_first_message(
    restarted: Restarted, queries: Callable[[RunningBroker, Path], Query], tmp_path: Path
) -> None:
    query = queries(restarted.broker, tmp_path / "c")
    restarted.broker.fill("t", 10, queues=1)
    running = query.start(once=False, subscribe="t", metadataRefreshMs=500)
    wait(lambda: query.bodies() == bodies(10))
    with joining_broker(restarted.broker.name_server, tmp_path / "b", "broker-b") as other:
        other.create_topic("t", 2)
        other.fill("t", 10, queues=2, first=10)
        wait(lambda: len(query.bodies()) >= 20 or running.exception() is not None)
        assert running.exception() is None
        assert query.bodies() == bodies(20)
        rows = [row for batch in query.batches for row in batch]
        assert {(row.brokerName, row.queueId) for row in rows} == {
            ("broker-a", 0),
            ("broker-b", 0),
            ("broker-b", 1),
        }
        running.stop()
