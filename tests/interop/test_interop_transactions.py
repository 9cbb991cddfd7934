"""Transactional messages of the Java client: commit, rollback, check-back, restarts."""

from __future__ import annotations

from rig.clients import JavaClients, Producer
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


def transact(producer: Producer, topic: str, name: str, local: str) -> None:
    result = producer.send_in_transaction(topic, name, local, keys=name, tags="TX")
    assert (result["status"], result["localState"]) == ("SEND_OK", local)


def test_commit_delivers_and_rollback_does_not(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "TX"})
    producer = java.producer(cluster.namesrv, f"P{group}", checks={})
    for number in range(5):
        transact(producer, topic, f"yes{number}", COMMIT)
        transact(producer, topic, f"no{number}", ROLLBACK)
    transact(producer, topic, "last", COMMIT)
    wanted = [*(f"yes{i}" for i in range(5)), "last"]
    consumer.wait_bodies(wanted)
    assert sorted(consumer.bodies) == sorted(wanted)
    message = next(m for m in consumer.messages if m["body"] == "yes0")
    assert (message["topic"], message["keys"], message["tags"]) == (topic, "yes0", "TX")
    assert not producer.checks


def test_unknown_state_is_checked_until_decided(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    checks = {"soon": [COMMIT], "late": [UNKNOWN, COMMIT], "never": [ROLLBACK]}
    producer = java.producer(cluster.namesrv, f"P{group}", checks=checks)
    for name in checks:
        transact(producer, topic, name, UNKNOWN)
    consumer.wait_bodies(["soon", "late"], timeout=40)
    answers = [(check["keys"], check["answer"]) for check in producer.checks]
    assert [answer for name, answer in answers if name == "late"] == [UNKNOWN, COMMIT]
    assert [answer for name, answer in answers if name == "soon"] == [COMMIT]
    wait_for(
        lambda: ("never", ROLLBACK) in [(c["keys"], c["answer"]) for c in producer.checks],
        "the last check",
        30,
    )
    assert sorted(consumer.bodies) == ["late", "soon"]


def test_half_messages_survive_a_killed_broker(
    java: JavaClients, kind: str, foundry: Foundry, group: str
) -> None:
    cluster = foundry.cluster(kind).start()
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Half")
    checks = {f"c{i}": [UNKNOWN, UNKNOWN, UNKNOWN, COMMIT] for i in range(4)}
    quick = {"heartbeatBrokerInterval": 500, "pollNameServerInterval": 500}
    producer = java.producer(cluster.namesrv, f"P{group}", checks=checks, options=quick)
    transact(producer, topic, "done", COMMIT)
    transact(producer, topic, "undone", ROLLBACK)
    for name in checks:
        transact(producer, topic, name, UNKNOWN)
    cluster.broker.kill()
    cluster.broker.restart()
    wait_for(lambda: admin.route(topic), "the route after the restart")
    consumer = java.push(cluster.namesrv, group, {topic: "*"})
    consumer.wait_bodies(["done", *checks], timeout=60)
    assert sorted(set(consumer.bodies)) == sorted(["done", *checks])


def test_undecided_transaction_is_given_up_after_the_maximum_of_checks(
    java: JavaClients, kind: str, foundry: Foundry, group: str
) -> None:
    cluster = foundry.cluster(kind, transactionCheckMax="2", transactionCheckInterval="1000").start()
    admin = java.admin(cluster.namesrv)
    topic = admin.create_topic("Undecided")
    producer = java.producer(cluster.namesrv, f"P{group}", checks={"lost": [UNKNOWN] * 20})
    transact(producer, topic, "lost", UNKNOWN)
    queue = {"topic": GIVEN_UP, "broker": "broker-a", "queue": 0}
    wait_for(lambda: admin.route(GIVEN_UP) and admin.max_offset(queue) == 1, "the message to be given up", 40)
    (message,) = java.pull(cluster.namesrv, group).pull_all(queue)
    assert (message["body"], message["keys"]) == ("lost", "lost")
    assert len(producer.checks) == 2
