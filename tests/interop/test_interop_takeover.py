"""Swapping the server: broker and clients go on when ours takes the place of Java's on the same store, and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rig.clients import JavaClients, PushConsumer
from rig.process import ServerProcess
from rig.saved import saved_offsets
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

QUICK = {"pollNameServerInterval": 500, "heartbeatBrokerInterval": 500}
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "flushConsumerOffsetInterval": "500",
}


class Swap:
    """One address and one store directory, served by one kind of broker after the other."""

    def __init__(self, foundry: Foundry, first: str) -> None:
        self.foundry = foundry
        self.nameserver = foundry.nameserver(first)
        self.root: Path = foundry.directory / "store"
        self.broker = self._broker(first)
        self.cluster = Cluster("swapped", [self.nameserver], [self.broker]).start()

    def _broker(self, kind: str, port: int = 0) -> ServerProcess:
        settings = {**SETTINGS, "listenPort": str(port)}
        return self.foundry.broker(kind, self.nameserver.address, store=self.root, **settings)

    def to(self, kind: str, ending: str) -> None:
        getattr(self.broker, ending)()
        self.broker = self._broker(kind, self.broker.port)
        self.cluster.brokers = [self.broker]
        self.cluster.start_brokers()


def consume_and_leave(java: JavaClients, namesrv: str, group: str, topic: str, count: int) -> list[str]:
    consumer: PushConsumer = java.push(namesrv, group, {topic: "*"}, options=QUICK)
    consumer.wait_consumed(count)
    consumer.stop()
    return sorted(consumer.bodies)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_java_goes_on_after_ours_and_ours_after_java(
    java: JavaClients, foundry: Foundry, group: str, ending: str
) -> None:
    first, second = "comet", "java"
    swap = Swap(foundry, first)
    namesrv = swap.cluster.namesrv
    admin = java.admin(namesrv)
    for topic in ("Plain", "Late", "Deal", "Fail"):
        admin.create_topic(topic)
    producer = java.producer(namesrv, options=QUICK)
    # the commit is sent one-way: a kill may come before it is stored, then the check decides
    checks = {"open": ["UNKNOW"] * 2 + ["COMMIT_MESSAGE"] * 9, "closed": ["COMMIT_MESSAGE"] * 9}
    dealer = java.producer(namesrv, f"P{group}", checks=checks, options=QUICK)

    producer.send_many({"topic": "Plain", "body": f"one{i}", "keys": f"k{i}"} for i in range(40))
    assert consume_and_leave(java, namesrv, group, "Plain", 40) == sorted(f"one{i}" for i in range(40))
    if ending == "kill":  # it keeps what is in its file
        wait_for(
            lambda: saved_offsets(swap.root, "Plain", group) == [10] * 4, "the offsets in consumerOffset.json"
        )
    producer.send_many({"topic": "Plain", "body": f"two{i}"} for i in range(8))
    producer.send("Late", "delayed", delay=2)
    dealer.send_in_transaction("Deal", "closed", "COMMIT_MESSAGE", keys="closed")
    dealer.send_in_transaction("Deal", "open", "UNKNOW", keys="open")

    swap.to(second, ending)
    producer.send_many({"topic": "Plain", "body": f"three{i}"} for i in range(8))
    wanted = {*(f"two{i}" for i in range(8)), *(f"three{i}" for i in range(8))}
    got = java.push(namesrv, group, {"Plain": "*"}, options=QUICK)
    got.wait_bodies(wanted)
    assert set(got.bodies) == wanted  # the group's offsets came over: nothing of the first forty
    got.stop()
    (found,) = admin.call("byKey", topic="Plain", key="k17", count=5, begin=0)
    assert found["body"] == "one17"
    late = java.push(namesrv, f"{group}L", {"Late": "*"}, options=QUICK)
    late.wait_bodies(["delayed"], timeout=40)
    deals = java.push(namesrv, f"{group}D", {"Deal": "*"}, options=QUICK)
    deals.wait_bodies(["closed", "open"], timeout=60)
    assert set(deals.bodies) == {"closed", "open"}
    assert late.bodies == ["delayed"]

    swap.to(first, ending)
    producer.send_many({"topic": "Plain", "body": f"four{i}"} for i in range(8))
    reader = java.push(namesrv, f"{group}R", {"Plain": "*"}, options=QUICK)
    everything = {f"one{i}" for i in range(40)} | wanted | {f"four{i}" for i in range(8)}
    reader.wait_bodies(everything)
    assert sorted(reader.bodies) == sorted(everything)


def test_a_copy_of_a_running_store_is_a_store(
    java: JavaClients, foundry: Foundry, tmp_path: Path, group: str
) -> None:
    """Files of our running broker, copied as they are, start in the Java broker: as after a power cut."""
    cluster = foundry.cluster("comet", **SETTINGS).start()
    java.admin(cluster.namesrv).create_topic("Copied")
    producer = java.producer(cluster.namesrv)
    producer.send_many({"topic": "Copied", "body": f"m{i}"} for i in range(200))
    root = tmp_path / "copy"
    topics = cluster.broker.directory / "store" / "config" / "topics.json"
    wait_for(lambda: topics.exists() and "Copied" in topics.read_text(), "the topic in topics.json")
    shutil.copytree(cluster.broker.directory / "store", root)
    nameserver = foundry.nameserver("java")
    broker = foundry.broker("java", nameserver.address, store=root, **SETTINGS)
    other = Cluster("java", [nameserver], [broker]).start()
    consumer = java.push(other.namesrv, group, {"Copied": "*"})
    consumer.wait_bodies(f"m{i}" for i in range(200))
    assert len(consumer.bodies) == 200
