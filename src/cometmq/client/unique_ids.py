"""Unique message ids in RocketMQ's layout: address, pid, a constant, milliseconds of the month, a counter.

Tools derive the time of a message from its id, so the layout is protocol: 4 bytes of address, 2 of pid, 4 that are
constant in a process, 4 of milliseconds since the start of the month in local time, 2 of counter; upper-case hex.
"""

from __future__ import annotations

import ipaddress
import os
import random
import time

from cometmq.client.identity import local_ip

_HOUR_MS = 3_600_000


def month_start_ms(now_ms: int) -> int:
    """Local midnight of the first day of the month."""
    day = time.localtime(now_ms // 1000)
    return int(time.mktime((day.tm_year, day.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000


class UniqueIds:
    """Makes ids. One per client is enough; ids of several in one process differ by their constant."""

    __slots__ = ("_counter", "_prefix", "_recheck_ms", "_start_ms")

    def __init__(self, ip: str | None = None, pid: int | None = None, constant: int | None = None) -> None:
        address = ipaddress.ip_address(ip or local_ip()).packed
        process = (os.getpid() if pid is None else pid) & 0xFFFF
        own = random.getrandbits(32) if constant is None else constant
        self._prefix = (address + process.to_bytes(2, "big") + own.to_bytes(4, "big")).hex().upper()
        self._counter = 0
        self._start_ms = 0
        self._recheck_ms = 0

    def next(self, now_ms: int) -> str:
        if now_ms >= self._recheck_ms or now_ms < self._start_ms:
            # Looked at again each quarter of an hour: months begin at such a moment in every time zone.
            self._start_ms = month_start_ms(now_ms)
            self._recheck_ms = now_ms - now_ms % _HOUR_MS + _HOUR_MS // 4
            while self._recheck_ms <= now_ms:
                self._recheck_ms += _HOUR_MS // 4
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{now_ms - self._start_ms:08X}{counter:04X}"


def time_of(unique_id: str, now_ms: int) -> int:
    """When an id was made (ms), as far as it tells: the month is this one, or the last if that is in the future."""
    of_month_ms = int(unique_id[-12:-4], 16)
    made = month_start_ms(now_ms) + of_month_ms
    if made > now_ms:
        made = month_start_ms(month_start_ms(now_ms) - 1) + of_month_ms
    return made
