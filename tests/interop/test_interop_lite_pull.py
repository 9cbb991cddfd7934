"""The Java lite pull consumer: subscribe, assign, seek, commit."""

from __future__ import annotations

from rig.clients import JavaClients, Json
from rig.servers import Cluster
from rig.waiting import wait_for


def queue(topic: str, number: int) -> Json:
    return {"topic": topic, "broker": "broker-a", "queue": number}


def test_subscription_polls_everything_and_commits(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    producer.send_many({"topic": topic, "body": f"m{i}"} for i in range(20))
    consumer = java.lite(cluster.namesrv, group, subscriptions={topic: "*"}, options={"autoCommit": False})
    assert {m["body"] for m in consumer.poll_until(20)} == {f"m{i}" for i in range(20)}
    assert len(consumer.assignment()) == 4
    consumer.call("commit")
    for number in range(4):
        wait_for(
            lambda n=number: consumer.call("committed", **queue(topic, n)) == 5, f"offset 5 of queue {number}"
        )
    consumer.stop()
    producer.send(topic, "later", queue=queue(topic, 0))
    again = java.lite(cluster.namesrv, group, subscriptions={topic: "*"})
    assert [m["body"] for m in again.poll_until(1)] == ["later"]


def test_subscription_with_tags(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    producer = java.producer(cluster.namesrv)
    producer.send_many({"topic": topic, "body": f"{tag}{i}", "tags": tag} for i in range(4) for tag in "ABC")
    consumer = java.lite(cluster.namesrv, group, subscriptions={topic: "A||C"})
    assert {m["body"] for m in consumer.poll_until(8)} == {f"{tag}{i}" for i in range(4) for tag in "AC"}


def test_assigned_queues_seek_to_offset_begin_and_end(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    for number in range(10):
        producer.send(topic, f"m{number}", queue=queue(topic, 1))
    consumer = java.lite(cluster.namesrv, group, assign=[queue(topic, 1)])
    assert [m["body"] for m in consumer.poll_until(10)] == [f"m{i}" for i in range(10)]
    consumer.call("seek", to="7", **queue(topic, 1))
    assert [m["body"] for m in consumer.poll_until(3)] == ["m7", "m8", "m9"]
    consumer.call("seek", to="begin", **queue(topic, 1))
    assert [m["body"] for m in consumer.poll_until(10)] == [f"m{i}" for i in range(10)]
    consumer.call("seek", to="end", **queue(topic, 1))
    producer.send(topic, "new", queue=queue(topic, 1))
    assert [m["body"] for m in consumer.poll_until(1)] == ["new"]


def test_offset_of_a_time(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    producer = java.producer(cluster.namesrv)
    for number in range(3):
        producer.send(topic, f"m{number}", queue=queue(topic, 0))
    consumer = java.lite(cluster.namesrv, group, assign=[queue(topic, 0)])
    stored = [m["storeTimestamp"] for m in consumer.poll_until(3)]

    def offset_at(timestamp: int) -> int:
        found: int = consumer.call("offsetForTimestamp", timestamp=timestamp, **queue(topic, 0))
        return found

    assert offset_at(stored[0] - 1000) == 0
    assert offset_at(0) == 0


def test_two_members_share_the_queues(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    members = [java.lite(cluster.namesrv, group, subscriptions={topic: "*"}) for _ in range(2)]
    wait_for(
        lambda: [len(member.assignment()) for member in members] == [2, 2],
        "two lite pull consumers to share",
        15,
    )
    java.producer(cluster.namesrv).send_many({"topic": topic, "body": f"m{i}"} for i in range(20))
    got = [m["body"] for member in members for m in member.poll_until(10)]
    assert sorted(got) == sorted(f"m{i}" for i in range(20))
