"""MessageStore: the one door to everything under a store directory.

Plain synchronous calls, loop thread only unless a method says otherwise; no asyncio inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cometmq.clock import Clock, now_ms
from cometmq.store.config import StoreConfig
from cometmq.store.delay_levels import DelayLevels
from cometmq.store.model import (
    AppendSpace,
    Buffer,
    GetResult,
    MessageFilter,
    PutResult,
    QueryResult,
    RecoveryReport,
    StoreBatch,
    StoreMessage,
)

FlushCallback = Callable[[bool], None]
WatchCallback = Callable[[str, int], None]


class Watch:
    """A registered interest in one queue; cancel() is idempotent."""

    def cancel(self) -> None:
        raise NotImplementedError


class MessageStore:
    def __init__(
        self, config: StoreConfig, *, now_ms: Clock = now_ms, delay_levels: DelayLevels | None = None
    ) -> None:
        self.config = config
        self.now_ms = now_ms
        self.delay_levels = delay_levels or DelayLevels(config.message_delay_level)
        # Delivers a callback to the loop thread; the broker injects loop.call_soon_threadsafe.
        self.call_soon: Callable[..., Any] = lambda callback, *args: callback(*args)
        # Bit map of the SQL groups that want a message, for the queue extension: (topic, record) -> bytes or None.
        self.filter_bit_map: Callable[[str, memoryview], bytes | None] | None = None

    # Life
    def open(self) -> RecoveryReport:
        """Take the lock, load, recover, dispatch what is behind, start the threads. Raises StoreError."""
        raise NotImplementedError

    def close(self) -> None:
        """Orderly stop: flush everything, write the checkpoint, remove abort, release the lock."""
        raise NotImplementedError

    def kill_for_test(self) -> None:
        """Stop threads and let go of the files as a killed process would: abort stays, nothing is flushed."""
        raise NotImplementedError

    # Writing
    def put(self, message: StoreMessage) -> PutResult:
        raise NotImplementedError

    def put_batch(self, batch: StoreBatch) -> PutResult:
        raise NotImplementedError

    def reserve(self, size: int) -> AppendSpace | None:
        """Room for at least `size` bytes (records only, the closing blank is kept free), or None: see put_refusal()."""
        raise NotImplementedError

    def commit(self, end_position: int) -> int:
        """Make [position, end_position) of the reserved file visible and dispatch it; the new physical end offset."""
        raise NotImplementedError

    def append_raw(self, physical_offset: int, data: Buffer) -> int:
        """A replica's append: bytes of the master's log at exactly this offset, records may be cut; the new end offset."""
        raise NotImplementedError

    def queue_offsets(self, topic: bytes) -> memoryview:
        """Next queue offset by queue id, format 'q', writable: a writer of records advances what it uses.

        Valid while `offsets_epoch` stays the same.
        """
        raise NotImplementedError

    @property
    def offsets_epoch(self) -> int:
        raise NotImplementedError

    # Durability
    @property
    def flushed_offset(self) -> int:
        raise NotImplementedError

    def flush_waiter(self, end_offset: int, callback: FlushCallback) -> None:
        """callback(ok) arrives through call_soon when everything below end_offset is on disk, or failed, or timed out."""
        raise NotImplementedError

    # Reading
    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        *,
        max_bytes: int | None = None,
        filter: MessageFilter | None = None,
    ) -> GetResult:
        raise NotImplementedError

    def warm(self, result: GetResult) -> None:
        """Read the pages of a cold result into memory; for a thread."""
        raise NotImplementedError

    def read_record(self, physical_offset: int, size: int = 0) -> memoryview | None:
        raise NotImplementedError

    def read_log(self, physical_offset: int, size_max: int) -> memoryview | None:
        """Readable bytes from an offset within one file (replication)."""
        raise NotImplementedError

    def min_offset(self, topic: str, queue_id: int) -> int:
        raise NotImplementedError

    def max_offset(self, topic: str, queue_id: int) -> int:
        raise NotImplementedError

    @property
    def min_physical_offset(self) -> int:
        raise NotImplementedError

    @property
    def max_physical_offset(self) -> int:
        raise NotImplementedError

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        raise NotImplementedError

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        raise NotImplementedError

    def earliest_time(self, topic: str, queue_id: int) -> int:
        raise NotImplementedError

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        raise NotImplementedError

    def watch(self, topic: str, queue_id: int, callback: WatchCallback) -> Watch:
        """callback(topic, queue_id) runs inside the commit that appended to this queue."""
        raise NotImplementedError

    # Care
    def topics_on_disk(self) -> list[str]:
        raise NotImplementedError

    def queue_ids(self, topic: str) -> list[int]:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues (its records stay in the log until they expire); how many queues."""
        raise NotImplementedError

    def clean_expired(self) -> int:
        """Remove queues whose messages have all left the log; how many."""
        raise NotImplementedError

    def delete_expired_files(self) -> int:
        """Delete expired commit log files now, whatever the hour; how many."""
        raise NotImplementedError

    def tick(self) -> None:
        """Retention and idle files; call every few seconds on the loop."""
        raise NotImplementedError

    def runtime_info(self) -> dict[str, str]:
        raise NotImplementedError

    @property
    def writable(self) -> bool:
        raise NotImplementedError

    @property
    def readable(self) -> bool:
        raise NotImplementedError
