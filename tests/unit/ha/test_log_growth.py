"""Whoever follows the log hears of every way in which it grows."""

from __future__ import annotations

from pathlib import Path

from cometmq.store.config import BrokerRole, StoreConfig
from cometmq.store.model import BatchItem, StoreBatch, StoreMessage
from cometmq.store.store import MessageStore


def test_every_append_is_heard_of(tmp_path: Path) -> None:
    heard: list[int] = []
    store = MessageStore(
        StoreConfig(store_path_root_dir=tmp_path, mapped_file_size_commit_log=65536, max_hash_slot_num=100,
                    max_index_num=400)
    )  # fmt: skip
    store.open()
    store.on_append = lambda: heard.append(store.max_physical_offset)
    try:
        for _ in range(20):  # more than one file
            assert store.put(StoreMessage("T", 0, bytes(8000))).ok
            assert heard[-1] == store.max_physical_offset
        assert store.min_physical_offset == 0
        assert store.max_physical_offset > 2 * 65536
        assert store.put_batch(StoreBatch("T", 0, [BatchItem(b"a"), BatchItem(b"b")])).ok
        assert heard[-1] == store.max_physical_offset
    finally:
        store.close()


def test_a_slave_of_a_slave_hears_of_received_bytes(tmp_path: Path) -> None:
    heard: list[int] = []
    store = MessageStore(
        StoreConfig(store_path_root_dir=tmp_path, mapped_file_size_commit_log=65536, max_hash_slot_num=100,
                    max_index_num=400, broker_role=BrokerRole.SLAVE)
    )  # fmt: skip
    store.open()
    store.on_append = lambda: heard.append(store.max_physical_offset)
    try:
        store.append_raw(0, b"\x00\x00\x00")  # the begin of a record
        assert heard == [3]
    finally:
        store.close()
