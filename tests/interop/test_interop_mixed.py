"""Mixed clusters: our broker at Java's NameServer, Java's broker at ours, both brokers in one cluster."""

from __future__ import annotations

import pytest
from rig.clients import JavaClients
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

PAIRS = [("java", "comet"), ("comet", "java")]


@pytest.fixture(
    params=PAIRS, ids=[f"{broker}-broker-at-{nameserver}-nameserver" for nameserver, broker in PAIRS]
)
def mixed(request: pytest.FixtureRequest, foundry: Foundry) -> Cluster:
    nameserver_kind, broker_kind = request.param
    nameserver = foundry.nameserver(nameserver_kind)
    broker = foundry.broker(broker_kind, nameserver.address)
    return Cluster("mixed", [nameserver], [broker]).start()


def test_mixed_cluster_serves_java_clients(java: JavaClients, mixed: Cluster, group: str) -> None:
    admin = java.admin(mixed.namesrv)
    topic = admin.create_topic("Mixed")
    producer = java.producer(mixed.namesrv)
    first = java.push(mixed.namesrv, group, {topic: "A || B"})
    second = java.push(mixed.namesrv, group, {topic: "A || B"})
    wait_for(lambda: (len(first.queues()), len(second.queues())) == (2, 2), "two consumers to share", 15)
    producer.send_many({"topic": topic, "body": f"{tag}{i}", "tags": tag} for i in range(10) for tag in "ABC")
    wanted = {f"{tag}{i}" for i in range(10) for tag in "AB"}
    wait_for(lambda: {*first.bodies, *second.bodies} == wanted, "the selected messages")
    assert producer.send("AutoMixed", "creates a topic")["status"] == "SEND_OK"
    assert wait_for(lambda: admin.route("AutoMixed"), "the route of the automatic topic")
    listing = admin.mqadmin("clusterList")
    assert "broker-a" in listing
    assert mixed.broker.address in listing
    assert topic in admin.mqadmin("topicList")


def test_killed_broker_leaves_the_routes_at_once(java: JavaClients, mixed: Cluster) -> None:
    admin = java.admin(mixed.namesrv)
    topic = admin.create_topic("Leaving")
    mixed.broker.kill()
    wait_for(lambda: admin.route(topic) is None, "the route to go", 20)
    mixed.broker.restart()
    wait_for(lambda: admin.route(topic), "the route to come back", 40)
    mixed.broker.stop()
    wait_for(lambda: admin.route(topic) is None, "the route to go", 20)


@pytest.mark.parametrize("nameserver_kind", ["java", "comet"])
def test_brokers_of_both_kinds_in_one_cluster(
    java: JavaClients, foundry: Foundry, group: str, nameserver_kind: str
) -> None:
    nameserver = foundry.nameserver(nameserver_kind)
    brokers = [
        foundry.broker("java", nameserver.address, "broker-a"),
        foundry.broker("comet", nameserver.address, "broker-b"),
    ]
    cluster = Cluster("mixed", [nameserver], brokers).start()
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Both", queues=2)
    wait_for(lambda: len(admin.route(topic)["brokerDatas"]) == 2, "both brokers in the route")
    consumers = [java.push(cluster.namesrv, group, {topic: "*"}) for _ in range(2)]
    wait_for(
        lambda: [len(consumer.queues()) for consumer in consumers] == [2, 2], "the queues to be shared", 15
    )
    results = java.producer(cluster.namesrv).send_many({"topic": topic, "body": f"m{i}"} for i in range(40))
    assert {result["broker"] for result in results} == {"broker-a", "broker-b"}
    wanted = {f"m{i}" for i in range(40)}
    wait_for(lambda: {body for c in consumers for body in c.bodies} == wanted, "all messages")
