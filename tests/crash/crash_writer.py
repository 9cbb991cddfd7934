"""The process that the crash tests kill: writes messages and tells over its standard output what is acknowledged.

    python crash_writer.py DIRECTORY ASYNC_FLUSH|SYNC_FLUSH FIRST_NUMBER SEED

One line per acknowledged message: number, topic, queue id, queue offset, physical offset. With SYNC_FLUSH they
come after the sync that covers the message, together with a line `synced OFFSET`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

from cometmq.store.config import FlushDiskType, StoreConfig
from cometmq.store.model import BatchItem, StoreBatch, StoreMessage
from cometmq.store.store import MessageStore

COMMIT_LOG_FILE_SIZE = 1 << 20
GROUP = 8  # messages in flight with SYNC_FLUSH


def config_for(root: Path, flush: str) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=COMMIT_LOG_FILE_SIZE,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=1000,
        max_index_num=4000,
        flush_disk_type=FlushDiskType[flush],
        flush_interval_commit_log=5,
        flush_commit_log_thorough_interval=10,
        flush_interval_consume_queue=5,
        flush_consume_queue_thorough_interval=20,
        disk_space_warning_level_ratio=100,
        disk_space_clean_forcibly_ratio=100,
        populate_ahead_size=1 << 16,
    )


def body_for(number: int) -> bytes:
    """Size and content follow from the number, so that the checker can tell a changed message."""
    generator = random.Random(number)
    return b"%d:" % number + generator.randbytes(generator.choice((0, 10, 100, 1000, 5000)))


def topic_for(number: int) -> tuple[str, int]:
    return f"Topic{number % 3}", number % 4


def main() -> None:
    root, flush, first, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    store = MessageStore(config_for(root, flush))
    store.open()
    tell("ready")
    generator = random.Random(seed)
    number = first
    while True:
        group = []
        for _ in range(GROUP if flush == "SYNC_FLUSH" else 1):
            if generator.random() < 0.1:
                group += put_batch(store, number, generator.randrange(2, 6))
            else:
                group += put_one(store, number)
            number = group[-1][0] + 1
        lines = [" ".join(map(str, acknowledged)) for acknowledged in group]
        if flush == "SYNC_FLUSH":
            wait_synced(store)
            lines.insert(0, f"synced {store.flushed_offset}")
        tell(*lines)


Acknowledged = tuple[int, str, int, int, int]


def put_one(store: MessageStore, number: int) -> list[Acknowledged]:
    topic, queue_id = topic_for(number)
    properties = b"KEYS\x01key%d\x02TAGS\x01t%d" % (number, number % 5)
    result = store.put(StoreMessage(topic, queue_id, body_for(number), properties))
    assert result.ok, result
    return [(number, topic, queue_id, result.queue_offset, result.physical_offset)]


def put_batch(store: MessageStore, number: int, count: int) -> list[Acknowledged]:
    topic, queue_id = topic_for(number)
    items = [BatchItem(body_for(number + n), b"KEYS\x01key%d" % (number + n)) for n in range(count)]
    result = store.put_batch(StoreBatch(topic, queue_id, items))
    assert result.ok, result
    return [
        (number + n, topic, queue_id, result.queue_offset + n, offset)
        for n, offset in enumerate(result.offsets)
    ]


def wait_synced(store: MessageStore) -> None:
    done = threading.Event()
    answers: list[bool] = []
    store.flush_waiter(store.max_physical_offset, lambda ok: (answers.append(ok), done.set()))  # type: ignore[func-returns-value]
    done.wait()
    assert answers == [True]


def tell(*lines: str) -> None:
    # One write: a line is there whole or not at all.
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
