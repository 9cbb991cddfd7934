"""Dispatch: queues and index follow the log, to its end or, on a replica, to what is confirmed. Loop thread only.

Records enter their queues in the commit that appended them. Where queues are behind (a new file was begun, an entry
could not be made, bytes came from a master, a replica confirmed more) the log is walked from where they stopped, file
by file. A failure is kept in ``error`` and tried again by the next ``run``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cometmq.errors import StoreError
from cometmq.store.commit_cy import QueuesEnd
from cometmq.store.commit_log import CommitLog
from cometmq.store.log_cut import LogCut
from cometmq.store.queue_table import QueueTable
from cometmq.store.scan_cy import STOP_BAD, scan_records
from cometmq.store.watches import Watches

log = logging.getLogger(__name__)


class Dispatch(QueuesEnd):
    offset: int  # up to which queues and index are complete
    confirmed: int | None  # queues know records below this offset only; None: all (no replica)
    on_append: Callable[[], None] | None  # called when the log has grown (replication)

    def __init__(
        self, commit_log: CommitLog, table: QueueTable, watches: Watches, log_cut: LogCut, *, raw: bool
    ) -> None:
        super().__init__(commit_log, table)
        # The log is copied from a master byte by byte: its end may be in the middle of a record
        self.raw = raw
        self.error: StoreError | None = None
        self._log = commit_log
        self._table = table
        self._watches = watches
        self._log_cut = log_cut

    @property
    def end(self) -> int:
        """Where queues and index are to end."""
        end = self._log.end_offset
        return end if self.confirmed is None else min(self.confirmed, end)

    @property
    def complete(self) -> bool:
        return self.offset == self.end

    def run(self) -> None:
        """Bring queues and index up to ``end``."""
        end = self.end
        try:
            while self.offset < end and self._dispatch_file(end):
                pass
            self.error = None
        except StoreError as error:
            self.note_failure(error)
        self._log.last_store_timestamp_ms = self._table.last_store_timestamp_ms
        if self._table.woken:
            self.wake()

    def note_failure(self, error: StoreError) -> None:
        if self.error is None:
            log.error(
                "records cannot be entered in their queues, sends are refused until they can: %s", error
            )
        self.error = error

    def wake(self) -> None:
        self._watches.wake()

    def _dispatch_file(self, log_end: int) -> bool:
        """Dispatch what is there of one file; False if it ends in the middle of a record."""
        file = self._log.file_at(self.offset)
        if file is None:  # an empty log that begins in the middle (replica)
            self.offset = self._log.min_offset
            return self._log.min_offset >= 0 and self.offset < log_end
        view, start, end = file.buffer(), self.offset - file.start, min(log_end, file.end) - file.start
        whole = not self.raw or self.confirmed is not None
        if end < file.size and whole:
            self._table.dispatch(view, start, end, file.start)  # records known to be complete
            self.offset = file.start + end
            return True
        scan = scan_records(view, start, end, file.start, False, file.size)
        self._table.dispatch(view, start, scan.end, file.start)
        self.offset = file.start + scan.end
        if end == file.size:
            if scan.stop == STOP_BAD:
                log.error(
                    "damaged record path=%s position=%d: %s; the rest of this file gets no queue entries",
                    file.path,
                    scan.end,
                    scan.reason,
                )
            self.offset = file.end
            return True
        return False

    # Replicas: queues follow what is confirmed

    def hold_back(self, confirmed_offset: int) -> None:
        """Take out of the queues what recovery entered beyond this offset; from now on ``confirm`` enters it."""
        self.confirmed = min(confirmed_offset, self._log.end_offset)
        if self.confirmed < self.offset:
            self._log_cut.cut_queues(self.confirmed)
            self.offset = max(self.confirmed, self._log.min_offset)

    def confirm(self, physical_offset: int) -> bool:
        """Everything below is confirmed: queues, index and held pulls get it. False if that is nothing new."""
        if self.confirmed is None or physical_offset <= self.confirmed:
            return False
        self.confirmed = physical_offset
        self.run()
        return True

    def go_back(self, physical_offset: int) -> None:
        """Log, queues and index were cut there."""
        self.offset = min(self.offset, physical_offset)
        if self.confirmed is not None:
            self.confirmed = min(self.confirmed, physical_offset)
