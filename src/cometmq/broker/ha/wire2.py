"""The stream between replicas of a group that elects its master (HA v2), without sockets.

A follower sends the 8 bytes ``PREAMBLE``, then both sides send frames:

    2  magic 0x4832   1  type     1  flags   4  size of the body   8  epoch   8  offset   8  confirm offset
    4  CRC-32 of the body         4  CRC-32 of the 36 bytes before          body

The preamble is negative as the first report of a 4.9 slave, which never is: one port serves both. Pure.
"""

from __future__ import annotations

import enum
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from cometmq.broker.ha.epochs import Epoch, Epochs
from cometmq.errors import RemoteProtocolError

PREAMBLE = bytes.fromhex("8052484100000002")
MAGIC = 0x4832
BODY_SIZE_MAX = 64 << 20  # bytes; one record or the blank end of a file may be larger than a usual frame
BUFFER_SIZE = 2 << 20

_HEAD = struct.Struct(">HBBIQQQI")
_CRC = struct.Struct(">I")
HEAD_SIZE = _HEAD.size + _CRC.size
_OFFSET = struct.Struct(">Q")


class FrameType(enum.IntEnum):
    HELLO = 1
    WELCOME = 2
    DATA = 3
    ACK = 4
    PING = 5
    META = 6
    METAACK = 7
    FENCE = 8


class WireFrame(NamedTuple):
    type: int
    epoch: int
    offset: int
    confirm: int
    body: memoryview  # valid until the next bytes are received


def encode_head(kind: FrameType, epoch: int, offset: int, confirm: int, body: bytes | memoryview) -> bytes:
    head = _HEAD.pack(MAGIC, kind, 0, len(body), epoch, offset, confirm, zlib.crc32(body))
    return head + _CRC.pack(zlib.crc32(head))


def encode_flushed(flushed_offset: int) -> bytes:
    """Body of an ACK."""
    return _OFFSET.pack(flushed_offset)


def decode_flushed(body: memoryview) -> int:
    return int(_OFFSET.unpack(body)[0]) if len(body) == _OFFSET.size else 0


def encode_greeting(fields: dict[str, Any], epochs: Epochs) -> bytes:
    """Body of HELLO and WELCOME."""
    return json.dumps({**fields, "epochs": [list(entry) for entry in epochs.entries]}).encode()


def decode_greeting(body: memoryview) -> tuple[dict[str, Any], Epochs]:
    """Raises RemoteProtocolError."""
    try:
        fields: dict[str, Any] = json.loads(bytes(body))
        return fields, Epochs(Epoch(int(epoch), int(start)) for epoch, start in fields["epochs"])
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise RemoteProtocolError(
            f"A replica greeted with something that is no greeting: {error}."
        ) from error


class FrameBuffer:
    """Received bytes, and the whole frames in them."""

    def __init__(self) -> None:
        self._data = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._data)
        self._end = 0

    def room(self) -> memoryview:
        return self._view[self._end :]

    def received(self, size: int) -> Iterator[WireFrame]:
        """Raises RemoteProtocolError for bytes that are no frame."""
        self._end += size
        start = 0
        while self._end - start >= HEAD_SIZE:
            kind, body_size, epoch, offset, confirm, crc = self._head(start)
            body_at = start + HEAD_SIZE
            if self._end - body_at < body_size:
                self._make_room(HEAD_SIZE + body_size, start)
                return
            body = self._view[body_at : body_at + body_size]
            if zlib.crc32(body) != crc:
                raise RemoteProtocolError(f"The body of a frame at offset {offset} has a wrong CRC.")
            yield WireFrame(kind, epoch, offset, confirm, body)
            start = body_at + body_size
        self._keep_from(start)

    def _head(self, at: int) -> tuple[int, int, int, int, int, int]:
        magic, kind, _, size, epoch, offset, confirm, crc = _HEAD.unpack_from(self._data, at)
        (head_crc,) = _CRC.unpack_from(self._data, at + _HEAD.size)
        if magic != MAGIC or head_crc != zlib.crc32(self._view[at : at + _HEAD.size]):
            raise RemoteProtocolError("A replica sent something that is no frame.")
        if size > BODY_SIZE_MAX:
            raise RemoteProtocolError(f"A replica sent a frame of {size} bytes.")
        return kind, size, epoch, offset, confirm, crc

    def _keep_from(self, start: int) -> None:
        left = self._end - start
        if start and left:
            self._view[:left] = bytes(self._view[start : self._end])
        self._end = left

    def _make_room(self, size: int, start: int) -> None:
        if size > len(self._data):
            grown = bytearray(size + BUFFER_SIZE)
            grown[: self._end - start] = self._view[start : self._end]
            self._end -= start
            self._data, self._view = grown, memoryview(grown)
        else:
            self._keep_from(start)
