"""SQL92 subscriptions of the Java client."""

from __future__ import annotations

import pytest
from rig.clients import JavaClients, Json, PullConsumer
from rig.peer import JavaError
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

ROWS: list[Json] = [
    {"body": "a1", "tags": "A", "properties": {"a": "1", "b": "x"}},
    {"body": "a4", "tags": "A", "properties": {"a": "4", "b": "x"}},
    {"body": "a4y", "tags": "B", "properties": {"a": "4", "b": "y", "c": "3"}},
    {"body": "c9", "tags": "B", "properties": {"c": "9"}},
    {"body": "float", "properties": {"a": "3.5", "b": "x", "flag": "true"}},
    {"body": "bare"},
]
CASES = [
    ("a > 3 AND b = 'x' OR c BETWEEN 1 AND 5", {"a4", "a4y"}),  # "3.5" is no integer
    ("a > 3.0", {"a4", "a4y", "float"}),
    ("flag = TRUE", {"float"}),
    ("b IN ('x', 'z')", {"a1", "a4", "float"}),
    ("a IS NULL", {"c9", "bare"}),
    ("TAGS = 'B' AND c IS NOT NULL", {"a4y", "c9"}),
    ("NOT (a >= 4) AND b <> 'y'", {"a1"}),
]


@pytest.mark.parametrize(("expression", "wanted"), CASES)
def test_expression_selects(
    java: JavaClients, cluster: Cluster, topic: str, group: str, expression: str, wanted: set[str]
) -> None:
    producer = java.producer(cluster.namesrv)
    producer.send_many({"topic": topic, **row} for row in ROWS)
    consumer = java.push(cluster.namesrv, group, {topic: {"sql": expression}})
    consumer.wait_bodies(wanted)
    producer.send_many({"topic": topic, **row, "body": row["body"] + "+"} for row in ROWS)
    consumer.wait_bodies({body + "+" for body in wanted})
    assert set(consumer.bodies) == {body + end for body in wanted for end in ("", "+")}


def test_pull_with_an_expression(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    queue = {"topic": topic, "broker": "broker-a", "queue": 0}
    producer = java.producer(cluster.namesrv)
    for row in ROWS:
        producer.send(topic, queue=queue, **row)
    consumer = java.pull(cluster.namesrv, group, options={"heartbeatBrokerInterval": 200})
    consumer.queues(
        topic
    )  # with the route it knows whom to send heartbeats, and from these the broker's version
    result = wait_for(lambda: _pull_or_none(consumer, queue), "the client to know the version of the broker")
    assert [m["body"] for m in result["messages"]] == ["a4", "a4y"]


def _pull_or_none(consumer: PullConsumer, queue: Json) -> Json | None:
    try:
        return consumer.pull(queue, 0, sql="a = 4")
    except JavaError as e:
        if "does not upgrade" in e.message:
            return None
        raise


@pytest.mark.parametrize("expression", ["a > ", "a = = 3", "a > 'x'", "a = NULL"])
def test_bad_expression_fails_the_start(
    java: JavaClients, cluster: Cluster, topic: str, group: str, expression: str
) -> None:
    with pytest.raises(JavaError):
        java.push(cluster.namesrv, group, {topic: {"sql": expression}})


def test_switched_off_filter_is_refused(java: JavaClients, kind: str, foundry: Foundry, group: str) -> None:
    cluster = foundry.cluster(kind, enablePropertyFilter="false").start()
    topic = java.admin(cluster.namesrv).create_topic("NoSql")
    with pytest.raises(JavaError) as failure:
        java.push(cluster.namesrv, group, {topic: {"sql": "a > 3"}})
    assert "does not support consumer to filter message by SQL92" in str(failure.value.cause or failure.value)
