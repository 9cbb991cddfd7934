"""The compiled and the plain twins of the scans and the dispatcher give the same answers, also on garbage."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import message, opened, properties, small_config
from twins import load_twin

from cometmq.protocol.host import encode_host
from cometmq.store.append_cy import write_blank, write_record
from cometmq.store.scan_cy import Scan

SCAN, QUEUE_SCAN, DISPATCH = (f"cometmq.store.{name}_cy" for name in ("scan", "queue_scan", "dispatch"))


def both(name: str) -> tuple[ModuleType, ModuleType]:
    return load_twin(name, "py"), load_twin(name, "c")


def build_log(seed: int, count: int = 12, size: int = 8192, base: int = 0) -> bytearray:
    """Records of all shapes, sometimes closed by a blank."""
    generator = random.Random(seed)
    data = bytearray(size)
    view, position = memoryview(data), 0
    hosts = [encode_host("127.0.0.1", 80), encode_host("::1", 80)]
    for number in range(count):
        tags = generator.choice(
            ("", "TAGS\x01A\x02", "TAGS\x01标签\x02", "KEYS\x01a  b\x02", "TAGS\x01\x02", "X\x02")
        )
        tail = generator.choice(("", f"UNIQ_KEY\x01u{number}", "KEYS\x01k\x02KEYS\x01last one"))
        position = write_record(
            view, position, base + position, number, 1000 + number, b"Topic%d" % (number % 2), number % 3,
            generator.randbytes(generator.choice((0, 5, 63, 64, 65, 300))), (tags + tail).encode(), -1,
            generator.choice((0, 4, 8, 12, 1)), 5, generator.choice(hosts), generator.choice(hosts), 0, 0,
        )  # fmt: skip
    if generator.random() < 0.5:
        write_blank(view, position, size)
    return data


@given(
    seed=st.integers(0, 10_000),
    flips=st.lists(st.tuples(st.integers(0, 8191), st.integers(1, 255)), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_scans_agree_on_damaged_logs(seed: int, flips: list[tuple[int, int]]) -> None:
    plain, compiled = both(SCAN)
    data = build_log(seed)
    for position, change in flips:
        data[position] ^= change
    for check_crc in (True, False):
        for end in (len(data), 3000):
            arguments = (data, 0, end, 0, check_crc, len(data))
            assert plain.scan_records(*arguments) == compiled.scan_records(*arguments)


@given(st.binary(max_size=400), st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_scans_agree_on_garbage(garbage: bytes, start: int) -> None:
    plain, compiled = both(SCAN)
    data = garbage + b"\0\0\0\x64\xda\xa3\x20\xa7" + garbage
    start = min(start, len(data))
    arguments = (data, start, len(data), 7, True)
    assert plain.scan_records(*arguments) == compiled.scan_records(*arguments)


def test_good_log_is_walked_to_its_end() -> None:
    data = build_log(3)
    for twin in both(SCAN):
        scan: Scan = twin.scan_records(data, 0, len(data), 0, True, len(data))
        assert (scan.count, scan.reason) == (12, "")
        assert (scan.first_store_timestamp_ms, scan.last_store_timestamp_ms) == (1000, 1011)
        assert twin.scan_records(data, 0, len(data), 1, True, len(data)).reason.startswith(
            "the physical offset"
        )


def test_range_outside_of_the_buffer_is_refused() -> None:
    _, compiled = both(SCAN)
    with pytest.raises(ValueError):
        compiled.scan_records(b"x" * 100, 0, 101, 0, False)
    _, compiled = both(QUEUE_SCAN)
    with pytest.raises(ValueError):
        compiled.entries_end(b"x" * 100, 0, 101)


entries = st.lists(
    st.tuples(
        st.sampled_from((0, 100, 200, 300, 4096, 5000, 8192, -1)),
        st.sampled_from((100, 200, 1000, 0x7FFFFFFF, 0, -5)),
        st.sampled_from((0, 65, -1, -(1 << 40))),
    ),
    max_size=30,
)


@given(
    entries=entries,
    counts=st.tuples(*[st.integers(1, 5)] * 3),
    bytes_max=st.integers(0, 2000),
    low=st.integers(0, 500),
)
@settings(max_examples=400, deadline=None)
def test_queue_scans_agree(
    entries: list[tuple[int, int, int]], counts: tuple[int, int, int], bytes_max: int, low: int
) -> None:
    plain, compiled = both(QUEUE_SCAN)
    import struct

    data = b"".join(struct.pack(">qiq", *entry) for entry in entries)
    assert plain.entries_end(data, 0, len(data)) == compiled.entries_end(data, 0, len(data))
    limits = (counts[0], bytes_max, counts[1], bytes_max // 2, counts[2], low, 9000, 4000)
    for codes in (None, {65}, frozenset((0, 1))):
        for carried in ((0, 0, 0), (2, 500, 4096)):
            answers = [
                twin.collect(data, 0, len(data), twin.Limits(*limits), *carried, codes, 4096)
                for twin in (plain, compiled)
            ]
            assert tuple(answers[0]) == tuple(answers[1])


@given(
    damage=st.lists(st.tuples(st.integers(0, 12 * 20 - 1), st.integers(0, 7)), max_size=3),
    in_log=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 7)), max_size=2),
    lenient=st.booleans(),
    queue_start=st.sampled_from((0, 20, 240)),
)
@settings(max_examples=400, deadline=None)
def test_queue_scans_check_alike(
    damage: list[tuple[int, int]], in_log: list[tuple[int, int]], lenient: bool, queue_start: int
) -> None:
    """Whatever bits are wrong in entries or records: both take the same ones, and no wrong one."""
    import struct

    log = bytearray(build_log(3))
    places, at = [], 0
    for _ in range(12):
        size = int.from_bytes(log[at : at + 4], "big")
        places.append((at, size))
        at += size
    queue = bytearray(b"".join(struct.pack(">qiq", at, size, 0) for at, size in places))
    for position, bit in damage:
        queue[position % len(queue)] ^= 1 << bit
    for position, bit in in_log:
        log[position % len(log)] ^= 1 << bit
    plain, compiled = both(QUEUE_SCAN)
    limits = (32, 1 << 20, 1000, 1 << 20, 1000, 0, len(log), 0)
    answers = []
    for twin in (plain, compiled):
        home = twin.Home(bytes(log), 0, len(log), queue_start, b"Topic0", 0, lenient)
        start, taken = 0, []
        while start < len(queue):
            found = twin.collect(
                bytes(queue), start, len(queue), twin.Limits(*limits), 0, 0, 0, None, 4096, home
            )
            taken.append(tuple(found))
            start = found.position + 20
            for place, size in found.runs:
                assert place + size <= len(log)
        answers.append(taken)
        for number in range(len(places)):
            place, size, _ = struct.unpack_from(">qiq", queue, number * 20)
            answers[-1].append((twin.is_record_of(home, number + queue_start // 20, place, size),))
    assert answers[0] == answers[1]


class Keys:
    """Takes the keys that a dispatcher collects."""

    def __init__(self) -> None:
        self.keys: list[list[int]] = []

    def put(self, keys: memoryview, count: int) -> None:
        self.keys += [list(keys[3 * n : 3 * n + 3]) for n in range(count)]


def dispatched(twin: Any, data: bytearray, ends: list[int]) -> tuple[Any, ...]:
    """What a dispatcher of one twin makes of a log."""
    tables: dict[tuple[bytes, int], Any] = {}
    special: list[tuple[Any, ...]] = []

    class Queue(twin.QueueTail):  # type: ignore[misc]
        def append_slowly(self, *entry: int) -> bool:
            self.attach(memoryview(bytearray(4000)), 0, 4000)
            self.slow = [*getattr(self, "slow", []), entry]
            return False

    class Table(twin.Dispatcher):  # type: ignore[misc]
        def new_topic(self, name: bytes) -> Any:
            self.topics[name] = twin.TopicQueues(name, name == b"Topic1")
            return self.topics[name]

        def new_queue(self, topic_queues: Any, queue_id: int) -> Any:
            queue = topic_queues.queues[queue_id] = tables[topic_queues.name, queue_id] = Queue(queue_id)
            return queue

        def append_specially(self, topic_queues: Any, *arguments: Any) -> None:
            special.append((topic_queues.name, *map(_plain, arguments)))
            self.append(topic_queues, *arguments[:5])

    table = Table()
    table.index = Keys()
    position = 0
    for end in ends:
        table.dispatch(memoryview(data), position, end, 0)
        position = end
    queues = {
        key: (queue.end, queue.max_physical_offset, queue.slow, bytes(queue.view))
        for key, queue in tables.items()
    }
    return queues, special, table.index.keys, table.record_count, table.last_store_timestamp_ms


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


@given(seed=st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_dispatchers_agree(seed: int) -> None:
    data = build_log(seed)
    ends, position = [], 0
    scan = load_twin(SCAN, "py").scan_records(data, 0, len(data), 0, True)
    while position < scan.end:
        position += int.from_bytes(data[position : position + 4], "big")
        ends.append(position)
    plain, compiled = both(DISPATCH)
    for parts in (ends, ends[-1:]):
        assert dispatched(plain, data, parts) == dispatched(compiled, data, parts)


@given(seed=st.integers(0, 10_000), position=st.integers(0, 1500), change=st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_dispatchers_refuse_what_is_no_record(seed: int, position: int, change: int) -> None:
    """The range is checked before; even so nothing is read outside of it."""
    data = build_log(seed)
    end = load_twin(SCAN, "py").scan_records(data, 0, len(data), 0, True).end
    data[position] ^= change
    plain, compiled = both(DISPATCH)
    answers = []
    for twin in (plain, compiled):
        try:
            answers.append(dispatched(twin, data, [end]))
        except (ValueError, IndexError):
            answers.append(None)
    if None not in answers:
        assert answers[0] == answers[1]


def test_whole_store_gives_the_same_files_in_both_twins(tmp_path: Path) -> None:
    """COMETMQ_PURE=1 in a process of its own, the same messages, the same bytes."""
    import os
    import subprocess
    import sys

    program = Path(__file__).with_name("write_sample_store.py")
    for name, pure in (("c", "0"), ("py", "1")):
        environment = {**os.environ, "COMETMQ_PURE": pure}
        subprocess.run([sys.executable, str(program), str(tmp_path / name)], env=environment, check=True)
    names = [sorted(str(p.relative_to(tmp_path / n)) for p in (tmp_path / n).rglob("*")) for n in ("c", "py")]
    assert names[0] == names[1]
    for name in names[0]:
        path = tmp_path / "c" / name
        if path.is_file() and name != "queue-tails":
            assert path.read_bytes() == (tmp_path / "py" / name).read_bytes(), name
    with opened(small_config(tmp_path / "py")) as store:
        assert store.put(message(properties=properties(TAGS="x"))).ok
