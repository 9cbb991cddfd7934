"""What goes into the store and what comes out: plain values, no behaviour beyond small conveniences."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
HostBytes = bytes  # form of the record, see protocol.host.encode_host: 4 or 16 address bytes, port as int32

LOCALHOST: HostBytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"


class PutStatus(enum.Enum):
    """Names of the original's PutMessageStatus; the broker maps them to response codes."""

    PUT_OK = enum.auto()
    FLUSH_DISK_TIMEOUT = enum.auto()
    FLUSH_SLAVE_TIMEOUT = enum.auto()
    SLAVE_NOT_AVAILABLE = enum.auto()
    SERVICE_NOT_AVAILABLE = enum.auto()
    CREATE_MAPPED_FILE_FAILED = enum.auto()
    MESSAGE_ILLEGAL = enum.auto()
    PROPERTIES_SIZE_EXCEEDED = enum.auto()
    OS_PAGECACHE_BUSY = enum.auto()
    UNKNOWN_ERROR = enum.auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = enum.auto()


class GetStatus(enum.Enum):
    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


@dataclass(slots=True)
class StoreMessage:
    """One message to append.

    `properties` is the stored string already; only INNER_MULTI_QUEUE_OFFSET is added by the store.
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: HostBytes = LOCALHOST
    store_host: HostBytes = LOCALHOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True


class BatchItem(NamedTuple):
    body: Buffer
    properties: bytes = b""
    flag: int = 0


@dataclass(slots=True)
class StoreBatch:
    """Messages of one SEND_BATCH: everything but body, flag and properties is shared.

    `properties` are the header's (CLUSTER included); they are appended to each item's own string.
    """

    topic: str
    queue_id: int
    items: Sequence[BatchItem]
    properties: bytes = b""
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: HostBytes = LOCALHOST
    store_host: HostBytes = LOCALHOST
    reconsume_times: int = 0
    wait_store_ok: bool = True


@dataclass(slots=True)
class PutResult:
    status: PutStatus
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    end_offset: int = -1  # flush_waiter() and replication wait for this
    store_timestamp_ms: int = 0
    offsets: list[int] = field(default_factory=list)  # physical offset of each item of a batch

    @property
    def ok(self) -> bool:
        return self.status is PutStatus.PUT_OK


@dataclass(slots=True)
class GetResult:
    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview] = field(default_factory=list)  # views of the map; adjacent records are one slice
    count: int = 0
    size: int = 0
    cold_parts: list[memoryview] = field(default_factory=list)  # what is not in memory
    suggest_slave: bool = False

    @property
    def cold(self) -> bool:
        """Not in memory: have ``cold_parts`` read, not by the loop, and ask again."""
        return bool(self.cold_parts)


@dataclass(slots=True)
class QueryResult:
    offsets: list[int]
    records: list[memoryview]
    index_last_update_timestamp: int = 0
    index_last_update_physical_offset: int = 0


class AppendSpace(NamedTuple):
    """Room in the current commit log file: write from `position` at most to `limit`, then commit()."""

    buffer: memoryview  # the whole mapped file
    position: int
    limit: int
    physical_base: int  # physical offset of buffer[0]


class MessageFilter(Protocol):
    """What a pull wants. `matches_tags_code` is asked first, on the queue entry alone.

    A filter may also have ``matches_ext(tags_code, store_timestamp_ms, bit_map: bytes) -> bool``; it is
    asked in place of `matches_tags_code` for entries with an extension unit.
    """

    needs_record: bool

    def matches_tags_code(self, tags_code: int) -> bool: ...

    def matches_record(self, record: memoryview) -> bool: ...


@dataclass(slots=True)
class RecoveryReport:
    """What open() found and did; for the log and for people."""

    clean: bool  # the last run stopped in order (no abort file)
    min_physical_offset: int = 0
    max_physical_offset: int = 0
    records_scanned: int = 0
    records_dispatched: int = 0
    cut_offset: int = -1  # where the log was cut because of bytes that are no record, -1 if nowhere
    damaged: bool = False  # records stood behind that cut: it was no write that a crash interrupted
    walk_start: int = 0  # physical offset from which on every record was looked at
    queue_count: int = 0
    tails_trusted: bool = False  # the queue tails came from the sidecar of the last clean stop
    duration_ms: int = 0
    notes: list[str] = field(default_factory=list)
