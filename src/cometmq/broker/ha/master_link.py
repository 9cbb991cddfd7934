"""The slave's side of the connection to its master: log bytes in, reports out.

Bytes go from the receive buffer straight to their place in the mapped log; a record may be cut by a frame, the store
enters it in its queues when it is complete. One report follows each read from the socket that brought something.
Bytes that do not continue our log end the connection: nothing is ever overwritten. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from cometmq.broker.ha.stream import REPORT, FrameReader, Piece
from cometmq.errors import CometMQError, RemoteProtocolError
from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

RECEIVE_SIZE = 512 * 1024  # bytes read at once


class MasterLink(asyncio.BufferedProtocol):
    """``first_report`` is where to begin: the end of our log, or for an empty one what ``Follower`` found out."""

    def __init__(self, store: MessageStore, first_report: int) -> None:
        self._store = store
        self._first_report = first_report
        self._frames = FrameReader()
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[str] = self._loop.create_future()  # why it ended
        self.heard_s = self.reported_s = self._loop.time()
        self.master_offset = -1  # the end of what the master has sent or announced; -1 before it has
        self.bytes_received = 0
        self._why = ""

    # -- the connection -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._send_report(self._first_report)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(self._why or (str(error) if error else "the master closed the connection"))

    def close(self, why: str) -> None:
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    # -- bytes ----------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_s = self._loop.time()
        before = self._store.max_physical_offset
        try:
            self._take(list(self._frames.feed(self._buffer[:nbytes])))
        except CometMQError as error:
            self.close(str(error))
            return
        if self._store.max_physical_offset != before:
            self.report()

    def _take(self, pieces: list[Piece]) -> None:
        """All at once: what one read brought enters the queues together."""
        if not pieces:
            return  # the begin of a frame's head
        end = self._store.max_physical_offset
        for physical_offset, data in pieces:
            self._check_continues(physical_offset, end)
            end = physical_offset + len(data)
            self.bytes_received += len(data)
        self.master_offset = end
        self._store.append_raw(pieces[0].physical_offset, *(data for _, data in pieces))

    def _check_continues(self, physical_offset: int, end: int) -> None:
        """The store must not take bytes elsewhere than at its end; an empty one could begin anywhere."""
        if end:
            fits = physical_offset == end
        elif self._first_report:
            fits = physical_offset == self._first_report
        else:
            fits = physical_offset % self._store.config.mapped_file_size_commit_log == 0
        if not fits:
            raise RemoteProtocolError(
                f"The master sends offset {physical_offset}, but our log ends at {end}: the two logs have "
                "parted, or mappedFileSizeCommitLog differs; a slave begins again with an empty store."
            )

    # -- reports --------------------------------------------------------------------------------------------------

    def report(self) -> None:
        """Tell the master how far we are."""
        self._send_report(self._store.max_physical_offset or self._first_report)

    def _send_report(self, physical_offset: int) -> None:
        if self._transport is not None:
            self.reported_s = self._loop.time()
            self._transport.write(REPORT.pack(physical_offset))
