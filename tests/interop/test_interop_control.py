"""Control over Java consumers from outside: reset offsets, switch a group off, light queues."""

from __future__ import annotations

from collections import Counter

import pytest
from rig.clients import Admin, JavaClients
from rig.peer import JavaError
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

NO_PERMISSION = 16


@pytest.mark.slow_reference  # the Java client stays quiet for 10 s before it goes back
def test_reset_offset_makes_a_running_consumer_read_again(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    java.producer(cluster.namesrv).send_many({"topic": topic, "body": f"m{i}"} for i in range(8))
    first = java.push(cluster.namesrv, group, {topic: "*"})
    first.wait_consumed(8)
    first.stop()  # stores its offsets at once; without stored ones there is nothing to reset
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_queues(4)
    printed = admin.mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
    assert printed.count("broker-a") == 4
    consumer.wait_count(8, timeout=40)
    assert Counter(consumer.bodies) == Counter(f"m{i}" for i in range(8))


def test_reset_of_an_offline_group_moves_its_stored_offsets(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    java.producer(cluster.namesrv).send_many({"topic": topic, "body": f"m{i}"} for i in range(8))
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_consumed(8)
    consumer.stop()
    printed = admin.mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
    assert "rollback consumer offset by specified" in printed  # the tool moves the stored offsets itself
    again = java.push(cluster.namesrv, group, {topic: "*"})
    again.wait_count(8)
    assert sorted(again.bodies) == sorted(f"m{i}" for i in range(8))


def test_skipped_messages_are_not_delivered(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    first = java.push(cluster.namesrv, group, {topic: "*"})
    producer.send_many({"topic": topic, "body": f"seen{i}"} for i in range(4))
    first.wait_consumed(4)
    first.stop()
    producer.send_many({"topic": topic, "body": f"skipped{i}"} for i in range(8))
    admin.mqadmin("skipAccumulatedMessage", "-g", group, "-t", topic)
    progress = admin.progress(group, topic)
    assert {at - done for queue, (at, done) in progress.items() if queue.startswith(topic)} == {0}
    second = java.push(cluster.namesrv, group, {topic: "*"})
    producer.send_many({"topic": topic, "body": f"new{i}"} for i in range(4))
    second.wait_count(4)
    assert set(second.bodies) == {f"new{i}" for i in range(4)}


def test_group_switched_off_and_on_again(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    producer = java.producer(cluster.namesrv)
    producer.send(topic, "before")
    consumer.wait_bodies(["before"])
    switch = ("updateSubGroup", "-b", cluster.broker.address, "-g", group, "-s")
    admin.mqadmin(*switch, "false")
    producer.send(topic, "while off")
    with pytest.raises(JavaError) as failure:
        java.pull(cluster.namesrv, group).pull({"topic": topic, "broker": "broker-a", "queue": 0}, 0)
    assert failure.value.code == NO_PERMISSION
    assert consumer.bodies == ["before"]
    admin.mqadmin(*switch, "true")
    producer.send(topic, "after")
    consumer.wait_bodies(["while off", "after"], timeout=40)


def test_light_queues_take_a_message_to_several_readers(
    java: JavaClients, kind: str, foundry: Foundry, group: str
) -> None:
    cluster = foundry.cluster(kind, enableLmq="true", enableMultiDispatch="true").start()
    topic = java.admin(cluster.namesrv).create_topic("Parent")
    producer = java.producer(cluster.namesrv)
    for number, names in enumerate(["%LMQ%a,%LMQ%b", "%LMQ%a", "%LMQ%b"]):
        producer.send(topic, f"m{number}", properties={"INNER_MULTI_DISPATCH": names})
    consumer = java.pull(cluster.namesrv, group)
    # the client learns the address of the broker from an ordinary route
    consumer.pull({"topic": topic, "broker": "broker-a", "queue": 0}, 0)

    def bodies(name: str) -> list[str]:
        queue = {"topic": f"%LMQ%{name}", "broker": "broker-a", "queue": 0}
        return [message["body"] for message in consumer.pull_all(queue)]

    wait_for(lambda: bodies("b") == ["m0", "m2"], "the light queues to be filled")
    assert bodies("a") == ["m0", "m1"]
