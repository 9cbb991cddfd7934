"""Looking messages up through the Java client: by key, unique key, id, offset and time."""

from __future__ import annotations

import time

import pytest
from rig.clients import Admin, JavaClients, Json
from rig.peer import JavaError
from rig.servers import Cluster
from rig.waiting import wait_for

QUERY_NOT_FOUND = 22
NO_MESSAGE = 208  # the client's own code


def queue(topic: str, number: int = 0) -> Json:
    return {"topic": topic, "broker": "broker-a", "queue": number}


@pytest.fixture
def sent(java: JavaClients, cluster: Cluster, topic: str) -> list[Json]:
    producer = java.producer(cluster.namesrv)
    return [
        producer.send(topic, f"m{i}", queue=queue(topic), keys=f"own{i} even{i % 2}", tags="A")
        for i in range(10)
    ]


def by_key(admin: Admin, topic: str, key: str, **window: int) -> list[str]:
    try:
        found = admin.call("byKey", topic=topic, key=key, count=32, **{"begin": 0, **window})
    except JavaError as e:
        if e.code not in (QUERY_NOT_FOUND, NO_MESSAGE):
            raise
        return []
    return sorted(message["body"] for message in found)


def test_by_key(admin: Admin, topic: str, sent: list[Json]) -> None:
    wait_for(lambda: by_key(admin, topic, "own9") == ["m9"], "the index to hold the last message")
    assert by_key(admin, topic, "own3") == ["m3"]
    assert by_key(admin, topic, "even1") == ["m1", "m3", "m5", "m7", "m9"]
    assert by_key(admin, topic, "own33") == []


def test_by_key_within_a_time_window(admin: Admin, topic: str, sent: list[Json]) -> None:
    wait_for(lambda: by_key(admin, topic, "own9") == ["m9"], "the index to hold the last message")
    (first,) = admin.call("byKey", topic=topic, key="own0", count=32, begin=0)
    stored = first["storeTimestamp"]
    assert by_key(admin, topic, "own0", begin=stored - 2000, end=stored + 2000) == ["m0"]
    assert by_key(admin, topic, "own0", begin=stored + 60_000, end=stored + 120_000) == []
    assert by_key(admin, topic, "own0", begin=stored - 120_000, end=stored - 60_000) == []


def test_by_unique_key(admin: Admin, topic: str, sent: list[Json]) -> None:
    def found() -> list[Json]:
        try:
            messages: list[Json] = admin.call("byUniqueKey", topic=topic, key=sent[4]["msgId"])
        except JavaError:
            return []
        return messages

    assert [m["body"] for m in wait_for(found, "the index to hold the message")] == ["m4"]
    got = admin.call("byIdInTopic", topic=topic, msgId=sent[4]["msgId"])
    assert (got["body"], got["offset"]) == ("m4", 4)


def test_by_offset_message_id(admin: Admin, topic: str, sent: list[Json]) -> None:
    got = admin.call("byId", msgId=sent[6]["offsetMsgId"])
    assert (got["body"], got["topic"], got["offset"]) == ("m6", topic, 6)
    assert got["offsetMsgId"] == sent[6]["offsetMsgId"]


def test_by_offset_message_id_that_is_no_message(admin: Admin, cluster: Cluster, sent: list[Json]) -> None:
    beyond = sent[6]["offsetMsgId"][:16] + "00FFFFFFFFFFFFFF"
    with pytest.raises(JavaError) as failure:
        admin.call("byId", msgId=beyond)
    assert "can not find message by the offset" in str(failure.value.cause or failure.value)


def test_offsets_of_a_queue(admin: Admin, topic: str, sent: list[Json]) -> None:
    assert admin.call("minOffset", **queue(topic)) == 0
    assert admin.call("maxOffset", **queue(topic)) == 10
    assert admin.call("maxOffset", **queue(topic, 3)) == 0
    (first,) = [admin.call("byId", msgId=sent[0]["offsetMsgId"])]
    assert admin.call("earliest", **queue(topic)) == first["storeTimestamp"]


def test_offset_by_time_at_the_boundaries(
    java: JavaClients, admin: Admin, cluster: Cluster, topic: str
) -> None:
    producer = java.producer(cluster.namesrv)
    times = []
    for number in range(3):
        result = producer.send(topic, f"t{number}", queue=queue(topic))
        times.append(admin.call("byId", msgId=result["offsetMsgId"])["storeTimestamp"])
        wait_for(lambda last=times[-1]: time.time() * 1000 > last + 2, "the clock to move on")
    assert admin.call("searchOffset", timestamp=times[0] - 1000, **queue(topic)) == 0
    assert [admin.call("searchOffset", timestamp=at, **queue(topic)) for at in times] == [0, 1, 2]
