"""Delayed messages of the Java client: on time, in place, also after a restart of the broker."""

from __future__ import annotations

from rig.clients import Admin, JavaClients
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

EARLY_MS_MAX = 10  # the broker's clock and the store time of the delayed copy may differ by a tick
LATE_MS_MAX = 20_000  # a loaded test machine; the tight bound is measured elsewhere


def test_delayed_messages_arrive_after_their_delay(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_queues(4)
    producer = java.producer(cluster.namesrv)
    results = {
        level: producer.send(topic, f"level{level}", delay=level, keys="late", tags="D") for level in (1, 2)
    }
    producer.send(topic, "at once")
    messages = {m["body"]: m for m in consumer.wait_bodies(["level1", "level2", "at once"])}
    for level, delay_ms in ((1, 1000), (2, 2000)):
        message = messages[f"level{level}"]
        late_ms = message["storeTimestamp"] - message["bornTimestamp"] - delay_ms
        assert -EARLY_MS_MAX <= late_ms < LATE_MS_MAX, late_ms
        assert (message["topic"], message["keys"], message["tags"]) == (topic, "late", "D")
        assert message["properties"]["DELAY"] == str(level)
        assert message["uniqKey"] == results[level]["msgId"]
        assert "REAL_TOPIC" in message["properties"]
    assert [m["body"] for m in consumer.messages] == ["at once", "level1", "level2"]


def test_levels_beyond_the_last_are_the_last(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str
) -> None:
    last = {"topic": "SCHEDULE_TOPIC_XXXX", "broker": "broker-a", "queue": 17}
    before = admin.max_offset(last)
    java.producer(cluster.namesrv).send(topic, "in two hours", delay=99)
    assert admin.max_offset(last) == before + 1


def test_pending_delays_survive_a_killed_broker(
    java: JavaClients, kind: str, foundry: Foundry, group: str
) -> None:
    cluster = foundry.cluster(kind).start()
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Pending")
    producer = java.producer(cluster.namesrv)
    for number in range(20):
        producer.send(topic, f"m{number}", delay=2)
    cluster.broker.kill()
    cluster.broker.restart()
    wait_for(lambda: admin.route(topic), "the route after the restart")
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_bodies(f"m{i}" for i in range(20))
    assert all(m["storeTimestamp"] - m["bornTimestamp"] >= 5000 - EARLY_MS_MAX for m in consumer.messages)
