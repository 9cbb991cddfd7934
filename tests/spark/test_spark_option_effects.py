"""What options do, seen from the parts that obey them: no Spark runs here, but a broker does."""

from __future__ import annotations

import gc
import json
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_kit import BROKER, RunningBroker

from cometmq.errors import Timeout
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.record_cy import decode_records
from cometmq.spark.cluster import Route
from cometmq.spark.link import Link
from cometmq.spark.offsets import QueueOffsets, QueueRange, ranges_between
from cometmq.spark.options import ClusterOptions, ReadOptions, StoreOptions, WriteOptions
from cometmq.spark.pulls import DataLoss, RangeReader
from cometmq.spark.sending import Sender
from cometmq.spark.sink_rows import OutgoingMessage
from cometmq.spark.subscription import Subscription

pytestmark = pytest.mark.spark


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def read_options(broker: RunningBroker, topic: str, **more: Any) -> ReadOptions:
    return ReadOptions.parse({"nameServer": broker.name_server, "subscribe": topic, **more})


def by_queue(offsets: QueueOffsets) -> list[int]:
    return [offsets[queue] for queue in sorted(offsets)]


# -- where a read begins and ends ------------------------------------------------------------------------


def stored_times(broker: RunningBroker, topic: str) -> dict[tuple[int, int], int]:
    return {
        (message.queue_id, message.queue_offset): message.store_timestamp_ms
        for piece in broker.pieces(topic)
        for message in decode_records(piece.body)
    }


def test_each_queue_may_have_a_time_of_its_own(broker: RunningBroker, topic: str) -> None:
    broker.fill(topic, 40)
    times = stored_times(broker, topic)
    table = json.dumps({topic: {BROKER: {"1": times[1, 4], "3": times[3, 7]}}})

    def first_not_before(queue_id: int, instant: int) -> int:
        return min(at for (queue, at), time in times.items() if queue == queue_id and time >= instant)

    expected = {1: first_not_before(1, times[1, 4]), 3: first_not_before(3, times[3, 7])}
    starts = Subscription(read_options(broker, topic, startingOffsetsByTimestamp=table)).starting_offsets(
        "earliest"
    )
    assert by_queue(starts) == [0, expected[1], 0, expected[3]]
    ends = Subscription(read_options(broker, topic, endingOffsetsByTimestamp=table)).ending_offsets()
    assert by_queue(ends) == [10, expected[1], 10, expected[3]]


@pytest.mark.parametrize(("fallback", "expected"), [("earliest", [0] * 4), ("latest", [2] * 4)])
def test_group_without_offsets_begins_where_it_is_told(
    broker: RunningBroker, topic: str, fallback: str, expected: list[int]
) -> None:
    broker.fill(topic, 8)
    options = read_options(broker, topic, startingOffsets="group", group="G-new", groupFallback=fallback)
    assert by_queue(Subscription(options).starting_offsets("latest")) == expected


def test_offsets_are_kept_for_a_moment(broker: RunningBroker, topic: str) -> None:
    clock = Clock()
    subscription = Subscription(read_options(broker, topic, offsetPollMs="100"), clock)
    queue = MessageQueue(topic, BROKER, 0)
    assert subscription.bounds()[queue].max_offset == 0
    broker.send(topic, b"x")
    clock.now_ms = 99
    assert subscription.bounds()[queue].max_offset == 0
    clock.now_ms = 100
    assert subscription.bounds()[queue].max_offset == 1


def test_batch_waits_for_enough_messages_but_not_for_ever(broker: RunningBroker, topic: str) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from cometmq.spark.columns import BASIC, struct_type
    from cometmq.spark.stream_reader import StreamReader

    given = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s", "offsetPollMs": "0"}
    clock = Clock()
    reader = StreamReader(struct_type(BASIC), read_options(broker, topic, **given), clock)
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    broker.fill(topic, 9)
    assert reader.latestOffset(start, limit) == start
    assert reader.latestOffset(start, ReadAllAvailable()) != start
    clock.now_ms = 29_999
    assert reader.latestOffset(start, limit) == start
    clock.now_ms = 30_000
    first = reader.latestOffset(start, limit)
    assert sum(first[topic][BROKER].values()) == 9
    broker.fill(topic, 10, first=9)
    clock.now_ms = 30_001
    assert sum(reader.latestOffset(first, limit)[topic][BROKER].values()) == 19


