"""The bytes between a master and its slaves (protocol of 4.9), without sockets.

    slave to master   8  report: end of the slave's commit log; nothing else is ever sent
    master to slave   8  physical offset of the body
                      4  size of the body; 0 is a heartbeat, its offset is the next one to be sent
                         body: bytes of the commit log, never across two files; records may be cut

All numbers are signed and big-endian. The first report says where to begin; later ones acknowledge. Pure: bytes
in, values out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from cometmq.errors import RemoteProtocolError

REPORT = struct.Struct(">q")
FRAME_HEAD = struct.Struct(">qi")
FRAME_BODY_SIZE_MAX = 64 << 20  # bytes; 4.9 sends 32 KiB unless haTransferBatchSize says otherwise


class Piece(NamedTuple):
    """Some bytes of the log; empty for a heartbeat. A body may come in several pieces."""

    physical_offset: int
    data: memoryview


class ReportReader:
    """The master's side: reports out of received bytes."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        data = self._rest + data if self._rest else data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return [report for (report,) in REPORT.iter_unpack(data[:whole])]


class FrameReader:
    """The slave's side: pieces of the log out of received bytes, as they come."""

    __slots__ = ("_body_left", "_head", "_physical_offset")

    def __init__(self) -> None:
        self._head = b""  # begin of a frame head
        self._physical_offset = 0
        self._body_left = 0

    def feed(self, view: memoryview) -> Iterator[Piece]:
        """Pieces are views of what was fed. Raises RemoteProtocolError for a head that cannot be one."""
        while view:
            if self._body_left:
                piece = Piece(self._physical_offset, view[: self._body_left])
                size = len(piece.data)
                self._physical_offset += size
                self._body_left -= size
                view = view[size:]
                yield piece
                continue
            missing = FRAME_HEAD.size - len(self._head)
            self._head += view[:missing]
            view = view[missing:]
            if len(self._head) == FRAME_HEAD.size:
                self._begin_frame()
                if not self._body_left:
                    yield Piece(self._physical_offset, view[:0])

    def _begin_frame(self) -> None:
        self._physical_offset, size = FRAME_HEAD.unpack(self._head)
        self._head = b""
        if self._physical_offset < 0 or not 0 <= size <= FRAME_BODY_SIZE_MAX:
            raise RemoteProtocolError(
                f"The master sent a frame of {size} bytes at offset {self._physical_offset}, which cannot be: "
                "haMasterAddress must name the replication port of a master (its listenPort + 1)."
            )
        self._body_left = size
