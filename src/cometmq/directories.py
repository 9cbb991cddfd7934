"""Names on disk: what was created, renamed or removed survives a loss of power once its directory is synced."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path | str) -> None:
    """Blocking. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
