"""Message trace: Java producers and consumers write it, mqadmin reads it."""

from __future__ import annotations

from rig.clients import Admin, JavaClients
from rig.servers import Cluster
from rig.waiting import wait_for


def test_trace_shows_who_sent_and_who_consumed(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, trace=True)
    producer = java.producer(cluster.namesrv, f"P{group}", trace=True)
    sent = producer.send(topic, "traced", keys="k1", tags="A")
    consumer.wait_bodies(["traced"])

    def printed() -> str:
        return admin.mqadmin("queryMsgTraceById", "-i", sent["msgId"])

    def both_sides() -> str:
        text = printed()
        return text if "Pub " in text and "Sub " in text else ""

    text = wait_for(both_sides, "the records of the producer and of the consumer", 60)
    rows = [line.split() for line in text.splitlines() if line.startswith(("Pub ", "Sub "))]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("Pub", f"P{group}", "success"),
        ("Sub", group, "success"),
    ]
