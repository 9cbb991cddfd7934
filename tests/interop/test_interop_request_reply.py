"""request() of the Java producer and the reply of a Java consumer through the broker."""

from __future__ import annotations

import pytest
from rig.clients import JavaClients
from rig.peer import JavaError
from rig.servers import Cluster


def test_request_returns_the_reply(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    script = {f"question{i}": [f"REPLY:answer{i}"] for i in range(3)}
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, script=script, replies=True)
    consumer.wait_queues(4)
    producer = java.producer(cluster.namesrv, f"P{group}")
    for number in range(3):
        reply = producer.request(topic, f"question{number}")
        assert reply["body"] == f"answer{number}"
        assert reply["properties"]["MSG_TYPE"] == "reply"
    assert not [event for event in consumer.peer.events(consumer.name) if event["event"] == "failure"]


def test_request_without_reply_times_out(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    producer = java.producer(cluster.namesrv, f"P{group}")
    with pytest.raises(JavaError) as failure:
        producer.request(topic, "is anybody there", timeout_ms=1500)
    assert failure.value.type == "RequestTimeoutException"


def test_reply_to_a_requester_that_has_gone_is_an_error(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv, f"P{group}")
    with pytest.raises(JavaError):
        producer.request(topic, "late", timeout_ms=500)
    producer.stop()
    consumer = java.push(
        cluster.namesrv, group, {topic: "*"}, script={"late": ["REPLY:too late"]}, replies=True
    )
    consumer.wait(lambda got: any(e["event"] == "failure" for e in got), "the reply to fail")
    (failed,) = [e for e in consumer.peer.events(consumer.name) if e["event"] == "failure"]
    assert "channel of" in failed["cause"]["message"]
