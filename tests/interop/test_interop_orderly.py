"""Ordered consumption with the Java client: one queue at one member, in order, through failures and rebalances."""

from __future__ import annotations

from collections import defaultdict

from rig.clients import JavaClients, PushConsumer
from rig.peer import Event
from rig.servers import Cluster
from rig.waiting import wait_for

KEYS = [f"order-{i}" for i in range(6)]


def steps(topic: str, first: int, last: int) -> list[dict[str, str]]:
    return [
        {"topic": topic, "body": f"{key}/{step}", "keys": key, "orderingKey": key}
        for step in range(first, last)
        for key in KEYS
    ]


def by_key(events: list[Event]) -> dict[str, list[int]]:
    """Steps of each key in the order of their deliveries, repeats of the last step left out."""
    got: dict[str, list[int]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event["delivery"]):
        step = int(event["body"].split("/")[1])
        if got[event["keys"]][-1:] != [step]:
            got[event["keys"]].append(step)
    return dict(got)


def all_of(consumers: list[PushConsumer]) -> list[Event]:
    return [event for consumer in consumers for event in consumer.messages]


def test_each_key_is_consumed_in_order(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, orderly=True)
    java.producer(cluster.namesrv).send_many(steps(topic, 0, 10))
    consumer.wait_count(60)
    assert by_key(consumer.messages) == {key: list(range(10)) for key in KEYS}


def test_failing_message_holds_its_queue_back(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    queue = {"topic": topic, "broker": "broker-a", "queue": 1}
    producer = java.producer(cluster.namesrv)
    for number in range(4):
        producer.send(topic, f"m{number}", queue=queue)
    script = {"m1": ["LATER:100", "LATER:100"]}
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, orderly=True, script=script)
    consumer.wait_bodies(["m3"])
    assert consumer.bodies == ["m0", "m1", "m1", "m1", "m2", "m3"]


def test_order_holds_while_members_come_and_go(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    first = java.push(cluster.namesrv, group, {topic: "*"}, orderly=True)
    first.wait_queues(4)
    producer.send_many(steps(topic, 0, 5))
    second = java.push(cluster.namesrv, group, {topic: "*"}, orderly=True)
    producer.send_many(steps(topic, 5, 10))
    # the new member gets a queue when the old one has given it up and unlocked it
    wait_for(
        lambda: (len(first.queues()), len(second.queues())) == (2, 2), "two members with two queues each", 45
    )
    producer.send_many(steps(topic, 10, 15))
    wait_for(lambda: len({e["body"] for e in all_of([first, second])}) == 15 * len(KEYS), "all steps")
    first.stop()
    producer.send_many(steps(topic, 15, 20))
    wait_for(lambda: len({e["body"] for e in all_of([first, second])}) == 20 * len(KEYS), "all steps", 45)
    assert by_key(all_of([first, second])) == {key: list(range(20)) for key in KEYS}
