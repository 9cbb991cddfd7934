"""The Go client (apache/rocketmq-client-go v2) against both kinds of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.build import Unavailable
from rig.clients import JavaClients
from rig.go_peer import GoPeer, build_go
from rig.servers import Cluster
from rig.waiting import wait_for

pytestmark = pytest.mark.timeout(300)  # the first run compiles the client

GoClient = Callable[..., GoPeer]
PLAIN = [f"{kind}{i}" for kind in ("sync", "async", "oneway", "batch", "ordered") for i in range(5)]


@pytest.fixture(scope="session")
def go_binary() -> Path:
    try:
        return build_go()
    except Unavailable as reason:
        pytest.skip(f"the Go client needs Go and its modules: {reason}")


@pytest.fixture
def go(go_binary: Path) -> Iterator[GoClient]:
    started: list[GoPeer] = []

    def start(*arguments: str) -> GoPeer:
        started.append(GoPeer(go_binary, *arguments))
        return started[-1]

    yield start
    for peer in started:
        peer.close()


def test_go_sends_and_consumes_every_kind(go: GoClient, cluster: Cluster, topic: str, group: str) -> None:
    consumer = go("consume", cluster.namesrv, topic, group)
    consumer.wait_for("started", True)
    sender = go("send", cluster.namesrv, topic, f"P{group}")
    sender.wait_for("done", True)
    assert not sender.values("error")
    assert set(sender.values("status")) == {0}
    assert len({line["queue"] for line in sender.lines if line.get("sent") == "ordered"}) == 1
    consumer.wait_for("body", *PLAIN, "delayed", "commit")
    consumer.wait(
        lambda lines: any(line.get("body", "").startswith("large ") for line in lines), "the large one"
    )
    sender.wait_for("checked", "later", timeout=40)
    consumer.wait_for("body", "later")
    assert "rollback" not in consumer.values("body")
    assert {line["tags"] for line in consumer.lines if "body" in line} == {"A"}
    ordered = [body for body in consumer.values("body") if body.startswith("ordered")]
    assert sorted(ordered) == [f"ordered{i}" for i in range(5)]


def test_go_and_java_share_a_group(
    go: GoClient, java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    javan = java.push(cluster.namesrv, group, {topic: "*"})
    javan.wait_queues(4)
    gopher = go("consume", cluster.namesrv, topic, group)
    gopher.wait_for("started", True)
    wait_for(lambda: len(javan.queues()) == 2, "the Java consumer to give up two queues", 30)
    wanted = {f"m{i}" for i in range(40)}
    producer = java.producer(cluster.namesrv)
    producer.send_many({"topic": topic, "body": f"m{i}"} for i in range(40))
    wait_for(lambda: {*javan.bodies, *gopher.values("body")} == wanted, "all messages at the group", 40)
    assert javan.bodies
    assert gopher.values("body")


def test_go_consumer_retries(
    go: GoClient, java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    java.known_group(cluster.namesrv, group, topic)
    consumer = go("consume", cluster.namesrv, topic, group)
    consumer.wait_for("started", True)
    java.producer(cluster.namesrv).send(topic, "retry me")
    consumer.wait_for("reconsumeTimes", 0, 1, timeout=45)
