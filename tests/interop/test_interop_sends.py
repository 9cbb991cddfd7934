"""Every way in which the Java producer sends, and what it reads back."""

from __future__ import annotations

from typing import Any

import pytest
from rig.clients import Admin, JavaClients, Json, Producer
from rig.peer import JavaError
from rig.servers import Cluster
from rig.waiting import wait_for

COMPRESSED_FLAG = 0x1
MESSAGE_ILLEGAL = 13
NO_ROUTE = 10005  # the client's own code


def read_all(java: JavaClients, cluster: Cluster, topic: str) -> list[Json]:
    consumer = java.pull(cluster.namesrv)
    return [message for queue in consumer.queues(topic) for message in consumer.pull_all(queue)]


def queue(topic: str, number: int) -> Json:
    return {"topic": topic, "broker": "broker-a", "queue": number}


@pytest.fixture
def producer(java: JavaClients, cluster: Cluster) -> Producer:
    return java.producer(cluster.namesrv, options={"sendMsgTimeout": 10_000})


def test_sync_sends_are_stored_with_growing_offsets(
    java: Any, cluster: Cluster, topic: str, producer: Any
) -> None:
    results = [producer.send(topic, f"m{i}", queue=queue(topic, 2), tags="A", keys=f"k{i}") for i in range(5)]
    assert [result["status"] for result in results] == ["SEND_OK"] * 5
    assert [result["queueOffset"] for result in results] == list(range(5))
    assert {result["queue"] for result in results} == {2}
    got = read_all(java, cluster, topic)
    assert [(m["body"], m["keys"], m["tags"], m["offset"]) for m in got] == [
        (f"m{i}", f"k{i}", "A", i) for i in range(5)
    ]
    assert [m["uniqKey"] for m in got] == [result["msgId"] for result in results]
    assert [m["offsetMsgId"] for m in got] == [result["offsetMsgId"] for result in results]


