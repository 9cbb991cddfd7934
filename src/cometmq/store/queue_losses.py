"""QueueLosses: ConsumeQueues whose files have lost entries that the log still has. Part of recovery, loop thread.

A queue is damaged if a file is missing, has a wrong length or a hole; if it begins behind records of its own that are
still in the log; or if it ends before where the last orderly stop left it. Such a queue forgets everything from the
first lost entry on, and recovery dispatches the log from the record before it: queue offsets stand in the records, so
entries come back where they were.

Nothing is removed before the checkpoint on disk says that queues are not to be trusted (`distrust`): if the process
dies while entries are made anew, the next start goes through the whole log.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cometmq.errors import StoreError
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.commit_log import CommitLog
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.file_ops import file_name
from cometmq.store.queue_repair import QueueRepair
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, ENTRY_SIZE
from cometmq.store.queue_table import QueueTable
from cometmq.store.tails import Tails

NOTES_MAX = 100  # queues that are named one by one

Note = Callable[[str], None]


class QueueLosses:
    def __init__(
        self,
        commit_log: CommitLog,
        table: QueueTable,
        checkpoint: Checkpoint,
        repair: QueueRepair,
        distrust: Callable[[], None],
        note: Note,
    ) -> None:
        self._log = commit_log
        self._table = table
        self._trusted_ms = checkpoint.min_timestamp_ms
        self._repair = repair
        self._distrust = distrust
        self._note = note
        self._found: dict[ConsumeQueue, str] = {}
        self._headless: set[ConsumeQueue] = set()
        self._whole_queue = False  # there is nothing left of a queue, not even its name
        self._known: set[ConsumeQueue] = set()
        self._dispatched_from = 0

    def find(self, tails: Tails | None) -> None:
        """Find the ends of all queues, and what is lost. `tails`: how the last orderly stop left them, if it is sure.

        Changes nothing on disk.
        """
        for queue, starts in self._table.useless.items():
            self._found[queue] = f"{file_name(starts[0])} has a wrong length or stands behind a missing file"
        for queue in self._table.all():
            if self._recover(queue):
                self._found[queue] = "a part of its files is empty"
            if self._log.files and queue.last_start >= 0:
                self._look_at_front(queue)
        if tails is not None:
            self._compare(tails)

    def _recover(self, queue: ConsumeQueue) -> bool:
        try:
            return queue.recover()
        except OSError as error:
            raise StoreError(
                f"The ConsumeQueue {queue.directory} cannot be read ({error.strerror}): check who may read its files, "
                "and its disk; if the files are lost, delete them, and the next start makes them anew from the log."
            ) from error

    def _look_at_front(self, queue: ConsumeQueue) -> None:
        if queue.end == queue.first_start and self._was_emptied(queue):
            self._found[queue] = "its files are empty"
        elif self._begins_too_late(queue):
            self._found[queue] = "its first files are missing"
            self._headless.add(queue)

    def _was_emptied(self, queue: ConsumeQueue) -> bool:
        """A queue gets its file with its first entry, so a crash may have taken the page with the entry. But not if
        the file is older than what the checkpoint vouches for. (What is younger is dispatched, see late().)"""
        modified_ms = os.stat(queue.path_of(queue.first_start)).st_mtime_ns // 1_000_000
        return modified_ms < self._trusted_ms

    def _begins_too_late(self, queue: ConsumeQueue) -> bool:
        """Are records of a queue in the log which come before its first entry?"""
        first = queue.entry(queue.min_offset) if queue.first_start > 0 else None
        if first is None or first.size == BLANK_SIZE_FIELD or first.physical_offset <= self._log.min_offset:
            return False
        # As long as nothing has left the log every queue has its first file.
        return self._log.min_offset == 0 or self._repair.in_log_before(
            queue, queue.min_offset - 1, first.physical_offset
        )

    def _compare(self, tails: Tails) -> None:
        for name, (_, left) in tails.topics.items():
            for tail in left:
                queue = self._table.find(name.decode(), tail.queue_id)
                if queue is None or queue.last_start < 0:
                    self._whole_queue = True
                    self._note(
                        f"queue {name.decode()}/{tail.queue_id} is missing: it is made anew from the log"
                    )
                elif queue.first_start > tail.first_start:
                    self._found[queue] = "its first files are missing"
                    self._headless.add(queue)
                elif queue.end < tail.end:
                    self._found[queue] = "it ended further behind when the store was closed"

    def discard(self) -> None:
        """Forget what stands behind lost entries. Raises StoreError, OSError."""
        self._known = set(self._table.all())
        if not self._found and not self._whole_queue:
            return
        self._distrust()
        for queue, reason in self._found.items():
            for start in self._table.useless.get(queue, ()):
                self._table.open_files.ops.unlink(queue.path_of(start))
            if queue in self._headless or queue.end == queue.first_start:
                queue.destroy()
            else:
                queue.forget_behind()
            self._tell(queue, reason)

    def add(self, queue: ConsumeQueue) -> None:
        """Entries at the end of a queue were found to be wrong, and are gone."""
        self._found.setdefault(queue, "its last entries were wrong")

    def _tell(self, queue: ConsumeQueue, reason: str) -> None:
        if len(self._found) <= NOTES_MAX:
            self._note(
                f"queue {queue.topic}/{queue.queue_id} is made anew from offset {queue.max_offset} on: {reason}"
            )

    def dispatch_from(self, otherwise: int) -> int:
        """The physical offset from which on the log gives back what was lost."""
        ends = [queue.max_physical_offset for queue in self._found]
        lowest = 0 if self._whole_queue else min(ends, default=otherwise)
        self._dispatched_from = min(otherwise, max(lowest, self._log.min_offset))
        return self._dispatched_from

    def late(self) -> int | None:
        """After dispatching: queues that begin, or go on, behind records of theirs that are in the log. They are cut
        there; the physical offset from which on to dispatch again, None if there is no such queue."""
        starts: list[int] = []
        for queue in self._table.all():
            position = self._late_loss(queue)
            if position is None:
                continue
            if not starts:
                self._distrust()
            if position == 0:
                queue.destroy()
            else:
                queue.cut_to(position)
            self._tell(queue, "entries were missing")
            starts.append(max(queue.max_physical_offset, self._log.min_offset))
        return min(starts, default=None)

    def _late_loss(self, queue: ConsumeQueue) -> int | None:
        """The position of the first entry that a queue has lost."""
        gap, queue.gap = queue.gap, None
        if queue.last_start >= 0 and queue.end == queue.first_start:
            known = self._repair.in_log_before(queue, None, self._dispatched_from)
            return 0 if known else None
        if queue not in self._known and queue.min_offset > 0:
            gap = (0, queue.min_offset * ENTRY_SIZE)
        return gap[0] if gap is not None and self._lost_in(queue, gap[1] // ENTRY_SIZE) else None

    def _lost_in(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Is the record before this one in the log?"""
        entry = queue.entry(queue_offset)
        return entry is not None and self._repair.in_log_before(
            queue, queue_offset - 1, entry.physical_offset
        )
