"""Write a small store with a bit of everything: `python write_sample_store.py DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from store_kit import Clock, message, properties, small_config

from cometmq.store.model import BatchItem, StoreBatch
from cometmq.store.store import MessageStore


def main(root: Path) -> None:
    store = MessageStore(small_config(root), now_ms=Clock())
    store.open()
    for n in range(400):
        wanted = properties(KEYS=f"a{n} 键{n}", TAGS=f"标签{n % 3}" if n % 2 else "t", UNIQ_KEY=f"u{n}")
        store.put(message(f"{n}" * (n % 50), topic=f"T{n % 5}", queue_id=n % 3, properties=wanted))
    store.put_batch(StoreBatch("B", 0, [BatchItem(b"x", b"KEYS\x01k")] * 20, properties=b"CLUSTER\x01c"))
    store.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties(DELAY="3")))
    store.put(message(sys_flag=4))
    store.put(message(sys_flag=8, prepared_transaction_offset=5))
    store.close()


main(Path(sys.argv[1]))
