"""After a crash with lost ends and damaged entries of several queues: one walk gives everything back, the index too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from store_kit import bodies, message, opened, properties, small_config

from cometmq.store.store import MessageStore

ENTRY_SIZE = 20
QUEUE_OFFSET_POSITION = 20  # in a record
QUEUES = [("A", 0), ("A", 1), ("B", 0), ("C", 2)]
COUNT = 80  # entries of each queue at most: one file


@pytest.mark.parametrize("seed", range(12))
def test_queues_and_index_are_as_they_were(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = MessageStore(small_config(tmp_path))
    store.open()
    sent: dict[tuple[str, int], list[bytes]] = {queue: [] for queue in QUEUES}
    for number in range(rng.randrange(1, len(QUEUES) * COUNT // 2)):
        topic, queue_id = rng.choice(QUEUES)
        body = f"{number}".ljust(rng.randrange(8, 300), ".")
        if len(sent[topic, queue_id]) < COUNT:
            assert store.put(
                message(body, topic=topic, queue_id=queue_id, properties=properties(KEYS=f"k{number}"))
            ).ok
            sent[topic, queue_id].append(body.encode())
    store.kill_for_test()

    for (topic, queue_id), each in sent.items():
        path = tmp_path / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
        if not each:
            continue
        lost = rng.choice([0, 0, 1, rng.randrange(len(each) + 1)])
        data = bytearray(path.read_bytes())
        data[(len(each) - lost) * ENTRY_SIZE : len(each) * ENTRY_SIZE] = bytes(lost * ENTRY_SIZE)
        for _ in range(rng.randrange(3) if len(each) - lost > 1 else 0):
            at = rng.randrange(len(each) - lost - 1) * ENTRY_SIZE
            data[at + rng.randrange(8)] ^= 1 << rng.randrange(7)  # leads to another place
        path.write_bytes(data)

    with opened(small_config(tmp_path)) as store:
        for (topic, queue_id), each in sent.items():
            assert bodies(store, topic, queue_id) == each
            for body in each:
                number = int(body.decode().rstrip("."))
                found = store.query(topic, f"k{number}", 10, 0, 1 << 62)
                assert len(found.records) == 1, f"{topic} k{number} is not in the index"


@pytest.mark.parametrize("flipped", [0x80, 0x40, 0x20, 0x10, 0x08, 0x04])
def test_a_queue_offset_that_cannot_be_is_passed_over(tmp_path: Path, flipped: int) -> None:
    """No checksum covers it: recovery must not take it for a place in a queue."""
    store = MessageStore(small_config(tmp_path))
    store.open()
    for number in range(5):
        assert store.put(message(f"{number}")).ok
    record = store.read_log(0, 1000)
    assert record is not None
    third = 2 * int.from_bytes(record[:4], "big")
    record[third + QUEUE_OFFSET_POSITION] ^= flipped
    store.kill_for_test()
    with opened(small_config(tmp_path)) as store:
        assert store.max_offset("T", 0) == 5
        assert store.put(message("next")).ok
        assert store.max_offset("T", 0) == 6
