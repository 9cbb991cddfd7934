"""Java clients while servers die and come back: two NameServers, two brokers, restarts on the same store."""

from __future__ import annotations

from typing import Any

import pytest
from rig.clients import Admin, JavaClients
from rig.saved import saved_offsets
from rig.sending import SteadySender
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

# the defaults of 30 s would make these tests slow; users set them too
QUICK_CONSUMER = {"pollNameServerInterval": 500, "heartbeatBrokerInterval": 500}
QUICK = {**QUICK_CONSUMER, "sendMsgTimeout": 15_000}


@pytest.fixture
def two_nameservers(kind: str, foundry: Foundry) -> Cluster:
    return foundry.cluster(kind, nameservers=2).start()


@pytest.fixture
def two_brokers(kind: str, foundry: Foundry) -> Cluster:
    return foundry.cluster(kind, brokers=2).start()


def routes_everywhere(admin: Admin, cluster: Cluster, topics: list[str]) -> bool:
    return all(admin.peer_route(server.address, topic) for server in cluster.nameservers for topic in topics)


def test_clients_go_on_while_one_of_two_nameservers_dies_and_returns(
    java: JavaClients, two_nameservers: Cluster, group: str
) -> None:
    cluster = two_nameservers
    first, second = cluster.nameservers
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Survivor")
    other = admin.create_topic("Bystander")
    producer = java.producer(cluster.namesrv, options=QUICK)
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, options=QUICK_CONSUMER)
    with SteadySender(producer, topic) as sender:
        sender.wait_more(20)
        first.kill()
        sender.wait_more(20)
        late = java.producer(cluster.namesrv, "PG_late", options=QUICK)
        assert late.send(topic, "found the other NameServer")["status"] == "SEND_OK"
        first.restart()
        # the next registration round brings every topic back, also the ones that did not change
        wait_for(
            lambda: routes_everywhere(admin, cluster, [topic, other]),
            "routes at the restarted NameServer",
            45,
        )
        second.kill()
        sender.wait_more(20)
        last = java.producer(cluster.namesrv, "PG_last", options=QUICK)
        assert last.send(topic, "found the restarted NameServer")["status"] == "SEND_OK"
    assert not sender.failed
    wanted = {*sender.acknowledged, "found the other NameServer", "found the restarted NameServer"}
    consumer.wait_bodies(wanted)


def test_producers_go_on_with_the_other_broker(java: JavaClients, two_brokers: Cluster, group: str) -> None:
    cluster = two_brokers
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Pair", queues=2)
    wait_for(lambda: len(admin.route(topic)["brokerDatas"]) == 2, "both brokers in the route")
    producer = java.producer(cluster.namesrv, options=QUICK)
    used = {
        result["broker"] for result in producer.send_many({"topic": topic, "body": f"b{i}"} for i in range(8))
    }
    assert used == {"broker-a", "broker-b"}
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, options=QUICK_CONSUMER)
    consumer.wait_queues(4)
    with SteadySender(producer, topic) as sender:
        sender.wait_more(20)
        cluster.brokers[1].kill()
        sender.wait_more(60)
        wait_for(lambda: _brokers(admin, topic) == ["broker-a"], "the dead broker to leave the route", 20)
        cluster.brokers[1].restart()
        wait_for(
            lambda: _brokers(admin, topic) == ["broker-a", "broker-b"], "the broker to be back in the route"
        )
        sender.wait_more(20)
    # The client's own retries went to the other broker. A request that it writes in the very moment in which the
    # connection breaks waits for its whole timeout in Java's client and is not tried again: one at most.
    assert [failure["type"] for failure in sender.failed] in ([], ["RemotingTooMuchRequestException"])
    # nothing acknowledged is lost, not even by the killed broker
    consumer.wait_bodies({*sender.acknowledged, *(f"b{i}" for i in range(8))}, timeout=45)


def _brokers(admin: Admin, topic: str) -> list[str]:
    route: Any = admin.route(topic)
    return sorted(broker["brokerName"] for broker in route["brokerDatas"]) if route else []


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_messages_and_offsets_survive_a_restart(
    java: JavaClients, kind: str, foundry: Foundry, group: str, ending: str
) -> None:
    cluster = foundry.cluster(kind, flushConsumerOffsetInterval="500").start()
    broker = cluster.broker
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Lasting")
    producer = java.producer(cluster.namesrv, options=QUICK)
    producer.send_many({"topic": topic, "body": f"m{i}", "keys": f"k{i}"} for i in range(40))
    consumer = java.push(cluster.namesrv, group, {topic: "*"}, options={"persistConsumerOffsetInterval": 200})
    consumer.wait_consumed(40)
    consumer.stop()
    queues = [f"{topic}@broker-a@{number}" for number in range(4)]
    if ending == "kill":
        wait_for(
            lambda: saved_offsets(broker.directory / "store", topic, group) == [10] * 4,
            "the offsets in consumerOffset.json",
        )
    producer.send_many({"topic": topic, "body": f"n{i}"} for i in range(8))
    getattr(broker, ending)()
    broker.restart()
    wait_for(lambda: admin.route(topic), "the route after the restart")
    progress = admin.progress(group, topic)
    assert [progress[queue] for queue in queues] == [[12, 10]] * 4
    again = java.push(cluster.namesrv, group, {topic: "*"})
    again.wait_count(8)
    assert set(again.bodies) == {f"n{i}" for i in range(8)}
    (found,) = admin.call("byKey", topic=topic, key="k17", count=10, begin=0)
    assert found["body"] == "m17"
