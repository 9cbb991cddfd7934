"""ReadAhead: what of the log and of the queues is known to be in memory, and what will be wanted next. Loop thread.

The loop must not touch a page that is on disk: it would wait for it, and all clients with it. So before a pull of
old messages is looked at, its parts of the queue and of the log are asked for here, in blocks. Of a block that was
found in memory that is believed for a while; one that was not is handed out to be read by a thread, and the pull is
served when that is done. Whoever reads on from block to block gets the next ones read by another thread while it is
busy with these (`expect_…`): then it never waits.

Nothing depends on the answers but time: a block that left memory again is read by whoever touches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from cometmq.store.commit_log import CommitLog
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.mapped_file import PAGE_SIZE
from cometmq.store.residency_cy import is_resident

LOG_BLOCK_SIZE = 1 << 20  # bytes
LOG_AHEAD_SIZE = 4 << 20  # bytes that are read ahead in one go
LOG_AHEAD_COUNT = (
    6  # so many: one lasts a fast reader for 5 ms, and the thread may get no processor for as long
)
QUEUE_BLOCK_SIZE = 128 << 10  # bytes: 6,553 entries
QUEUE_AHEAD_SIZE = 512 << 10  # bytes
QUEUE_AHEAD_COUNT = 1
BELIEVED_S = 2.0  # so long a block is taken to be in memory, or on its way there
BLOCKS_MAX = 10_000  # that are remembered


class Stream(Protocol):
    """The log, or a queue: bytes in files of one size."""

    file_size: int

    def read_rest(self, position: int, size_max: int) -> memoryview | None: ...


Block = tuple[Stream, int]  # and the position of its first byte


class ReadAhead:
    def __init__(
        self,
        commit_log: CommitLog,
        read_later: Callable[[memoryview], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = commit_log
        self._read_later = read_later  # False: not now
        self._clock = clock
        self._resident: dict[Block, float] = {}  # until when that is believed
        self._asked: dict[Block, float] = {}  # handed out to be read ahead; until when it is not done again

    def __len__(self) -> int:
        """Blocks that are remembered."""
        return len(self._resident) + len(self._asked)

    # What a pull has to wait for

    def missing_entries(self, queue: ConsumeQueue, start: int, end: int) -> list[memoryview]:
        """Blocks of a queue's stream with these positions that are not in memory."""
        if queue.limit and start >= queue.end - PAGE_SIZE:
            return []  # its end is being written to
        return self._missing(queue, start, min(end, queue.end), QUEUE_BLOCK_SIZE)

    def missing_records(self, start: int, end: int) -> list[memoryview]:
        """Blocks of the log with these physical offsets that are not in memory."""
        return self._missing(self._log, start, end, LOG_BLOCK_SIZE)

    def _missing(self, stream: Stream, start: int, end: int, block_size: int) -> list[memoryview]:
        now, missing = self._clock(), []
        while start < end:
            first, size = _block_at(stream, start, block_size)
            block = stream, first
            if self._resident.get(block, 0.0) < now:
                part = stream.read_rest(first, size)
                if part is None or is_resident(part):
                    _note(self._resident, block, now)
                else:
                    missing.append(part)
            start = first + size
        return missing

    def entries_known_to(self, queue: ConsumeQueue, position: int) -> int:
        """Behind a position that is in memory: up to where entries are too, as far as is worth asking for."""
        return self._known_to(queue, position, QUEUE_BLOCK_SIZE, QUEUE_AHEAD_SIZE)

    def records_known_to(self, physical_offset: int) -> int:
        """The same in the log. Not to the end of what is read ahead: who comes to it has more of that read."""
        return self._known_to(
            self._log, physical_offset, LOG_BLOCK_SIZE, LOG_AHEAD_SIZE * LOG_AHEAD_COUNT // 2
        )

    def _known_to(self, stream: Stream, position: int, block_size: int, size_max: int) -> int:
        end = min(position + size_max, position - position % stream.file_size + stream.file_size)
        while position < end:
            block, block_bytes = _block_at(stream, position, block_size)
            if self._missing(stream, position, block + block_bytes, block_size):
                break
            position = block + block_bytes
        return position

    # What it will want next

    def expect_entries(self, queue: ConsumeQueue, position: int) -> bool:
        """Somebody reads here: have the next entries read. False if that is to be said again at the next pull."""
        return self._expect(queue, position, queue.end, QUEUE_BLOCK_SIZE, QUEUE_AHEAD_SIZE, QUEUE_AHEAD_COUNT)

    def expect_records(self, physical_offset: int, end: int) -> bool:
        """The same in the log, up to `end`: what was written lately is in memory."""
        return self._expect(self._log, physical_offset, end, LOG_BLOCK_SIZE, LOG_AHEAD_SIZE, LOG_AHEAD_COUNT)

    def _expect(
        self, stream: Stream, position: int, end: int, block_size: int, ahead_size: int, ahead_count: int
    ) -> bool:
        """The next parts of that size are handed out, each once, if somebody seems to read on."""
        now = self._clock()
        first, size = _block_at(stream, position, ahead_size)
        for _ in range(ahead_count):
            first, size = _block_at(stream, first + size, ahead_size)
            if first >= end:
                break
            if self._asked.get((stream, first), 0.0) < now:
                if not self._reads_on(stream, position, block_size):
                    return False
                part = stream.read_rest(first, ahead_size)
                if not part or not self._read_later(part):
                    return False
                _note(self._asked, (stream, first), now)
        return True

    def _reads_on(self, stream: Stream, position: int, block_size: int) -> bool:
        """Not if this may be the only pull here: a block has just begun, and nobody knows the one before it."""
        first, size = _block_at(stream, position, block_size)
        if position - first >= size // 2:
            return True
        return (stream, _block_at(stream, first - 1, block_size)[0]) in self._resident

    def forget(self) -> None:
        """The log was cut, or files were removed."""
        self._resident.clear()
        self._asked.clear()


def _block_at(stream: Stream, position: int, block_size: int) -> tuple[int, int]:
    """The first position of a block and its size; blocks begin anew with each file."""
    in_file = position % stream.file_size
    first = in_file - in_file % block_size
    return position - in_file + first, min(block_size, stream.file_size - first)


def _note(table: dict[Block, float], block: Block, now: float) -> None:
    if len(table) >= BLOCKS_MAX:
        for old in [old for old, until in table.items() if until < now]:
            del table[old]
        if len(table) >= BLOCKS_MAX // 2:
            table.clear()
    table[block] = now + BELIEVED_S
