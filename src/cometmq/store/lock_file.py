"""The file ``lock``: one process at a time owns a store directory.

Held is a POSIX record lock on byte 0 (length 1), the same that the Java broker takes, so the two exclude each
other. Such locks belong to the process and vanish when it closes *any* descriptor of the file; that is why a
second opening in the same process is refused by a table of ours before the file is touched, and why
``lock_holder`` looks into /proc/locks instead of opening the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from cometmq.errors import StoreError

LOCK_TEXT = b"lock"

# struct flock of Linux: l_type, l_whence, l_start, l_len, l_pid
_FLOCK = struct.Struct("hhqqi4x")
_PROC_LOCKS = Path("/proc/locks")

_held_here: set[tuple[int, int]] = set()


class LockFile:
    """Exclusive ownership of a store directory from ``acquire`` to ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None

    def acquire(self) -> None:
        """Take the lock or raise StoreError that says who has it."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if _identity(os.stat(self.path)) in _held_here:
                raise _locked(self.path, os.getpid())
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"The lock file {self.path} cannot be opened ({error.strerror}): "
                "the user of the broker must be able to write to this directory."
            ) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            holder = _ask_kernel(descriptor)
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise StoreError(f"The lock file {self.path} cannot be locked ({error.strerror}).") from error
            raise _locked(self.path, holder) from error
        self._own(descriptor)

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._identity is not None:
            os.close(self._descriptor)
            _held_here.discard(self._identity)
            self._descriptor, self._identity = -1, None

    def _own(self, descriptor: int) -> None:
        self._descriptor, self._identity = descriptor, _identity(os.fstat(descriptor))
        _held_here.add(self._identity)
        if os.pread(descriptor, len(LOCK_TEXT) + 1, 0) != LOCK_TEXT:
            with contextlib.suppress(OSError):  # the text is a courtesy, a full disk no reason to stop
                os.pwrite(descriptor, LOCK_TEXT, 0)
                os.ftruncate(descriptor, len(LOCK_TEXT))


def lock_holder(path: Path) -> int | None:
    """Process id of whoever holds the lock, None if nobody or not to be told. Never opens the file."""
    try:
        device, inode = _identity(os.stat(path))
        lines = _PROC_LOCKS.read_text().splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in lines:
        # "7: POSIX  ADVISORY  WRITE 4711 fe:00:131 0 0"
        words = line.split()
        if len(words) >= 6 and words[1] == "POSIX" and words[3] == "WRITE" and words[5] == wanted:
            return int(words[4])
    return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _ask_kernel(descriptor: int) -> int | None:
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    except (OSError, struct.error):
        return None
    # 0 or negative: released meanwhile, or the process lives in another pid namespace.
    return answer[4] if answer[0] != fcntl.F_UNLCK and answer[4] > 0 else None


def _locked(path: Path, holder: int | None) -> StoreError:
    if holder == os.getpid():
        who = f"this process ({holder}) already"
    elif holder is not None:
        who = f"process {holder}"
    else:
        who = "another process"
    return StoreError(
        f"The store {path.parent} is in use by {who} (lock file {path}): "
        "stop that broker first, or choose another storePathRootDir."
    )
