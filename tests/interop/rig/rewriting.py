"""Stores of ours with the messages of the golden stores in them, and the configuration that a broker needs beside."""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_record
from cometmq.store.config import StoreConfig
from cometmq.store.model import BatchItem, PutStatus, StoreBatch, StoreMessage
from cometmq.store.store import MessageStore

# the sizes of the golden stores: many files from few messages
SIZES = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
FEATURES = {
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": "4096",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
MULTI_DISPATCH_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
READ_WRITE = 6


def store_config(root: Path, *, features: bool = False) -> StoreConfig:
    plain = StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=262144,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    if not features:
        return plain
    return replace(
        plain,
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=4096,
        enable_lmq=True,
        enable_multi_dispatch=True,
    )


def read_everything(config: StoreConfig) -> list[MessageExt]:
    """Open a store, decode every record in the order of the log, close it again."""
    store = MessageStore(config)
    store.open()
    try:
        return list(_records(store))
    finally:
        store.close()


def _records(store: MessageStore) -> Iterator[MessageExt]:
    """All records that a queue refers to."""
    offsets = {
        entry.physical_offset
        for topic in store.topics_on_disk()
        for queue_id in store.queue_ids(topic)
        for entry in _entries(store, topic, queue_id)
    }
    for offset in sorted(offsets):
        record = store.read_record(offset)
        assert record is not None, f"no record at {offset}"
        yield decode_record(bytes(record))


def _entries(store: MessageStore, topic: str, queue_id: int) -> list[Any]:
    first, last = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    return store.queue_entries(topic, queue_id, first, last - first)


def write_again(
    messages: list[MessageExt], config: StoreConfig, *, now_ms: Callable[[], int] | None = None
) -> None:
    """Append the messages with our store, batches as batches."""
    store = MessageStore(config) if now_ms is None else MessageStore(config, now_ms=now_ms)
    store.open()
    try:
        for _, run in itertools.groupby(messages, key=_run_of):
            _append(store, list(run))
    finally:
        store.close()


def _run_of(message: MessageExt) -> object:
    """Neighbours of one batch share this; any other message stands alone."""
    if message.topic == "TopicBatch":
        return (message.topic, message.store_timestamp_ms)
    return id(message)


def _append(store: MessageStore, run: list[MessageExt]) -> None:
    first = run[0]
    shared: dict[str, Any] = {
        "sys_flag": first.sys_flag,
        "born_timestamp_ms": first.born_timestamp_ms,
        "born_host": first.born_host_bytes,
        "store_host": first.store_host_bytes,
        "reconsume_times": first.reconsume_times,
    }
    if len(run) > 1:
        items = [BatchItem(m.stored_body, m.stored_properties, m.flag) for m in run]
        result = store.put_batch(StoreBatch(first.topic, first.queue_id, items, **shared))
    else:
        one = StoreMessage(
            first.topic,
            first.queue_id,
            first.stored_body,
            properties=_without_offsets(first),
            flag=first.flag,
            prepared_transaction_offset=first.prepared_transaction_offset,
            **shared,
        )
        result = store.put(one)
    assert result.status is PutStatus.PUT_OK


def _without_offsets(message: MessageExt) -> bytes:
    """The store itself adds the offsets of light queues."""
    parts = message.stored_properties.split(b"\x02")
    return b"\x02".join(part for part in parts if not part.startswith(MULTI_DISPATCH_OFFSET.encode()))


def write_broker_files(root: Path, messages: list[MessageExt], delay_offsets: dict[int, int]) -> None:
    """topics.json with every topic readable, and how far delayed messages have been delivered."""
    queues: dict[str, int] = {}
    for message in messages:
        queues[message.topic] = max(queues.get(message.topic, 1), message.queue_id + 1)
    table = {
        topic: {
            "topicName": topic,
            "readQueueNums": count,
            "writeQueueNums": count,
            "perm": READ_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic, count in queues.items()
    }
    config = root / "config"
    config.mkdir(exist_ok=True)
    version = {"counter": 1, "timestamp": 1_794_778_000_000}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
    (config / "delayOffset.json").write_text(json.dumps({"offsetTable": delay_offsets}))


def java_text_of_host(host: bytes) -> str:
    """How Java prints the address of a record: /127.0.0.1:10911, IPv6 without shortening."""
    address = ipaddress.ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big")
    if address.version == 4:
        return f"/{address}:{port}"
    groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"/[{groups}]:{port}"
