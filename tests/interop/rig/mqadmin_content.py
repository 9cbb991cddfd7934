"""The same content in each cluster, before mqadmin looks at it."""

from __future__ import annotations

import time
from pathlib import Path

from .clients import JavaClients, Json
from .servers import Cluster
from .waiting import wait_for

TRACE_SECONDS_MAX = 60

QUICK = {
    "persistConsumerOffsetInterval": 200,
    "pollNameServerInterval": 1000,
    "heartbeatBrokerInterval": 1000,
}


def queue(topic: str, number: int) -> Json:
    return {"topic": topic, "broker": "broker-a", "queue": number}


def prepare(java: JavaClients, cluster: Cluster, directory: Path) -> dict[str, str]:
    """Fill the cluster; returns the values for the placeholders of the command lines."""
    begin = int(time.time() * 1000) - 1000
    admin = java.admin(cluster.namesrv)
    for topic, queues in (("AdmOrders", 4), ("AdmOther", 2), ("AdmEmpty", 1), ("AdmTraced", 1)):
        admin.create_topic(topic, queues)
    for group in ("AdmConsumers", "AdmOffline", "AdmTraceConsumers"):
        java.known_group(cluster.namesrv, group, "AdmEmpty", queues=1)
    producer = java.producer(cluster.namesrv, "AdmProducers")
    sent = [
        producer.send(
            "AdmOrders", f"body {i}", queue=queue("AdmOrders", i % 4), keys=f"own{i} all", tags="AB"[i % 2]
        )
        for i in range(12)
    ]
    for number in range(2):
        producer.send("AdmOther", f"other {number}", queue=queue("AdmOther", number))
    _consume(java, cluster, "AdmConsumers", "AdmOrders", 12)
    consumer = java.push(cluster.namesrv, "AdmConsumers", {"AdmOrders": "A || B"}, options=QUICK)
    consumer.wait_queues(4)
    _offline_group(java, cluster)
    return {
        "broker": cluster.broker.address,
        "namesrv": cluster.namesrv,
        "client": consumer.client_id,
        "begin": str(begin),
        "offset_id": sent[5]["offsetMsgId"],
        "missing_id": sent[5]["offsetMsgId"][:16] + "00FFFFFFFFFFFFFF",
        "unique_key": sent[5]["msgId"],
        "traced": _traced(java, cluster),
        "dir": str(directory),
        "broker_home": str(cluster.broker.directory),
        "namesrv_home": str(cluster.nameservers[0].directory),
    }


def _consume(java: JavaClients, cluster: Cluster, group: str, topic: str, count: int) -> None:
    """Consume and leave: a consumer that stops stores its offsets at once, a running one after 10 s."""
    consumer = java.push(cluster.namesrv, group, {topic: "A || B"})
    consumer.wait_consumed(count)
    consumer.stop()


def _offline_group(java: JavaClients, cluster: Cluster) -> None:
    puller = java.pull(cluster.namesrv, "AdmOffline")
    for number in range(4):
        puller.set_offset(queue("AdmOrders", number), 1)
    puller.stop()


def _traced(java: JavaClients, cluster: Cluster) -> str:
    """The id of a message whose trace is stored; a client that stops may leave its last records unsent."""
    producer = java.producer(cluster.namesrv, "AdmTraceProducers", trace=True)
    sent = producer.send("AdmTraced", "traced", keys="k", tags="A")
    consumer = java.push(cluster.namesrv, "AdmTraceConsumers", {"AdmTraced": "A || B"}, trace=True)
    consumer.wait_consumed(1)
    admin, message_id = java.admin(cluster.namesrv), str(sent["msgId"])

    def is_shown() -> bool:
        printed = admin.mqadmin("queryMsgTraceById", "-i", message_id)
        return "AdmTraceProducers" in printed and "AdmTraceConsumers" in printed

    wait_for(is_shown, "the trace of producer and consumer", TRACE_SECONDS_MAX)
    consumer.stop()
    return message_id
