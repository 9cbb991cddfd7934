"""``ha/confirm``: how far the log was confirmed a second ago, or at the last stop. A hint, never trusted upward.

8  confirm offset    8  epoch    4  CRC-32
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from cometmq.broker.ha.durable_file import DamagedFile, checked, with_crc, write_durably

_LAYOUT = struct.Struct(">QQ")


class Confirmed(NamedTuple):
    offset: int
    epoch: int


def load_confirmed(path: Path) -> Confirmed | None:
    """None if nothing is known (a damaged hint is no hint)."""
    try:
        return Confirmed(*_LAYOUT.unpack(checked(path, path.read_bytes(), _LAYOUT.size)))
    except (FileNotFoundError, DamagedFile):
        return None


def save_confirmed(path: Path, confirmed: Confirmed) -> None:
    write_durably(path, with_crc(_LAYOUT.pack(*confirmed)))
