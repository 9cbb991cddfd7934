"""The compiled way of waiting messages equals the written-down one, and both twins equal each other."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_broker import eventually, live_broker
from message_kit import StoppedClock
from twins import load_twin

from cometmq.broker import redelivery
from cometmq.broker.broker import Broker
from cometmq.broker.timers import HOP_MS_MIN, HOPS_MS
from cometmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from cometmq.protocol.record_cy import encode_record
from cometmq.store.model import StoreMessage

V4, V6 = bytes((127, 0, 0, 1, 0, 0, 42, 159)), bytes(range(16)) + b"\0\0\x2a\x9f"
TOPICS = ["TopicA", "TopicB", "%RETRY%Group", "T" * 127, "tópico", "RMQ_SYS_TRANS_HALF_TOPIC", "Rare"]
NOW_MS = 1_800_000_000_000


def random_message(chance: random.Random, number: int) -> tuple[StoreMessage, dict[str, str]]:
    properties = {"UNIQ_KEY": f"{number:032d}", "KEYS": f"k{number}", "TAGS": chance.choice(["", "t", "ünï"])}
    if chance.random() < 0.2:
        properties["INNER_MULTI_DISPATCH"] = chance.choice(["%LMQ%a", "%LMQ%a,%LMQ%b", "TopicB"])
    topic = TOPICS[min(int(chance.expovariate(0.7)), len(TOPICS) - 1)]
    message = StoreMessage(
        topic=topic,
        queue_id=chance.choice([0, 0, 1, 3, 15, 16, 40, 70_000]),
        body=chance.randbytes(chance.choice([0, 1, 100, 5_000])),
        flag=chance.randrange(100),
        sys_flag=chance.choice([0, 1, 8]),
        born_timestamp_ms=NOW_MS - number,
        born_host=chance.choice([V4, V6]),
        store_host=chance.choice([V4, V6]),
        reconsume_times=chance.randrange(3),
    )
    return message, properties


async def delivered_log(directory: Path, seed: int, *, timed: bool, multi: bool) -> list[Any]:
    """Everything that a broker wrote while it delivered the same random messages."""
    clock, chance = StoppedClock(), random.Random(seed)
    clock.ms = NOW_MS
    settings = {"enable_lmq": multi, "enable_multi_dispatch": multi, "mapped_file_size_commit_log": 1 << 20}
    async with live_broker(directory, clock=clock, **settings) as live:
        broker = live.broker
        for number in range(150):
            message, properties = random_message(chance, number)
            properties |= {"TIMER_DELAY_MS": str(chance.randrange(1, 400))} if timed else {"DELAY": "1"}
            waits = broker.timers if timed else broker.delay
            assert waits.divert(message, properties)
            assert broker.store.put(message).ok
        for _ in range(30):
            clock.ms += 50
            await eventually(lambda: all(_quiet(q, clock.ms) for q in _queues(broker)))
        await eventually(lambda: broker.delay.pending == broker.timers.pending == 0)
        return _by_message(broker) if timed else _whole_log(broker)


def _queues(broker: Broker) -> list[Any]:
    return [*broker.delay.queues.values(), *broker.timers.queues.values()]


def _quiet(queue: Any, ms: int) -> bool:
    return queue.pending == 0 or (queue._due_ms is not None and queue._due_ms > ms)


def _whole_log(broker: Broker) -> list[bytes]:
    parts: list[bytes] = []
    offset = broker.store.min_physical_offset
    while offset < broker.store.max_physical_offset:
        part = broker.store.read_log(offset, 1 << 20)
        assert part is not None
        parts.append(bytes(part))
        offset += len(part)
    return parts


def _by_message(broker: Broker) -> list[Any]:
    """Per queue what came, without offsets: the order between messages of different delays is not fixed."""
    found: list[Any] = []
    for topic in broker.store.topics_on_disk():
        for queue_id in broker.store.queue_ids(topic) if topic != TIMER_TOPIC else ():
            entries = broker.store.queue_entries(topic, queue_id, 0, broker.store.max_offset(topic, queue_id))
            for entry in entries:
                record = bytearray(broker.store.read_record(entry.physical_offset) or b"")
                record[20:36] = bytes(16)
                found.append((topic, queue_id, entry.tags_code, bytes(record)))
    return sorted(found)


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_both_ways_write_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool, multi: bool
) -> None:
    for seed in range(2):
        fast = asyncio.run(delivered_log(tmp_path / f"fast{seed}", seed, timed=timed, multi=multi))
        with monkeypatch.context() as patch:
            patch.setattr(redelivery.Redelivery, "deliver", lambda *_: redelivery.NOTHING)
            slow = asyncio.run(delivered_log(tmp_path / f"slow{seed}", seed, timed=timed, multi=multi))
        assert len(fast) == len(slow)
        assert fast == slow


# -- the twins ---------------------------------------------------------------------------------------------------

texts = st.sampled_from(
    [
        b"REAL_TOPIC\x01TopicA", b"REAL_TOPIC\x01", b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC", b"REAL_TOPIC\x01Gone",
        b"REAL_TOPIC\x01t\xc3\xb3pico", b"REAL_QID\x010", b"REAL_QID\x013", b"REAL_QID\x0199", b"REAL_QID\x01x",
        b"REAL_QID\x01-1", b"REAL_QID\x010000000001", b"TIMER_OUT_MS\x011000", b"TIMER_OUT_MS\x015000",
        b"TIMER_OUT_MS\x0199999999999999999999", b"INNER_MULTI_DISPATCH\x01a", b"a\x01b", b"nonsense", b"",
    ]
)  # fmt: skip
usual = [b"REAL_TOPIC\x01TopicA", b"REAL_QID\x011", b"TIMER_OUT_MS\x011500"]
records = st.builds(
    lambda first, more, body, hosts, stored_ms: encode_record(
        topic=SCHEDULE_TOPIC.encode(),
        body=body,
        properties=b"\x02".join([*(usual if first else []), *more]),
        born_host=hosts[0],
        store_host=hosts[1],
        store_timestamp_ms=stored_ms,
        flag=7,
        born_timestamp_ms=5,
        reconsume_times=2,
        prepared_transaction_offset=9,
    ),
    st.integers(0, 3),
    st.lists(texts, max_size=4),
    st.binary(max_size=40),
    st.tuples(st.sampled_from([V4, V6]), st.sampled_from([V4, V6])),
    st.integers(0, 3_000),
)
damages = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


def run_twin(
    kind: str, log: bytes, entries: bytes, now_ms: int, *, timed: bool, multi: bool, room: int
) -> tuple[Any, ...]:
    module = load_twin("cometmq.broker.redelivery_cy", kind)
    offsets = [memoryview(bytearray(8 * 4)).cast("q"), memoryview(bytearray(8 * 22)).cast("q")]
    targets = {b"TopicA": module.Target(offsets[0]), b"timers": module.Target(offsets[1])}
    plan = module.Plan(1_000, timed, b"timers", HOP_MS_MIN, len(HOPS_MS), 30, multi)
    out = bytearray(room)
    done = module.redeliver(
        entries, 0, len(entries), log, 1_000, 1_000 + len(log), out, 3, room, 50_000, now_ms, plan, targets
    )
    counts = [target.take_counts() for target in targets.values()]
    return tuple(done), bytes(out), [list(part) for part in offsets], counts


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(records, st.integers(-5, 4_000)), max_size=8),
    damages,
    damages,
    st.integers(0, 4_000),
    st.booleans(),
    st.booleans(),
    st.sampled_from([3, 200, 2_000]),
)
def test_twins_agree_on_good_and_damaged_records(
    stored: list[tuple[bytes, int]],
    log_damages: list[tuple[int, int]],
    entry_damages: list[tuple[int, int]],
    now_ms: int,
    timed: bool,
    multi: bool,
    room: int,
) -> None:
    log, entries = bytearray(), bytearray()
    for record, code in stored:
        entries += struct.pack(">qiq", 1_000 + len(log), len(record), code)
        log += record
    for data, places in ((log, log_damages), (entries, entry_damages)):
        for at, value in places:
            if at < len(data):
                data[at] = value
    results = [
        run_twin(kind, bytes(log), bytes(entries), now_ms, timed=timed, multi=multi, room=room)
        for kind in ("py", "c")
    ]
    assert results[0] == results[1]


def test_ranges_outside_of_the_buffers_are_errors() -> None:
    module = load_twin("cometmq.broker.redelivery_cy", "c")
    plan = module.Plan(1_000, False, b"timers", HOP_MS_MIN, len(HOPS_MS), 30, False)
    for start, end, log_end, limit in ((-1, 20, 10, 10), (0, 40, 10, 10), (0, 20, 11, 10), (0, 20, 10, 11)):
        with pytest.raises(ValueError, match="is not inside"):
            module.redeliver(
                bytes(20), start, end, bytes(10), 0, log_end, bytearray(10), 0, limit, 0, 0, plan, {}
            )
