"""Push consumers of the Java client: tags, clustering, broadcasting, rebalance, offsets."""

from __future__ import annotations

from collections import Counter

from rig.clients import Admin, JavaClients, Json, PushConsumer
from rig.servers import Cluster
from rig.waiting import wait_for


def numbered(topic: str, count: int, prefix: str = "m") -> list[Json]:
    return [{"topic": topic, "body": f"{prefix}{i}"} for i in range(count)]


def bodies_of(*consumers: PushConsumer) -> Counter[str]:
    return Counter(body for consumer in consumers for body in consumer.bodies)


def wait_together(consumers: list[PushConsumer], wanted: set[str], timeout: float = 30) -> None:
    wait_for(lambda: wanted <= set(bodies_of(*consumers)), f"{len(wanted)} messages at the group", timeout)


def share_queues(consumers: list[PushConsumer], queues: int) -> bool:
    held = [queue for consumer in consumers for queue in consumer.queues()]
    return len(held) == queues == len(set(held)) and all(consumer.queues() for consumer in consumers)


def test_messages_before_and_after_the_start_arrive(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    producer.send_many(numbered(topic, 20, "early"))
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_count(20)
    producer.send_many(numbered(topic, 20, "late"))
    consumer.wait_count(40)
    assert bodies_of(consumer) == Counter([f"early{i}" for i in range(20)] + [f"late{i}" for i in range(20)])


def test_held_pull_is_woken_by_a_send(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    producer = java.producer(cluster.namesrv)
    producer.send(topic, "warm")
    consumer.wait_count(1)
    delays = []
    for number in range(5):
        producer.send(topic, f"w{number}")
        message = consumer.wait_bodies([f"w{number}"])[-1]
        delays.append(message["receivedAt"] - message["storeTimestamp"])
    assert min(delays) < 200, delays


def test_tags_select_on_the_broker_and_collisions_on_the_client(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    # AaAa and BBBB have one Java hash code: the broker cannot tell them apart, the client must
    tags = ["A", "B", "C", "AaAa", "BBBB", None]
    for number in range(3):
        for tag in tags:
            producer.send(topic, f"{tag}{number}", **({"tags": tag} if tag else {}))
    consumer = java.push(cluster.namesrv, group, {topic: "A || AaAa"})
    wanted = {f"{tag}{number}" for tag in ("A", "AaAa") for number in range(3)}
    consumer.wait_bodies(wanted)
    producer.send(topic, "A-last", tags="A")
    consumer.wait_bodies(["A-last"])
    assert set(consumer.bodies) == wanted | {"A-last"}


def test_consumed_offsets_are_kept_for_the_group(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    producer.send_many(numbered(topic, 12, "first"))
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_consumed(12)
    consumer.stop()
    progress = {queue: row for queue, row in admin.progress(group, topic).items() if queue.startswith(topic)}
    assert [row[0] - row[1] for row in progress.values()] == [0, 0, 0, 0]
    assert sum(row[1] for row in progress.values()) == 12
    producer.send_many(numbered(topic, 4, "second"))
    again = java.push(cluster.namesrv, group, {topic: "*"})
    again.wait_count(4)
    assert set(again.bodies) == {f"second{i}" for i in range(4)}


def test_new_group_at_a_young_topic_reads_from_the_start(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    java.producer(cluster.namesrv).send_many(numbered(topic, 4))
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, start_from="CONSUME_FROM_LAST_OFFSET")
    consumer.wait_bodies(f"m{i}" for i in range(4))


def test_group_shares_queues_as_members_come_and_go(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    producer = java.producer(cluster.namesrv)
    first = java.push(cluster.namesrv, group, {topic: "*"})
    first.wait_queues(4)
    second = java.push(cluster.namesrv, group, {topic: "*"})
    # well below the client's own 20 s round: the broker's notification does it
    wait_for(lambda: share_queues([first, second], 4), "two consumers to share four queues", 15)
    producer.send_many(numbered(topic, 40, "two"))
    wait_together([first, second], {f"two{i}" for i in range(40)})
    assert first.bodies
    assert second.bodies
    first.stop()
    wait_for(lambda: len(second.queues()) == 4, "the one that stays to take over", 15)
    producer.send_many(numbered(topic, 8, "one"))
    second.wait_bodies(f"one{i}" for i in range(8))
    counts = bodies_of(first, second)
    assert set(counts) == {f"two{i}" for i in range(40)} | {f"one{i}" for i in range(8)}


def test_broadcast_reaches_every_member(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    members = [
        java.push(
            cluster.namesrv,
            group,
            {topic: "*"},
            broadcast=True,
            options={"instanceName": f"{group}-{number}"},
        )
        for number in range(2)
    ]
    for member in members:
        member.wait_queues(4)
    java.producer(cluster.namesrv).send_many(numbered(topic, 20))
    for member in members:
        member.wait_count(20)
        assert bodies_of(member) == Counter(f"m{i}" for i in range(20))


def test_pull_outside_the_queue_is_corrected(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    queue = {"topic": topic, "broker": "broker-a", "queue": 0}
    producer = java.producer(cluster.namesrv)
    consumer = java.pull(cluster.namesrv, group)
    empty = consumer.pull(queue, 5)
    assert (empty["status"], empty["next"]) == ("OFFSET_ILLEGAL", 0)
    for number in range(50):
        producer.send(topic, f"m{number}", queue=queue)
    # the Java broker answers a send before the message is in its queue
    wait_for(lambda: admin.max_offset(queue) == 50, "the queue to have all messages")
    beyond = consumer.pull(queue, 60)
    assert (beyond["status"], beyond["next"], beyond["max"]) == ("OFFSET_ILLEGAL", 50, 50)
    at_the_end = consumer.pull(queue, 50)
    assert at_the_end["status"] in ("NO_NEW_MSG", "OFFSET_ILLEGAL")
    full = consumer.pull(queue, 0, count=100)
    assert (len(full["messages"]), full["next"]) == (32, 32)


def test_stored_offset_is_read_back(java: JavaClients, cluster: Cluster, topic: str, group: str) -> None:
    queue = {"topic": topic, "broker": "broker-a", "queue": 1}
    java.producer(cluster.namesrv).send(topic, "x", queue=queue)
    consumer = java.pull(cluster.namesrv, group)
    consumer.set_offset(queue, 1)
    assert java.pull(cluster.namesrv, group).offset(queue) == 1


def test_many_messages_through_two_consumers(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    consumers = [java.push(cluster.namesrv, group, {topic: "*"}) for _ in range(2)]
    wait_for(lambda: share_queues(consumers, 4), "the queues to be shared", 15)
    java.producer(cluster.namesrv).send_async(numbered(topic, 2000))
    wait_together(consumers, {f"m{i}" for i in range(2000)})
    assert sum(bodies_of(*consumers).values()) == 2000
