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

    text = wait_for(
        lambda: (found := printed()) and "Pub" in found and f"{group} " in found and found,
        "both sides of the trace",
        20,
    )
    assert f"P{group}" in text
    assert "success" in text
    assert "#ConsumerGroup" in text.replace("#Consumer Group", "#ConsumerGroup")
