"""A store that is written to, killed at any moment and loses its power, again and again: what was flushed is there, and
queues have no holes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ha.power import lose_power, sync_all
from ha.shim import library, unavailable

from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records
from cometmq.store.config import StoreConfig
from cometmq.store.model import GetStatus
from cometmq.store.store import MessageStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "there is a compiler"),
]

LOSSES = int(os.environ.get("HA_TIMES", "1")) * 30
MOMENTS_MAX = 150
QUEUES = 3

# Every message waits for its flush; queues, index and checkpoint are synced all the time.
WRITER = """
import sys, threading
from pathlib import Path
from ha.test_ha_store_power import config_of
from cometmq.store.model import StoreMessage
from cometmq.store.store import MessageStore
store = MessageStore(config_of(Path(sys.argv[1])))
store.open()
number = 0
while True:
    for topic in ("A", "B", sys.argv[2]):
        for queue_id in range(int(sys.argv[3])):
            result = store.put(StoreMessage(topic, queue_id, b"%d " % number + b"." * (number * 37 % 900)))
            number += 1
    done = threading.Event()
    store.flush_waiter(result.end_offset, lambda ok: done.set())
    assert done.wait(60)
    print(topic, queue_id, result.queue_offset, flush=True)
"""


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=600,  # 30 entries
        flush_interval_consume_queue=5,
        flush_consume_queue_thorough_interval=20,
        max_hash_slot_num=100,
        max_index_num=400,
        disk_space_warning_level_ratio=100,
        disk_space_clean_forcibly_ratio=100,
    )


def write_until_killed(store: Path, shadow: Path, topic: str) -> tuple[str, int, int] | None:
    """Topic, queue and offset of the last message that was flushed."""
    environment = {**os.environ, "LD_PRELOAD": str(library()), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"SHIM_ROOT": str(store), "SHIM_SHADOW": str(shadow)}
    environment["SHIM_KILL_AT"] = str(random.randint(1, MOMENTS_MAX))
    command = [sys.executable, "-c", WRITER, str(store), topic, str(QUEUES)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    *lines, _ = done.stdout.decode().split("\n")  # the last one may be cut short
    if not lines:
        return None
    name, queue_id, queue_offset = lines[-1].split()
    return name, int(queue_id), int(queue_offset)


def records(store: MessageStore, topic: str, queue_id: int) -> list[MessageExt]:
    found: list[MessageExt] = []
    offset = 0
    while True:
        result = store.get(topic, queue_id, offset, 1000)
        found += [record for part in result.slices for record in decode_records(part)]
        if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return found
        if result.cold_parts:
            for part in result.cold_parts:
                bytes(part)  # into memory with it
        elif result.next_offset <= offset:
            raise AssertionError(f"{topic} {queue_id} cannot be read at {offset}: {result}")
        offset = result.next_offset


def check(root: Path, flushed: list[tuple[str, int, int]]) -> int:
    store = MessageStore(config_of(root))
    store.open()
    count = 0
    for queue in list(store.table.all()):
        offsets = [record.queue_offset for record in records(store, queue.topic, queue.queue_id)]
        assert offsets == list(range(queue.max_offset)), (queue.topic, queue.queue_id, offsets)
        count += len(offsets)
    for topic, queue_id, queue_offset in flushed:
        assert store.max_offset(topic, queue_id) > queue_offset
    store.kill_for_test() if random.random() < 0.5 else store.close()
    return count


def test_what_was_flushed_survives_any_loss_of_power_and_queues_have_no_holes(tmp_path: Path) -> None:
    store, shadow = (tmp_path / "store").resolve(), tmp_path.resolve() / "shadow"
    store.mkdir()
    flushed: list[tuple[str, int, int]] = []
    count = 0
    for number in range(LOSSES):
        last = write_until_killed(store, shadow, f"T{number // 3}")
        flushed += [last] if last is not None else []
        lose_power(store, shadow)
        count = check(store, flushed)
        sync_all(store, shadow)  # what the check did to the store was not watched
    print("losses", LOSSES, "messages", count)
