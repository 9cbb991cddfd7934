"""Both ways of a pull are the same: equal pulls give equal frames, and damage is left to the long way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins import load_twin

from cometmq.broker.pull_filter import TagFilter
from cometmq.protocol.pull_frames import encode_pull_head
from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue import ConsumeQueue, QueueEntry
from cometmq.store.model import StoreMessage
from cometmq.store.store import MessageStore

TOPIC = "TopicA"
TAGS = ("", "red", "green", "blue")
CODES = {tag: sum(ord(letter) * 31 ** (len(tag) - 1 - at) for at, letter in enumerate(tag)) for tag in TAGS}
OPAQUE, SUGGEST = 77, 1
PLAIN_SIZE_MAX = 128 << 10  # longer answers go the long way

messages = st.lists(
    st.tuples(st.sampled_from([0, 0, 1]), st.sampled_from(TAGS), st.sampled_from([0, 10, 900, 70_000])),
    min_size=1,
    max_size=60,
)
damages = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 30), st.sampled_from(["blank", "zero", "other", "size", "negative", "far"])),
)


def fill(store: MessageStore, wanted: list[tuple[int, str, int]]) -> None:
    for number, (queue_id, tag, size) in enumerate(wanted):
        properties = f"TAGS\x01{tag}\x02n\x01{number}" if tag else f"n\x01{number}"
        result = store.put(StoreMessage(TOPIC, queue_id, b"x" * size, properties=properties.encode()))
        assert result.ok


def damage(queue: ConsumeQueue, number: int, kind: str) -> None:
    entry = queue.entry(number)
    if entry is None:
        return
    changed = {
        "blank": QueueEntry(0, 0x7FFFFFFF, 0),
        "zero": QueueEntry(0, 0, 0),
        "other": QueueEntry(entry.physical_offset + 8, entry.size, entry.tags_code),
        "size": QueueEntry(entry.physical_offset, entry.size + 1, entry.tags_code),
        "negative": QueueEntry(-5, -7, entry.tags_code),
        "far": QueueEntry(1 << 60, entry.size, entry.tags_code),
    }
    queue.rewrite(number, changed[kind])


def long_way(store: MessageStore, offset: int, count: int, codes: frozenset[int] | None) -> bytes | None:
    found = store.get(TOPIC, 0, offset, count, filter=TagFilter(codes) if codes else None)
    if not found.count:
        return None
    head = encode_pull_head(
        0, found.status.name, OPAQUE, SUGGEST, found.next_offset, found.min_offset, found.max_offset, found.size
    )  # fmt: skip
    return head + b"".join(found.slices)


def short_way(
    twin: Any, store: MessageStore, offset: int, count: int, codes: frozenset[int] | None
) -> bytes | None:
    queue = store.table.find(TOPIC, 0)
    if queue is None or queue.view is None or not queue.file_start <= offset * 20 < queue.end:
        return None
    plan = twin.PullPlan(queue, SimpleNamespace(), codes, 1)
    limits, log = store.config, store.commit_log
    answers = twin.PullAnswers()
    made: bytes | None = answers.make(
        plan, offset, OPAQUE, SUGGEST, min(count, limits.max_transfer_count_on_message_in_memory),
        limits.max_transfer_bytes_on_message_in_memory, queue.view, queue.file_start, log.view, log.base,
        log.end_offset,
    )  # fmt: skip
    return made


@pytest.mark.parametrize("kind", ["py", "c"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wanted=messages,
    harm=damages,
    offset=st.integers(0, 40),
    count=st.sampled_from([1, 2, 32, 100]),
    tags=st.sampled_from([(), ("red",), ("red", "green"), ("none",)]),
)
def test_both_ways_give_the_same_answer(
    kind: str,
    wanted: list[tuple[int, str, int]],
    harm: tuple[int, str] | None,
    offset: int,
    count: int,
    tags: tuple[str, ...],
) -> None:
    twin = load_twin("cometmq.broker.pull_answer_cy", kind)
    codes = frozenset(CODES.get(tag, 1) for tag in tags) or None
    with tempfile.TemporaryDirectory() as directory:
        store = MessageStore(StoreConfig(store_path_root_dir=Path(directory)))
        store.open()
        try:
            fill(store, wanted)
            queue = store.table.find(TOPIC, 0)
            if harm is not None and queue is not None:
                damage(queue, *harm)
            short = short_way(twin, store, offset, count, codes)
            long = long_way(store, offset, count, codes)
            if short is not None:
                assert short == long
            elif harm is None and long is not None:
                assert len(long) > PLAIN_SIZE_MAX
        finally:
            store.close()


def test_a_pull_at_the_end_of_a_queue_has_no_answer(tmp_path: Path) -> None:
    twin = load_twin("cometmq.broker.pull_answer_cy", "py")
    store = MessageStore(StoreConfig(store_path_root_dir=tmp_path))
    store.open()
    fill(store, [(0, "", 1)] * 3)
    assert short_way(twin, store, 3, 32, None) is None
    assert short_way(twin, store, 2, 32, None) == long_way(store, 2, 32, None)
    store.close()
