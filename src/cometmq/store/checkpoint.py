"""The file ``checkpoint``: up to which store time everything is known to be on disk.

    offset  bytes  field
    0       8      physicMsgTimestamp   commit log
    8       8      logicsMsgTimestamp   consume queues
    16      8      indexMsgTimestamp    index files
    24      ...    zero up to 4096 bytes

The attributes may be set from any thread (one int each); ``save`` may run in any thread, one at a time.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from cometmq.errors import StoreError

CHECKPOINT_SIZE = 4096
# Recovery steps back this far, since the three times are noted independently of each other.
SAFETY_MARGIN_MS = 3000

_FIELDS = struct.Struct(">qqq")


class Checkpoint:
    """Three times in milliseconds; 0 means that nothing is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.physic_msg_timestamp_ms = 0
        self.logics_msg_timestamp_ms = 0
        self.index_msg_timestamp_ms = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read the file; a missing or empty one means three zeros: recovery starts at the first file."""
        checkpoint = cls(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return checkpoint
        except OSError as error:
            raise StoreError(f"The checkpoint {path} cannot be read ({error.strerror}).") from error
        if data:
            checkpoint._parse(data)
        return checkpoint

    @property
    def min_timestamp_ms(self) -> int:
        """Commit log and queues are complete up to here."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - SAFETY_MARGIN_MS)

    def save(self) -> None:
        """Write and sync, in place: 24 bytes within one sector are not torn."""
        fields = _FIELDS.pack(
            self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms, self.index_msg_timestamp_ms
        )
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with contextlib.closing(os.fdopen(descriptor, "r+b", buffering=0)) as file:
                file.write(fields)
                if os.fstat(descriptor).st_size != CHECKPOINT_SIZE:
                    file.truncate(CHECKPOINT_SIZE)
                os.fdatasync(descriptor)
        except OSError as error:
            raise StoreError(f"The checkpoint {self.path} cannot be written ({error.strerror}).") from error

    def _parse(self, data: bytes) -> None:
        if len(data) != CHECKPOINT_SIZE:
            raise StoreError(
                f"The checkpoint {self.path} has {len(data)} bytes instead of {CHECKPOINT_SIZE}: "
                "delete it, and the next start checks the whole commit log."
            )
        times = _FIELDS.unpack_from(data)
        self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms, self.index_msg_timestamp_ms = times
