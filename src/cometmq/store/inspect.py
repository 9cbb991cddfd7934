"""What is in a store directory: a summary for people, without reading all of it.

Ends are found as recovery finds them (last file of the log, last file of each queue); ``verify`` reads
everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cometmq.store.checkpoint import Checkpoint
from cometmq.store.consume_queue import QueueEntry
from cometmq.store.index_file import IndexHeader
from cometmq.store.log_walk import log_end
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, ENTRY_SIZE, entries_end
from cometmq.store.read_only import QueueName, Segment, StoreFiles, Stream
from cometmq.store.scan_cy import record_store_timestamp

NO_TIME_MS = -1


@dataclass(frozen=True, slots=True)
class LogSummary:
    directory: str
    file_count: int
    file_size: int
    disk_size: int
    min_physical_offset: int
    max_physical_offset: int
    first_store_timestamp_ms: int
    last_store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class QueueSummary:
    topic: str
    queue_id: int
    file_count: int
    file_size: int
    min_offset: int
    max_offset: int
    first_store_timestamp_ms: int
    last_store_timestamp_ms: int
    has_extension: bool

    @property
    def message_count(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class IndexSummary:
    name: str
    size: int
    entry_count: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int


@dataclass(frozen=True, slots=True)
class StoreSummary:
    root: str
    aborted: bool
    lock_holder: int | None
    checkpoint: dict[str, int] | None
    log: LogSummary
    queues: list[QueueSummary]
    index: list[IndexSummary]
    config_files: dict[str, int]
    problems: list[str]

    @property
    def state(self) -> str:
        if self.lock_holder is not None:
            return f"in use by process {self.lock_holder}"
        if self.aborted:
            return "not in use; the last broker did not stop in order (abort file)"
        return "not in use; the last broker stopped in order"


def inspect(root: Path, commit_log_dir: Path | None = None) -> StoreSummary:
    """Raises StoreError if the directory is no store."""
    files = StoreFiles(root, commit_log_dir)
    log = summarize_log(files.log)
    streams = [files.log, *files.queues.values(), *files.exts.values()]
    return StoreSummary(
        root=str(root),
        aborted=files.aborted,
        lock_holder=files.lock_holder,
        checkpoint=_checkpoint(root / "checkpoint"),
        log=log,
        queues=[summarize_queue(name, stream, files) for name, stream in files.queues.items()],
        index=[_index(segment) for segment in files.index],
        config_files={path.name: path.stat().st_size for path in files.config_paths},
        problems=[f"{path} {text}" for stream in streams for path, text in stream.problems],
    )


def summarize_log(stream: Stream) -> LogSummary:
    end, last_ms = log_end(stream)
    first_ms = _record_time(stream, stream.start, end)
    return LogSummary(
        directory=str(stream.directory),
        file_count=len(stream.segments),
        file_size=stream.file_size,
        disk_size=stream.disk_size,
        min_physical_offset=stream.start,
        max_physical_offset=end,
        first_store_timestamp_ms=first_ms,
        last_store_timestamp_ms=last_ms or NO_TIME_MS,
    )


def summarize_queue(name: QueueName, stream: Stream, files: StoreFiles) -> QueueSummary:
    min_offset, max_offset = queue_range(stream, files.log.start)
    first, last = (read_entry(stream, offset) for offset in (min_offset, max_offset - 1))
    times = [_entry_time(files.log, entry) for entry in (first, last)]
    stream.let_go()
    return QueueSummary(
        topic=name.topic,
        queue_id=name.queue_id,
        file_count=len(stream.segments),
        file_size=stream.file_size,
        min_offset=min_offset,
        max_offset=max_offset,
        first_store_timestamp_ms=times[0],
        last_store_timestamp_ms=times[1],
        has_extension=name in files.exts,
    )


def queue_range(stream: Stream, log_start: int) -> tuple[int, int]:
    """First and next queue offset, as recovery would find them."""
    end = stream.start
    for segment in reversed(stream.segments):
        position, _ = entries_end(stream.view(segment), 0, segment.size)
        if position:
            end = segment.start + position
            break
    if end == stream.start:
        return end // ENTRY_SIZE, end // ENTRY_SIZE
    return _min_offset(stream, end, log_start), end // ENTRY_SIZE


def read_entry(stream: Stream, queue_offset: int) -> QueueEntry | None:
    segment = stream.at(queue_offset * ENTRY_SIZE)
    if segment is None:
        return None
    at = queue_offset * ENTRY_SIZE - segment.start
    return entry_at(stream.view(segment), at)


def entry_at(view: memoryview, at: int) -> QueueEntry:
    data = bytes(view[at : at + ENTRY_SIZE])
    return QueueEntry(
        int.from_bytes(data[:8], "big", signed=True),
        int.from_bytes(data[8:12], "big", signed=True),
        int.from_bytes(data[12:], "big", signed=True),
    )


def _min_offset(stream: Stream, end: int, log_start: int) -> int:
    """The first entry of the first file whose record is still in the log; blank entries do not count."""
    first = stream.segments[0]
    view = stream.view(first)
    low, high = 0, min(end - first.start, first.size) // ENTRY_SIZE
    last = high
    while low < high:
        middle = (low + high) // 2
        entry = entry_at(view, middle * ENTRY_SIZE)
        if entry.size != BLANK_SIZE_FIELD and entry.physical_offset >= log_start:
            high = middle
        else:
            low = middle + 1
    return first.start // ENTRY_SIZE + (low if low < last else 0)


def _entry_time(log: Stream, entry: QueueEntry | None) -> int:
    if entry is None or entry.size == BLANK_SIZE_FIELD or entry.size <= 0:
        return NO_TIME_MS
    return _record_time(log, entry.physical_offset, entry.physical_offset + entry.size)


def _record_time(log: Stream, physical_offset: int, end: int) -> int:
    segment = log.at(physical_offset)
    if segment is None:
        return NO_TIME_MS
    limit = min(end - segment.start, segment.size)
    return record_store_timestamp(log.view(segment), physical_offset - segment.start, limit)


def _index(segment: Segment) -> IndexSummary:
    with segment.path.open("rb") as file:
        header = IndexHeader.parse(file.read(40).ljust(40, b"\0"))
    return IndexSummary(segment.path.name, segment.size, header.index_count - 1, *header[:4])


def _checkpoint(path: Path) -> dict[str, int] | None:
    if not path.exists():
        return None
    checkpoint = Checkpoint.load(path)
    return {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp_ms,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp_ms,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp_ms,
    }
