"""What clients and brokers did in a test of high availability, as JSON lines. The checker reads it.

Operations and the fields that each needs besides t, process, op and phase (invoke, ok, fail, info):

* ``send``       topic, key, seq; ok: queue, offset, level; due for a delayed one. ``fail`` only if surely not appended
* ``read``       topic, queue, offset, key, replica; physical and confirm if known; seek if the consumer jumped here
                 or begins; final in the last drain
* ``confirm``    group, offset: the confirm offset that a *serving* master reports
* ``master``     group, epoch, replica: has begun to serve
* ``lease``      group, replica, until: may grant locks from t to until
* ``checksum``   group, replica, key (what was summed up), value
* ``commit``     group, topic, queue, offset: a consumer's position was accepted
* ``committed``  group, topic, queue, offset, end: the position that is found after a failover, and the end of the queue
* ``lock``       group, topic, queue, until; ``unlock`` the same without until. The process is the client
* ``half``       key; ``decide`` key, value (commit, rollback, unknown); ``check`` key: the broker asked again
* ``fault``      value: what was done, one of GAP_MAX_MS of the checker or anything else; ``recovered`` ends it
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

NONE = -1


class Event(msgspec.Struct, omit_defaults=True):
    t: int  # nanoseconds since boot
    process: str
    op: str
    phase: str = "ok"
    group: str = ""
    topic: str = ""
    queue: int = NONE
    offset: int = NONE
    key: str = ""
    seq: int = NONE
    epoch: int = NONE
    replica: int = NONE
    level: str = ""
    value: str = ""
    retried: bool = False
    seek: bool = False
    final: bool = False
    physical: int = NONE
    confirm: int = NONE
    end: int = NONE
    due: int = 0  # nanoseconds since boot, as until
    until: int = 0


def boot_ns() -> int:
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class History:
    """Writes events from any thread; every line is complete, so that a killed writer leaves a readable file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def add(self, process: str, op: str, phase: str = "ok", *, t: int = 0, **fields: Any) -> None:
        event = Event(t or boot_ns(), process, op, phase, **fields)
        with self._lock:
            self._file.write(self._encoder.encode(event) + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def read_history(paths: Iterable[Path]) -> Iterator[Event]:
    """Events of all files in the order of their times; a line cut short by a kill is left out."""
    decoder = msgspec.json.Decoder(Event)
    lines = (line for path in paths for line in path.read_bytes().splitlines(keepends=True))
    events = [decoder.decode(line) for line in lines if line.endswith(b"\n")]
    events.sort(key=lambda event: event.t)
    return iter(events)