def test_round_robin_reaches_every_queue(topic: str, producer: Producer) -> None:
    results = producer.send_many({"topic": topic, "body": str(i)} for i in range(8))
    assert sorted(result["queue"] for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_async_sends_all_arrive(java: Any, cluster: Cluster, topic: str, producer: Producer) -> None:
    results = producer.send_async({"topic": topic, "body": f"a{i}"} for i in range(200))
    assert {result["status"] for result in results} == {"SEND_OK"}
    assert len({result["offsetMsgId"] for result in results}) == 200
    assert sorted(m["body"] for m in read_all(java, cluster, topic)) == sorted(f"a{i}" for i in range(200))


def test_oneway_sends_are_readable_later(java: Any, cluster: Cluster, topic: str, producer: Producer) -> None:
    producer.send_oneway({"topic": topic, "body": f"o{i}"} for i in range(20))
    bodies = wait_for(
        lambda: (got := read_all(java, cluster, topic)) and len(got) == 20 and {m["body"] for m in got},
        "20 one-way messages",
    )
    assert bodies == {f"o{i}" for i in range(20)}


def test_batch_gets_adjacent_offsets_and_joined_ids(
    java: Any, cluster: Cluster, topic: str, producer: Any
) -> None:
    batch = [{"topic": topic, "body": f"b{i}", "tags": f"T{i % 3}", "keys": f"k{i}"} for i in range(32)]
    result = producer.send_batch(batch)
    assert result["status"] == "SEND_OK"
    ids = result["msgId"].split(",")
    offset_ids = result["offsetMsgId"].split(",")
    assert (len(ids), len(offset_ids)) == (32, 32)
    got = read_all(java, cluster, topic)
    assert [m["offset"] for m in got] == list(range(32))
    assert {m["queue"] for m in got} == {result["queue"]}
    assert [(m["body"], m["tags"], m["keys"]) for m in got] == [
        (m["body"], m["tags"], m["keys"]) for m in batch
    ]
    assert [m["uniqKey"] for m in got] == ids
    assert [m["offsetMsgId"] for m in got] == offset_ids


def test_compressed_body_comes_back_whole(
    java: Any, cluster: Cluster, topic: str, producer: Producer
) -> None:
    producer.send(topic, size=100_000)
    producer.send(topic, size=1_000)
    got = {m["size"]: m for m in read_all(java, cluster, topic)}
    assert got[100_000]["sysFlag"] & COMPRESSED_FLAG
    assert got[100_000]["storeSize"] < 10_000
    assert not got[1_000]["sysFlag"] & COMPRESSED_FLAG


def test_unicode_flag_and_properties_survive(
    java: Any, cluster: Cluster, topic: str, producer: Producer
) -> None:
    properties = {"größe": "große Straße", "emoji": "🚀", "a b": "c;d=e", "long": "x" * 5000}
    sent = {"tags": "标签", "keys": "schlüssel 键", "flag": 0x1234, "properties": properties, "wait": False}
    producer.send(topic, "Körper 消息 🚀", **sent)
    (got,) = read_all(java, cluster, topic)
    assert (got["body"], got["tags"], got["keys"], got["flag"]) == (
        "Körper 消息 🚀",
        "标签",
        "schlüssel 键",
        0x1234,
    )
    assert {name: got["properties"].get(name) for name in properties} == properties
    assert "WAIT" not in got["properties"]  # spent at the broker


def test_vip_port_takes_sends(java: JavaClients, cluster: Cluster, topic: str) -> None:
    producer = java.producer(cluster.namesrv, options={"vipChannelEnabled": True})
    result = producer.send(topic, "through the fast port")
    assert result["status"] == "SEND_OK"
    assert [m["body"] for m in read_all(java, cluster, topic)] == ["through the fast port"]


def test_ordering_key_goes_to_one_queue(java: Any, cluster: Cluster, topic: str, producer: Producer) -> None:
    for key in ("order-1", "order-2", "order-3"):
        results = [producer.send(topic, f"{key}/{i}", orderingKey=key) for i in range(4)]
        assert len({result["queue"] for result in results}) == 1
    got = read_all(java, cluster, topic)
    for key in ("order-1", "order-2", "order-3"):
        assert [m["body"] for m in got if m["body"].startswith(key)] == [f"{key}/{i}" for i in range(4)]


def test_largest_body_is_taken_and_a_larger_one_refused(
    java: JavaClients, cluster: Cluster, topic: str, producer: Producer
) -> None:
    limit = 4 << 20
    loose = java.producer(
        cluster.namesrv,
        "PG_loose",
        options={
            "maxMessageSize": 2 * limit,
            "compressMsgBodyOverHowmuch": 3 * limit,
            "sendMsgTimeout": 10_000,
        },
    )
    assert loose.send(topic, size=limit)["status"] == "SEND_OK"
    with pytest.raises(JavaError) as failure:
        loose.send(topic, size=limit + 1)
    assert failure.value.code == MESSAGE_ILLEGAL
    assert [m["size"] for m in read_all(java, cluster, topic)] == [limit]


def test_first_send_creates_the_topic(java: JavaClients, cluster: Cluster, admin: Admin, group: str) -> None:
    new = f"Auto{group}"
    producer = java.producer(cluster.namesrv, options={"defaultTopicQueueNums": 3})
    assert producer.send(new, "first")["status"] == "SEND_OK"
    route = wait_for(lambda: admin.route(new), f"the route of {new}")
    assert [(q["readQueueNums"], q["writeQueueNums"], q["perm"]) for q in route["queueDatas"]] == [(3, 3, 6)]
    assert [m["body"] for m in read_all(java, cluster, new)] == ["first"]


def test_send_to_a_system_topic_is_refused(producer: Producer) -> None:
    with pytest.raises(JavaError):
        producer.send("SCHEDULE_TOPIC_XXXX", "no")


def test_queue_id_out_of_range_is_refused(topic: str, producer: Producer) -> None:
    with pytest.raises(JavaError) as failure:
        producer.send(topic, "nowhere", queue=queue(topic, 9))
    assert failure.value.code == 1
    assert "queueId[9]" in str(failure.value)


def test_result_tells_region_and_trace_switch(topic: str, producer: Producer) -> None:
    result = producer.send(topic, "x")
    assert (result["regionId"], result["traceOn"]) == ("DefaultRegion", True)


def test_read_only_topic_has_no_route_for_sending(
    java: JavaClients, cluster: Cluster, admin: Admin, topic: str, producer: Producer
) -> None:
    producer.send(topic, "before")
    printed = admin.mqadmin("updateTopicPerm", "-b", cluster.broker.address, "-t", topic, "-p", "4")
    assert "from 6 to 4" in printed
    with pytest.raises(JavaError) as failure:
        java.producer(cluster.namesrv).send(topic, "after")
    assert failure.value.code == NO_ROUTE
    assert [m["body"] for m in read_all(java, cluster, topic)] == ["before"]
