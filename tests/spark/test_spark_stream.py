"""Streaming reads of the source ``rocketmq``: what one run after the other reads, with real checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from query_kit import Query
from spark_kit import BROKER, RunningBroker, wait

from cometmq.protocol.message import MessageQueue

pytestmark = pytest.mark.spark


@pytest.fixture
def query(spark: Any, broker: RunningBroker, tmp_path: Path) -> Iterator[Query]:
    made = Query(spark, broker, tmp_path / "checkpoint")
    yield made
    for running in spark.streams.active:
        running.stop()


def test_runs_continue_where_the_last_one_ended(broker: RunningBroker, topic: str, query: Query) -> None:
    broker.fill(topic, 20)
    assert len(query.run(subscribe=topic)) == 20
    assert query.last_offset() == {topic: {BROKER: {"0": 5, "1": 5, "2": 5, "3": 5}}}
    assert query.run(subscribe=topic) == []
    broker.fill(topic, 3, first=20)
    assert query.run(subscribe=topic) == [b"body-20", b"body-21", b"body-22"]


def test_row_limit_cuts_into_batches(broker: RunningBroker, topic: str, query: Query) -> None:
    broker.fill(topic, 100)
    assert len(query.run(subscribe=topic, maxOffsetsPerTrigger=30)) == 100
    sizes = [len(batch) for batch in query.batches if batch]
    assert max(sizes) <= 30
    assert sum(sizes) == 100


def test_byte_limit_cuts_into_batches(broker: RunningBroker, topic: str, query: Query) -> None:
    for number in range(20):
        broker.send(topic, b"x" * 1000, number % 4)
    assert len(query.run(subscribe=topic, maxBytesPerTrigger="8k")) == 20
    assert max(len(batch) for batch in query.batches) <= 8


def test_new_queues_and_new_topics_start_at_their_minimum(
    broker: RunningBroker, topic: str, query: Query
) -> None:
    broker.fill(topic, 4)
    assert len(query.run(subscribePattern=f"{topic}(-new)?")) == 4
    broker.create_topic(topic, 6)
    broker.create_topic(f"{topic}-new", 1)
    broker.send(topic, b"in a new queue", 5)
    broker.send(f"{topic}-new", b"in a new topic", 0)
    assert query.run(subscribePattern=f"{topic}(-new)?") == [b"in a new queue", b"in a new topic"]


def test_deleted_topic_is_data_loss(broker: RunningBroker, topic: str, query: Query) -> None:
    broker.create_topic(f"{topic}-other", 1)
    broker.fill(topic, 4)
    pattern = f"{topic}(-other)?"
    query.run(subscribePattern=pattern)
    broker.delete_topic(topic)
    broker.send(f"{topic}-other", b"later")
    with pytest.raises(Exception, match="is gone; it was read up to offset 1"):
        query.run(subscribePattern=pattern)
    assert query.run(subscribePattern=pattern, failOnDataLoss="false") == [b"later"]


def test_store_that_was_reset_is_data_loss(broker: RunningBroker, topic: str, query: Query) -> None:
    broker.fill(topic, 40)
    query.run(subscribe=topic)
    broker.delete_topic(topic)
    broker.create_topic(topic, 4)
    with pytest.raises(Exception, match="are gone") as failure:
        query.run(subscribe=topic)
    assert "failOnDataLoss=false" in str(failure.value)
    assert query.run(subscribe=topic, failOnDataLoss="false") == []
    broker.fill(topic, 4)
    assert len(query.run(subscribe=topic, failOnDataLoss="false")) == 4


def test_progress_of_the_group_is_the_next_offset(
    broker: RunningBroker, topic: str, query: Query, spark: Any
) -> None:
    from cometmq.spark import attach_progress

    broker.fill(topic, 8)
    listener = attach_progress(spark, name_server=broker.name_server, group="G-progress")
    try:
        query.run(subscribe=topic)
        queue = MessageQueue(topic, BROKER, 0)
        # The listener is called after the query has ended; until then the broker says 0 or nothing.
        wait(lambda: broker.cluster.group_offset(broker.address, "G-progress", queue) == 2)
    finally:
        spark.streams.removeListener(listener)


def test_source_commits_batches_before_the_last(broker: RunningBroker, topic: str, query: Query) -> None:
    broker.fill(topic, 40)
    query.run(subscribe=topic, commitOffsets="true", group="G-commit", maxOffsetsPerTrigger=20)
    offset = broker.cluster.group_offset(broker.address, "G-commit", MessageQueue(topic, BROKER, 0))
    assert offset == 5


def test_continuous_polling_reads_what_comes(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    broker.fill(topic, 4)
    reader = spark.readStream.format("rocketmq").options(nameServer=broker.name_server, subscribe=topic)
    seen: list[bytes] = []

    def keep(frame: Any, _number: int) -> None:
        seen.extend(bytes(row.body) for row in frame.collect())

    query = (
        reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c")).start()
    )
    try:
        wait_for_start(query)
        broker.fill(topic, 4, first=100)
        wait(lambda: len(seen) >= 4)
        assert sorted(seen) == [b"body-100", b"body-101", b"body-102", b"body-103"]
    finally:
        query.stop()


def wait_for_start(query: Any) -> None:
    """The query has asked for its initial offset, so what comes now is new."""
    wait(lambda: query.lastProgress is not None or "Waiting" in query.status["message"])
