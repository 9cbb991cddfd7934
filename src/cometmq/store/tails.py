"""The file `queue-tails`: where every queue ended at an orderly stop, so that the next start need not look.

Ours alone; the Java broker ignores it. It is deleted as soon as it was read, so that a crash never meets an old
one, and believed only if nothing has changed since: its own CRC, the ends of the log, the time stamps of the last
log file, of every topic directory and of every queue's last file, and earlier files without holes. Otherwise recovery
takes the long way.

    8  magic       8  log min     8  log end   8  last record   8  mtime of the last log file
    8  last store time            4  topics
    per topic:     2  length, name             8  mtime of its directory       4  queues
    per queue:     7 x 8: queue id, first file, last file, end, end of the last record, min offset, mtime
    4  CRC-32 of all this
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cometmq.store.commit_log import CommitLog
from cometmq.store.consume_queue import ConsumeQueue, looks_full
from cometmq.store.queue_table import QueueTable
from cometmq.store.scan_cy import scan_records

TAILS_FILE = "queue-tails"
MAGIC = b"CMQTAIL1"

_HEAD = struct.Struct(">8sqqqqqI")
_NAME_SIZE = struct.Struct(">H")
_TOPIC = struct.Struct(">qI")
_QUEUE = struct.Struct(">7q")
_CRC = struct.Struct(">I")


class Tail(NamedTuple):
    queue_id: int
    first_start: int
    last_start: int
    end: int
    max_physical_offset: int
    min_offset: int
    modified_ns: int


class Tails(NamedTuple):
    log_min: int
    log_end: int
    last_record_offset: int  # -1 if it stands in no queue
    log_modified_ns: int
    last_store_timestamp_ms: int
    topics: dict[bytes, tuple[int, list[Tail]]]  # mtime of the directory, queues


def save_tails(root: Path, log: CommitLog, table: QueueTable) -> None:
    """After everything was synced. Raises OSError."""
    parts = []
    topics = [found for found in table.topics.values() if _with_files(found.queues)]
    for topic_queues in topics:
        queues = _with_files(topic_queues.queues)
        modified_ns = os.stat(table.directory / topic_queues.topic).st_mtime_ns
        parts += [
            _NAME_SIZE.pack(len(topic_queues.name)),
            topic_queues.name,
            _TOPIC.pack(modified_ns, len(queues)),
        ]
        parts += [_QUEUE.pack(*_tail(queue)) for queue in queues]
    modified_ns = os.stat(log.files[-1].path).st_mtime_ns if log.files else 0
    head = _HEAD.pack(
        MAGIC, log.min_offset, log.end_offset, _last_record(log, table), modified_ns,
        table.last_store_timestamp_ms, len(topics),
    )  # fmt: skip
    data = head + b"".join(parts)
    temporary = root / f"{TAILS_FILE}.tmp"
    temporary.write_bytes(data + _CRC.pack(zlib.crc32(data)))
    os.replace(temporary, root / TAILS_FILE)


def _last_record(log: CommitLog, table: QueueTable) -> int:
    for queue in table.all():
        if queue.max_physical_offset == log.end_offset and (entry := queue.last_entry()) is not None:
            return entry.physical_offset
    return -1


def _with_files(queues: dict[int, ConsumeQueue]) -> list[ConsumeQueue]:
    return [queue for queue in queues.values() if queue.last_start >= 0]


def _tail(queue: ConsumeQueue) -> Tail:
    modified_ns = os.stat(queue.path_of(queue.last_start)).st_mtime_ns
    return Tail(
        queue.queue_id, queue.first_start, queue.last_start, queue.end, queue.max_physical_offset,
        queue.min_offset, modified_ns,
    )  # fmt: skip


def take_tails(root: Path) -> Tails | None:
    """Read the file and delete it; None if there is none or it is damaged."""
    path = root / TAILS_FILE
    try:
        data = path.read_bytes()
        path.unlink()
    except OSError:
        return None
    if len(data) < _HEAD.size + _CRC.size or not data.startswith(MAGIC):
        return None
    if _CRC.unpack(data[-_CRC.size :])[0] != zlib.crc32(data[: -_CRC.size]):
        return None
    _, log_min, log_end, last_record, modified_ns, timestamp_ms, count = _HEAD.unpack_from(data)
    return Tails(log_min, log_end, last_record, modified_ns, timestamp_ms, dict(_topics(data, count)))


def _topics(data: bytes, count: int) -> Iterator[tuple[bytes, tuple[int, list[Tail]]]]:
    at = _HEAD.size
    for _ in range(count):
        size = _NAME_SIZE.unpack_from(data, at)[0]
        name = data[at + _NAME_SIZE.size : at + _NAME_SIZE.size + size]
        at += _NAME_SIZE.size + size
        modified_ns, queue_count = _TOPIC.unpack_from(data, at)
        at += _TOPIC.size
        end = at + queue_count * _QUEUE.size
        yield name, (modified_ns, [Tail(*found) for found in _QUEUE.iter_unpack(data[at:end])])
        at = end


def still_true(tails: Tails, log: CommitLog, table: QueueTable) -> bool:
    """Is everything as it was when the file was written?"""
    try:
        return log_unchanged(tails, log) and _queues_unchanged(tails, table)
    except OSError:
        return False


def log_unchanged(tails: Tails, log: CommitLog) -> bool:
    if not log.files or log.min_offset != tails.log_min:
        return False
    last = log.files[-1]
    if not last.start <= tails.log_end <= last.end:
        return False
    if os.stat(last.path).st_mtime_ns != tails.log_modified_ns:
        return False
    # Mapped writes do not change the time stamp on every file system: look at the end itself.
    end = tails.log_end - last.start
    if any(last.buffer()[end : min(end + 8, last.size)]):
        return False
    begin = tails.last_record_offset - last.start
    if begin < 0:
        return True
    scan = scan_records(last.buffer(), begin, end, last.start, True)
    return (scan.count, scan.end) == (1, end)


def _queues_unchanged(tails: Tails, table: QueueTable) -> bool:
    root = str(table.directory)
    present = os.listdir(root) if os.path.isdir(root) else []
    if {name.encode() for name in present} != set(tails.topics):
        return False
    for name, (modified_ns, queues) in tails.topics.items():
        directory = f"{root}/{name.decode()}"
        if os.stat(directory).st_mtime_ns != modified_ns:
            return False
        for tail in queues:
            path = f"{directory}/{tail.queue_id}"
            status = os.stat(f"{path}/{tail.last_start:020d}")
            if status.st_mtime_ns != tail.modified_ns or status.st_size != table.file_size:
                return False
            for start in range(tail.first_start, tail.last_start, table.file_size):
                if not looks_full(f"{path}/{start:020d}", table.file_size):
                    return False
    return True


def apply_tails(tails: Tails, table: QueueTable) -> None:
    """Make the queues without looking into their files."""
    for name, (_, queues) in tails.topics.items():
        topic_queues = table.topic_queues(name)
        for tail in queues:
            queue = table.new_queue(topic_queues, tail.queue_id)
            queue.first_start, queue.last_start = tail.first_start, tail.last_start
            queue.end, queue.max_physical_offset = tail.end, tail.max_physical_offset
            queue.min_offset = tail.min_offset
            queue.recover_ext()
    table.last_store_timestamp_ms = tails.last_store_timestamp_ms
