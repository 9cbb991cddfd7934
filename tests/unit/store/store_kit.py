"""Small stores for tests: configurations, messages, and reading a queue to its end."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cometmq.store.config import StoreConfig
from cometmq.store.model import GetStatus, StoreMessage
from cometmq.store.store import MessageStore

BASE_TIME_MS = 1_794_800_000_000


def small_config(root: Path, **settings: Any) -> StoreConfig:
    """The sizes of the golden stores: log files of 256 KiB, 100 queue entries and 400 index entries a file."""
    config = StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=262144,
        mapped_file_size_consume_queue=2000,
        mapped_file_size_consume_queue_ext=4096,
        max_hash_slot_num=100,
        max_index_num=400,
        disk_space_warning_level_ratio=100,
        disk_space_clean_forcibly_ratio=100,
    )
    return replace(config, **settings)


@contextmanager
def opened(config: StoreConfig, **options: Any) -> Iterator[MessageStore]:
    store = MessageStore(config, **options)
    store.open()
    try:
        yield store
    finally:
        store.close()


def message(body: bytes | str = b"hello", topic: str = "T", queue_id: int = 0, **fields: Any) -> StoreMessage:
    data = body.encode() if isinstance(body, str) else body
    return StoreMessage(topic, queue_id, data, **fields)


def properties(**pairs: str) -> bytes:
    return b"\x02".join(f"{name}\x01{value}".encode() for name, value in pairs.items())


class Clock:
    """A clock that goes on by one millisecond each time somebody looks."""

    def __init__(self, start_ms: int = BASE_TIME_MS, step_ms: int = 1) -> None:
        self.now_ms = start_ms
        self.step_ms = step_ms

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms


def split_records(data: memoryview | bytes) -> list[bytes]:
    """Records of one slice of a pull."""
    records, position = [], 0
    while position < len(data):
        size = struct.unpack_from(">i", data, position)[0]
        records.append(bytes(data[position : position + size]))
        position += size
    assert position == len(data)
    return records


def body_of(record: bytes | memoryview) -> bytes:
    sys_flag = struct.unpack_from(">i", record, 36)[0]
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    size = struct.unpack_from(">i", record, at)[0]
    return bytes(record[at + 4 : at + 4 + size])


def read_all(store: MessageStore, topic: str, queue_id: int, start: int | None = None) -> list[bytes]:
    """Every record of a queue, pulled as a consumer would."""
    records: list[bytes] = []
    offset = store.min_offset(topic, queue_id) if start is None else start
    for _ in itertools.count():
        result = store.get(topic, queue_id, offset, 32)
        if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return records
        got = [record for part in result.slices for record in split_records(part)]
        assert len(got) == result.count
        assert sum(map(len, got)) == result.size
        records += got
        assert result.next_offset > offset, result
        offset = result.next_offset
    raise AssertionError("not reached")


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [body_of(record) for record in read_all(store, topic, queue_id)]


def queue_ranges(store: MessageStore) -> dict[str, dict[str, int]]:
    return {
        f"{queue.topic}-{queue.queue_id}": {"min": queue.min_offset, "max": queue.max_offset}
        for queue in store.table.all()
    }