# -- pulling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "in_flight"), [(1, 1), (7, 1), (1, 8), (32, 3), (1024, 8)])
def test_any_size_and_number_of_pulls_gives_the_same(
    broker: RunningBroker, topic: str, size: int, in_flight: int
) -> None:
    broker.fill(topic, 100)
    options = read_options(broker, topic, pullBatchSize=str(size), pullInFlight=str(in_flight))
    subscription = Subscription(options)
    ends = subscription.ending_offsets()
    ranges = ranges_between(dict.fromkeys(ends, 0), ends)
    pieces = list(RangeReader(options, subscription.addresses, ranges).pieces())
    assert all(piece.end - piece.start <= size for piece in pieces)
    found = [(piece.queue.queue_id, at) for piece in pieces for at in range(piece.start, piece.end)]
    assert found == [(queue_id, at) for queue_id in range(4) for at in range(25)]


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_pulls_have_a_time_limit(broker: RunningBroker, topic: str, silent: str) -> None:
    broker.fill(topic, 4)
    options = read_options(broker, topic, pullTimeoutMs="50", retries="0")
    ends = Subscription(read_options(broker, topic)).ending_offsets()
    reader = RangeReader(options, {BROKER: {0: silent}}, ranges_between(dict.fromkeys(ends, 0), ends))
    with pytest.raises(Timeout, match=f"{silent} did not answer in time"):
        list(reader.pieces())


@pytest.fixture
def shrunk(broker: RunningBroker, topic: str) -> list[QueueRange]:
    """Ranges that were planned before two of the queues, or all, went."""
    broker.fill(topic, 8)
    ends = Subscription(read_options(broker, topic)).ending_offsets()
    return ranges_between(dict.fromkeys(ends, 0), ends)


@pytest.mark.parametrize(("change", "left"), [("shrink", [0, 1]), ("delete", [])])
def test_queue_that_goes_between_planning_and_reading_is_data_loss(
    broker: RunningBroker, topic: str, shrunk: list[QueueRange], change: str, left: list[int]
) -> None:
    addresses = broker.cluster.route(topic).addresses
    if change == "shrink":
        broker.create_topic(topic, 2)
    else:
        broker.delete_topic(topic)
    with pytest.raises(DataLoss, match=r"is gone, and with it the messages \[0, 2\)\. Set failOnDataLoss"):
        list(RangeReader(read_options(broker, topic), addresses, shrunk).pieces())
    tolerant = RangeReader(read_options(broker, topic, failOnDataLoss="false"), addresses, shrunk)
    assert [piece.queue.queue_id for piece in tolerant.pieces()] == left
    assert tolerant.lost_count == 8 - 2 * len(left)


# -- sending ---------------------------------------------------------------------------------------------


def message(topic: str, body: bytes) -> OutgoingMessage:
    return OutgoingMessage(topic, body, b"UNIQ_KEY\x01id", 0, "id", 0, None, False)


def write_options(broker: RunningBroker, **more: str) -> WriteOptions:
    return WriteOptions.parse({"nameServer": broker.name_server, **more})


@pytest.mark.parametrize(("threshold", "flag"), [("0", 0), ("99", 0), ("90", 1)])
def test_bodies_are_compressed_from_a_size_on(
    broker: RunningBroker, topic: str, threshold: str, flag: int
) -> None:
    sender = Sender(write_options(broker, compressThreshold=threshold))
    sender.send(message(topic, b"x" * 98))
    sender.flush()
    stored = decode_records(broker.pieces(topic)[0].body)[0]
    assert (stored.sys_flag & 1, stored.body) == (flag, b"x" * 98)


def test_sends_have_a_time_limit(broker: RunningBroker, topic: str, silent: str) -> None:
    sender = Sender(write_options(broker, sendTimeoutMs="50", retries="0"))
    queue = MessageQueue(topic, BROKER, 0)
    sender._routes[topic] = Route(addresses={BROKER: {0: silent}}), [queue]
    sender.send(message(topic, b"x"))
    with pytest.raises(Timeout, match=f"{silent} did not answer in time"):
        sender.flush()


