"""Failing Java consumers: redelivery with growing delays, the retry topic, dead letters."""

from __future__ import annotations

from itertools import pairwise

from rig.clients import Admin, JavaClients
from rig.servers import Cluster
from rig.waiting import wait_for


def test_failed_message_comes_again_through_the_retry_topic(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    # level 1 instead of the client's 0 (broker decides: level 3) keeps the test short
    script = {"bad": ["LATER:1", "LATER:1"], "worse": ["THROW"]}
    java.known_group(cluster.namesrv, group, topic)
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, script=script)
    consumer.wait_queues(4)
    producer = java.producer(cluster.namesrv)
    sent = producer.send(topic, "bad", keys="k-bad", tags="T")
    producer.send(topic, "good")
    producer.send(topic, "worse")
    consumer.wait(lambda got: sum(e.get("body") == "bad" for e in got) == 3, "two redeliveries")
    tries = [m for m in consumer.messages if m["body"] == "bad"]
    assert [m["reconsumeTimes"] for m in tries] == [0, 1, 2]
    assert {m["topic"] for m in tries} == {topic}  # the client hides the retry topic
    assert [m["properties"].get("RETRY_TOPIC") for m in tries[1:]] == [topic, topic]
    assert {m["properties"]["ORIGIN_MESSAGE_ID"] for m in tries[1:]} == {sent["offsetMsgId"]}
    assert {(m["keys"], m["tags"], m["uniqKey"]) for m in tries} == {("k-bad", "T", sent["msgId"])}
    gaps = [later["receivedAt"] - earlier["receivedAt"] for earlier, later in pairwise(tries)]
    assert min(gaps) >= 990, gaps
    consumer.wait(
        lambda got: sum(e.get("body") == "worse" for e in got) == 2, "the broker's own delay, level 3", 40
    )
    first, second = (m for m in consumer.messages if m["body"] == "worse")
    assert second["receivedAt"] - first["receivedAt"] >= 2_990


def test_exhausted_and_rejected_messages_become_dead_letters(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    script = {"rejected": ["LATER:-1"], "hopeless": ["LATER:1"] * 9}
    options = {"maxReconsumeTimes": 2}
    java.known_group(cluster.namesrv, group, topic)
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, script=script, options=options)
    consumer.wait_queues(4)
    producer = java.producer(cluster.namesrv)
    producer.send(topic, "rejected", keys="a")
    producer.send(topic, "hopeless", keys="b")
    dead = f"%DLQ%{group}"
    queue = {"topic": dead, "broker": "broker-a", "queue": 0}
    wait_for(lambda: admin.route(dead) and admin.max_offset(queue) == 2, "two dead letters", 30)
    assert sorted(consumer.bodies) == ["hopeless"] * 3 + ["rejected"]
    # dead letters are writable only until an operator opens the topic
    admin.mqadmin("updateTopicPerm", "-b", cluster.broker.address, "-t", dead, "-p", "6")
    letters = java.pull(cluster.namesrv, f"{group}_reader").pull_all(queue)
    assert [(m["body"], m["keys"]) for m in letters] == [("rejected", "a"), ("hopeless", "b")]
    assert [m["reconsumeTimes"] for m in letters] == [1, 3]
    assert {m["properties"]["RETRY_TOPIC"] for m in letters} == {topic}


def test_pull_consumer_sends_back(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    queue = {"topic": topic, "broker": "broker-a", "queue": 0}
    java.known_group(cluster.namesrv, group, topic)
    java.producer(cluster.namesrv).send(topic, "back", queue=queue)
    puller = java.pull(cluster.namesrv, group)
    puller.call("sendBack", offset=0, level=1, **queue)
    puller.stop()
    consumer = java.push(cluster.namesrv, group, {f"T_unused_{group}": "*"})
    (message,) = consumer.wait_bodies(["back"])
    assert (message["topic"], message["reconsumeTimes"]) == (topic, 1)
