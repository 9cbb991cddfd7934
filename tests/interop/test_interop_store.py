"""The files: the Java broker goes on with a store that we wrote, and we go on with what it left."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import raw
from rig.clients import JavaClients, Json, PullConsumer
from rig.rewriting import (
    FEATURES,
    SIZES,
    java_text_of_host,
    read_everything,
    store_config,
    write_again,
    write_broker_files,
)
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

from cometmq.protocol.message import MessageExt

VIEW_MESSAGE_BY_ID = 33
ADDED_BY_CLIENT = {"MIN_OFFSET", "MAX_OFFSET"}
FIELDS = [
    *("topic", "queue", "offset", "physicalOffset", "storeSize", "flag", "sysFlag", "reconsumeTimes"),
    *("preparedTransactionOffset", "bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "size", "crc"),
]
QUIET = {"transactionCheckInterval": "600000"}


def signature_of_ours(message: MessageExt) -> Json:
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "bornHost": java_text_of_host(message.born_host_bytes),
        "storeHost": java_text_of_host(message.store_host_bytes),
        "properties": dict(message.properties),
        "size": len(message.body),
        "crc": zlib.crc32(message.body) & 0x7FFFFFFF,
    }


def signature_of_java(message: Json) -> Json:
    properties = {k: v for k, v in message["properties"].items() if k not in ADDED_BY_CLIENT}
    return {**{name: message[name] for name in FIELDS}, "properties": properties}


def queues_of(messages: list[MessageExt]) -> list[Json]:
    """Every queue of the topics, also those that are empty so far."""
    last: dict[str, int] = {}
    for message in messages:
        last[message.topic] = max(last.get(message.topic, 0), message.queue_id)
    return [
        {"topic": topic, "broker": "broker-a", "queue": queue_id}
        for topic, count in sorted(last.items())
        for queue_id in range(count + 1)
    ]


def pull_everything(consumer: PullConsumer, queues: list[Json]) -> list[Json]:
    pulled = [signature_of_java(message) for queue in queues for message in consumer.pull_all(queue)]
    return sorted(pulled, key=lambda message: message["physicalOffset"])


def sorted_signatures(messages: list[MessageExt]) -> list[Json]:
    return sorted(map(signature_of_ours, messages), key=lambda message: message["physicalOffset"])


def java_on(foundry: Foundry, root: Path, **settings: str) -> Cluster:
    nameserver = foundry.nameserver("java")
    broker = foundry.broker("java", nameserver.address, store=root, **SIZES, **QUIET, **settings)
    return Cluster("java", [nameserver], [broker]).start()


def pending_delays(messages: list[MessageExt]) -> dict[int, int]:
    """Offsets as of a broker that has delivered all but the last message of level 1."""
    counts = Counter(message.queue_id for message in messages if message.topic == "SCHEDULE_TOPIC_XXXX")
    short = {queue_id + 1: count for queue_id, count in counts.items() if queue_id < 3}
    return {**short, 1: counts[0] - 1}


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_java_serves_what_we_wrote_and_we_read_what_it_appended(
    java: JavaClients, foundry: Foundry, tmp_path: Path, golden_store: Callable[[str], Path], ending: str
) -> None:
    root = tmp_path / "store"
    config = store_config(root)
    write_again(read_everything(store_config(golden_store("clean"))), config)
    ours = read_everything(config)
    assert len(ours) == 827
    write_broker_files(root, ours, pending_delays(ours))

    cluster = java_on(foundry, root)
    consumer = java.pull(cluster.namesrv)
    queues = queues_of(ours)
    before = sorted_signatures(ours)
    pulled = pull_everything(consumer, queues)
    assert pulled[: len(before)] == before
    assert_keys_are_indexed(java, cluster, ours)
    assert_found_by_physical_offset(cluster, ours)
    wait_for_delivery(consumer, ours)

    sent = append_with_java(java, cluster)
    appended = len(before) + 1 + sent
    wait_for(lambda: len(pull_everything(consumer, queues)) >= appended, "the appended messages")
    after = pull_everything(consumer, queues)
    consumer.stop()
    getattr(cluster.broker, ending)()

    found = sorted_signatures(read_everything(config))
    assert [m for m in found if m["topic"] != "RMQ_SYS_TRANS_OP_HALF_TOPIC"] == [
        m for m in after if m["topic"] != "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    ]


def assert_keys_are_indexed(java: JavaClients, cluster: Cluster, messages: list[MessageExt]) -> None:
    """Our index files answer Java's queries: one message of each topic that has keys, in each index file's range."""
    admin = java.admin(cluster.namesrv)
    with_keys = [m for m in messages if m.keys and not m.topic.startswith(("%", "SCHEDULE", "RMQ_SYS"))]
    by_topic = itertools.groupby(sorted(with_keys, key=lambda m: m.topic), key=lambda m: m.topic)
    for topic, group in by_topic:
        for message in list(group)[::50]:
            found = admin.call("byKey", topic=topic, key=message.keys[0], count=64, begin=0)
            assert message.physical_offset in [m["physicalOffset"] for m in found]


def assert_found_by_physical_offset(cluster: Cluster, messages: list[MessageExt]) -> None:
    for message in messages[::40]:
        fields = {"offset": str(message.physical_offset)}
        head, body = raw.invoke(cluster.broker.address, VIEW_MESSAGE_BY_ID, fields)
        assert head["code"] == 0
        (offset,) = struct.unpack_from(">q", body, 28)
        assert (len(body), offset) == (message.store_size, message.physical_offset)


def wait_for_delivery(consumer: PullConsumer, messages: list[MessageExt]) -> None:
    """The delayed message that was pending in our files is delivered by the Java broker."""
    waiting = [m for m in messages if m.topic == "SCHEDULE_TOPIC_XXXX" and m.queue_id == 0][-1]
    real = waiting.properties["REAL_TOPIC"], int(waiting.properties["REAL_QID"])
    queue = {"topic": real[0], "broker": "broker-a", "queue": real[1]}
    old = max(m.physical_offset for m in messages)
    wait_for(
        lambda: any(
            m["physicalOffset"] > old and m["size"] == len(waiting.body) for m in consumer.pull_all(queue)
        ),
        "the delayed message",
    )


def append_with_java(java: JavaClients, cluster: Cluster) -> int:
    """New messages of several kinds into topics that exist; more than fit into the current log file."""
    producer = java.producer(cluster.namesrv, options={"sendMsgTimeout": 10_000})
    plain = [{"topic": "TopicA", "body": f"java {i}", "keys": f"j{i}", "tags": "TagA"} for i in range(100)]
    big = [{"topic": "TopicFill", "body": "x" * 3000, "properties": {"n": str(i)}} for i in range(100)]
    results = producer.send_many([*plain, *big])
    assert {result.get("status") for result in results} == {"SEND_OK"}
    producer.send_batch({"topic": "TopicBatch", "body": f"b{i}"} for i in range(10))
    producer.send("TopicZip", size=50_000)
    return 211


def test_light_queues_and_extension_files_of_ours_work_in_java(
    java: JavaClients, foundry: Foundry, tmp_path: Path, golden_store: Callable[[str], Path]
) -> None:
    root = tmp_path / "store"
    config = store_config(root, features=True)
    write_again(read_everything(store_config(golden_store("features"), features=True)), config)
    ours = read_everything(config)
    write_broker_files(root, ours, {})
    cluster = java_on(foundry, root, **FEATURES)
    consumer = java.pull(cluster.namesrv)
    normal = [queue for queue in queues_of(ours) if not queue["topic"].startswith("%LMQ%")]
    assert pull_everything(consumer, normal) == sorted_signatures(ours)
    for name in ("alpha", "beta"):
        through = consumer.pull_all({"topic": f"%LMQ%{name}", "broker": "broker-a", "queue": 0})
        wanted = [
            m for m in ours if f"%LMQ%{name}" in m.properties.get("INNER_MULTI_DISPATCH", "").split(",")
        ]
        assert [m["physicalOffset"] for m in through] == [m.physical_offset for m in wanted]
