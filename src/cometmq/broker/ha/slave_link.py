"""The master's side of one slave's connection: what the slave reports, what it is sent.

Theory of operation. Nothing is sent before the first report. From then on ``pump`` writes frames from the mapped
log until the slave has everything or the transport is full; it runs then, when the log has grown, when the transport
drains, and again when one turn was not enough. Pages that a slave far behind needs from disk are read by a thread
first. Two departures from 4.9: a blank slave is sent the whole log and not only its last file, and a report that
cannot be true closes the connection and acknowledges nothing. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, cast

from cometmq.broker.ha.stream import FRAME_HEAD, ReportReader
from cometmq.store.residency_cy import is_resident, read_in

if TYPE_CHECKING:
    from cometmq.broker.config import BrokerConfig
    from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

TURN_SIZE_MAX = 1 << 20  # bytes sent in one turn of the loop
# Bytes of a frame at least, whatever haTransferBatchSize says (32 KiB in 4.9, whose slaves take up to 4 MiB): each
# costs both sides some calls.
FRAME_SIZE_MIN = 256 << 10
UNSENT_SIZE_MAX = 4 << 20  # bytes the transport may hold before we stop
COLD_DISTANCE = 16 << 20  # bytes from the end of the log beyond which pages may have left memory


class LinkOwner(Protocol):
    """What a link needs of the server it belongs to."""

    config: BrokerConfig
    store: MessageStore

    def link_opened(self, link: SlaveLink) -> None: ...

    def link_reported(self, link: SlaveLink) -> None: ...

    def link_refused(self, link: SlaveLink, reason: str) -> None: ...

    def link_closed(self, link: SlaveLink) -> None: ...


class SlaveLink(asyncio.Protocol):
    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self._store = owner.store
        self._reports = ReportReader()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._reading_in = False
        self._pump_scheduled = False
        self.heard_s = self.wrote_s = self._loop.time()
        self.peer = ""
        self.next_offset = -1  # what is sent next; -1 before the first report
        self.acknowledged_offset = -1
        self.bytes_sent = 0

    @property
    def reported(self) -> bool:
        return self.next_offset >= 0

    # -- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._transport.set_write_buffer_limits(high=UNSENT_SIZE_MAX)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._owner.link_opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._owner.link_closed(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    # -- reports --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        is_first = not self.reported
        for report in self._reports.feed(data):
            problem = self._take_next(report) if self.reported else self._take_first(report)
            if problem:
                self._owner.link_refused(self, problem)
                self.close()
                return
        if is_first:
            self.pump()

    def _take_first(self, report: int) -> str | None:
        """Where the slave wants to begin; why not, if it cannot."""
        first, end = max(self._store.min_physical_offset, 0), self._store.confirmed_offset
        if not 0 <= report <= end:
            return f"it asks for offset {report}, but the log ends at {end}; its store is of another history"
        if 0 < report < first:
            return (
                f"it asks for offset {report}, but the log begins at {first}; "
                "it has been away too long and must begin again with an empty store"
            )
        self.next_offset = report or first
        self._acknowledge(report)
        return None

    def _take_next(self, report: int) -> str | None:
        # A slave has at most what it was sent; a first byte it made itself (see follower) is no exception.
        if not 0 <= report <= self.next_offset:
            return f"it reports offset {report}, but was sent only what is before {self.next_offset}"
        self._acknowledge(report)
        return None

    def _acknowledge(self, report: int) -> None:
        self.acknowledged_offset = report
        self._owner.link_reported(self)

    # -- sending --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what there is, as far as the transport takes it."""
        self._pump_scheduled = False
        if self._transport is None or not self.reported or self._paused or self._reading_in:
            return
        end = self._store.confirmed_offset
        if self.next_offset >= end:
            return
        if end - self.next_offset > COLD_DISTANCE and self._read_in_first():
            return
        self._send_turn()
        if self.next_offset < end and not self._paused and not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self.pump)

    def _send_turn(self) -> None:
        assert self._transport is not None
        parts: list[bytes | memoryview] = []
        left = min(TURN_SIZE_MAX, self._store.confirmed_offset - self.next_offset)
        frame_size = max(FRAME_SIZE_MIN, self._owner.config.ha_transfer_batch_size)
        while left > 0:
            part = self._store.read_log(self.next_offset, min(left, frame_size))
            if part is None:
                self._owner.link_refused(self, f"the log does not have offset {self.next_offset} any more")
                self.close()
                return
            if not part:
                break
            parts += (FRAME_HEAD.pack(self.next_offset, len(part)), part)
            self.next_offset += len(part)
            self.bytes_sent += len(part)
            left -= len(part)
        if parts:
            self.wrote_s = self._loop.time()
            self._transport.writelines(parts)

    def _read_in_first(self) -> bool:
        """Have a thread read pages that are not in memory; True if it was necessary."""
        part = self._store.read_log(self.next_offset, TURN_SIZE_MAX)
        if not part or is_resident(part):
            return False
        self._reading_in = True
        reading = self._loop.run_in_executor(None, read_in, part)
        reading.add_done_callback(self._read_in)
        return True

    def _read_in(self, reading: asyncio.Future[None]) -> None:
        self._reading_in = False
        if not reading.cancelled() and reading.exception() is not None:
            log.warning("log pages were not read ahead slave=%s: %s", self.peer, reading.exception())
        self._send_now()

    def _send_now(self) -> None:
        """As ``pump``, without looking at memory again: the pages may have been dropped at once."""
        if self._transport is None or self._paused:
            return
        self._send_turn()
        self.pump()

    def heartbeat(self) -> None:
        """Tell an idle slave that we are there, and where we are."""
        if self._transport is not None and self.reported and not self._paused:
            self.wrote_s = self._loop.time()
            self._transport.write(FRAME_HEAD.pack(self.next_offset, 0))
