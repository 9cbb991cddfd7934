"""StoreDirectory: who may use a store directory, and whether it was left in order.

The file ``lock`` belongs to one process at a time. The file ``abort`` is there while the store is in use; found at a
start it says that the last process died, and recovery looks closer. Both are the original's.
"""

from __future__ import annotations

from pathlib import Path

from cometmq.errors import StoreError
from cometmq.store.file_ops import FileOps
from cometmq.store.lock_file import LockFile


class StoreDirectory:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = LockFile(root / "lock")
        self._abort = root / "abort"

    def take(self) -> None:
        """Make it if it is not there, and lock it. Raises StoreError."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The store directory {self.root} cannot be made ({error.strerror}): "
                "choose another storePathRootDir or give the user of the broker the right to write there."
            ) from error
        self._lock.acquire()

    @property
    def left_in_order(self) -> bool:
        return not self._abort.exists()

    def mark_in_use(self, ops: FileOps) -> None:
        """On disk when it returns: without that name a power loss would look like an orderly stop."""
        try:
            self._abort.touch()
            ops.sync_directory(self.root)
        except OSError as error:
            raise StoreError(
                f"The file {self._abort} cannot be written ({error.strerror}): "
                "the user of the broker must be able to write to this directory."
            ) from error

    def mark_left_in_order(self) -> None:
        self._abort.unlink(missing_ok=True)

    def release(self) -> None:
        self._lock.release()
