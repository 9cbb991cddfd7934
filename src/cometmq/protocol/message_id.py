"""The two message ids. Both are upper-case hex of 16 bytes (28 with an IPv6 address).

Offset id, made by the broker: where the message is stored::

    4/16  store host ip    4  port    8  physical offset

Unique id (property UNIQ_KEY), made by the producer before the first attempt to send::

    4/16  ip    2  pid    4  a constant of the process    4  ms since the start of the month, local time    2  counter

Tools derive from the unique id when the message was made, so the layout matters.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.protocol.host import HostPort, decode_host, encode_host

ID_V4_LENGTH = 32  # characters
ID_V6_LENGTH = 56


class OffsetMessageId(NamedTuple):
    """What an offset id says."""

    store_host: HostPort
    physical_offset: int


def offset_message_id(store_host: HostPort | bytes, physical_offset: int) -> str:
    """The id of the message at an offset. The host may be given in the form of a record."""
    host = store_host if isinstance(store_host, bytes) else encode_host(*store_host)
    return host.hex().upper() + f"{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


def parse_offset_message_id(message_id: str) -> OffsetMessageId:
    """Read an offset id, in upper or lower case."""
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        data = b""
    if len(message_id) != 2 * len(data) or len(message_id) not in (ID_V4_LENGTH, ID_V6_LENGTH):
        raise RemoteProtocolError(
            f"{message_id[:64]!r} is not a message id: 32 or 56 hexadecimal digits were expected."
        )
    return OffsetMessageId(decode_host(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


def month_start_ms(now_ms: int) -> int:
    """Start of the month in local time, as Java's calendar gives it."""
    moment = datetime.fromtimestamp(now_ms / 1000)
    start = datetime(moment.year, moment.month, 1)
    return round(start.timestamp() * 1000)


class UniqueIds:
    """Makes unique ids. One per process; the parts that identify the process come from outside.

    Not for several threads at once: the counter is a plain number.
    """

    def __init__(self, ip: str, pid: int, constant: int, now_ms: Callable[[], int]) -> None:
        try:
            address = ipaddress.ip_address(ip).packed
        except ValueError as error:
            raise LocalProtocolError(f"{ip!r} is not a numeric address.") from error
        process = (pid & 0xFFFF).to_bytes(2, "big") + (constant & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = (address + process).hex().upper()
        self._now_ms = now_ms
        self._counter = 0
        self._month_start = self._month_end = 0

    def next(self) -> str:
        """One more id."""
        now = self._now_ms()
        if not self._month_start <= now < self._month_end:
            self._month_start = month_start_ms(now)
            self._month_end = month_start_ms(self._month_start + _LONGER_THAN_A_MONTH_MS)
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._prefix}{now - self._month_start & 0xFFFFFFFF:08X}{counter:04X}"


_LONGER_THAN_A_MONTH_MS = 32 * 24 * 3600 * 1000


class UniqueIdParts(NamedTuple):
    """What a unique id says; ``month_ms`` counts from the start of some month."""

    ip: str
    pid: int
    constant: int
    month_ms: int
    counter: int


def parse_unique_id(message_id: str) -> UniqueIdParts:
    """Read a unique id, in upper or lower case (Go writes the last digits in lower case)."""
    try:
        data = bytes.fromhex(message_id)
        address = ipaddress.ip_address(data[:-12])
    except ValueError as error:
        raise RemoteProtocolError(f"{message_id[:64]!r} is not a unique message id.") from error
    numbers = [int.from_bytes(data[a:b], "big") for a, b in ((-12, -10), (-10, -6), (-6, -2))]
    return UniqueIdParts(str(address), numbers[0], numbers[1], numbers[2], int.from_bytes(data[-2:], "big"))


def unique_id_time_ms(message_id: str, now_ms: int) -> int:
    """When a unique id was made: this month, or the month before if that would be in the future."""
    month_ms = parse_unique_id(message_id).month_ms
    start = month_start_ms(now_ms)
    if start + month_ms > now_ms:
        start = month_start_ms(start - 1)
    return start + month_ms