def test_a_task_has_its_share_of_the_rate(broker: RunningBroker, topic: str) -> None:
    import pyarrow as pa

    from cometmq.spark.writer import write_rows

    rows = pa.record_batch([pa.array([b"x"] * 40)], names=["body"])
    began = time.monotonic()
    write_rows(iter([rows]), write_options(broker, topic=topic, rate="160", rateTasks="4"))
    assert time.monotonic() - began > 0.9  # 40 rows at 40 a second
    assert len(broker.bodies(topic)) == 40


def test_security_token_is_sent_and_signed() -> None:
    from cometmq.protocol.codes import RequestCode
    from cometmq.protocol.command import RemotingCommand, decode_frame

    def fields(**more: str) -> dict[str, str]:
        keys = {"nameServer": "a:1", "accessKey": "ak", "secretKey": "sk"}
        link = Link("127.0.0.1:1", ClusterOptions.parse({**keys, **more}))
        link.post(RemotingCommand.request(RequestCode.HEART_BEAT))
        return decode_frame(link._waiting[0]).ext_fields or {}

    plain, tokened = fields(), fields(securityToken="st")
    assert "SecurityToken" not in plain
    assert (tokened["AccessKey"], tokened["SecurityToken"]) == ("ak", "st")
    assert tokened["Signature"] != plain["Signature"]


def test_what_is_loaded_is_left_out_of_later_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    from cometmq.spark import worker_garbage

    monkeypatch.setattr(worker_garbage, "_settled_pid", 0)
    gc.unfreeze()
    try:
        worker_garbage.settle()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        worker_garbage.settle()  # once in a process
        assert gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()


# -- store directories -----------------------------------------------------------------------------------


Scan = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def scan() -> Scan:
    """The rows of a store directory, without a JVM."""

    def rows(root: Path, **more: str) -> list[dict[str, Any]]:
        from cometmq.spark.columns import arrow_schema, chosen
        from cometmq.spark.store_slices import slices_of
        from cometmq.spark.store_source import KNOWN, StoreSource, scan_slice

        given = {"path": str(root), **more}
        options = StoreOptions.parse(given)
        schema = StoreSource(given).schema()
        log = None if options.commit_log_path is None else Path(options.commit_log_path)
        return [
            row
            for piece in slices_of(root, log, options.subscribe, options.slice_bytes)
            for batch in scan_slice(piece, chosen(schema, KNOWN), arrow_schema(schema), options)
            for row in batch.to_pylist()
        ]

    return rows


@pytest.fixture
def copied(broker: RunningBroker, topic: str, tmp_path: Path) -> Path:
    """A copy of the store with one more message, which is compressed."""
    broker.send(topic, zlib.compress(b"z" * 500), 0, {"KEYS": "k"}, sys_flag=1)
    return broker.copy_store(tmp_path / "copy")


def test_scan_shows_more_columns_and_bodies_as_they_are(copied: Path, topic: str, scan: Scan) -> None:
    (row,) = scan(copied, subscribe=topic, metadata="all", storeReadMode="snapshot")
    assert (row["valid"], row["problem"], row["body"], row["tags"]) == (True, None, b"z" * 500, None)
    assert row["bornHost"].startswith("127.0.0.1:")
    (row,) = scan(copied, subscribe=topic, decompress="false")
    assert zlib.decompress(row["body"]) == b"z" * 500
    assert "bornHost" not in row


def test_commit_log_may_stand_elsewhere(copied: Path, topic: str, tmp_path: Path, scan: Scan) -> None:
    elsewhere = (copied / "commitlog").rename(tmp_path / "elsewhere")
    (row,) = scan(copied, subscribe=topic, commitLogPath=str(elsewhere))
    assert row["keys"] == "k"


def test_checksums_are_checked_unless_told_not_to(
    broker: RunningBroker, topic: str, tmp_path: Path, scan: Scan
) -> None:
    broker.send(topic, b"a body that will be damaged")
    copy = broker.copy_store(tmp_path / "copy")
    for log in (copy / "commitlog").iterdir():
        data = log.read_bytes()
        if b"will be damaged" in data:
            log.write_bytes(data.replace(b"will be damaged", b"has been damage"))
    assert [row["valid"] for row in scan(copy, subscribe=topic)] == [False]
    (row,) = scan(copy, subscribe=topic, checkCrc="false")
    assert (row["valid"], row["body"]) == (True, b"a body that has been damage")
