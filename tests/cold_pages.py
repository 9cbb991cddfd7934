"""Messages that are on disk and not in memory: what tests of cold reads share."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from cometmq.store.residency_cy import is_resident

PAGE_SIZE = 4096


def drop_pages(root: Path) -> None:
    """Make the system forget the pages of all files of a store; they must not be mapped."""
    for path in root.rglob("*"):
        if path.is_file():
            drop_file(path)
    if resident_share(root / "commitlog" / f"{0:020d}") > 0.1:
        pytest.skip("this file system keeps its files in memory")


def drop_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(path: Path) -> float:
    """How much of a file is in memory, 0 to 1."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        view = memoryview(mapped)
        pages = [is_resident(view[at : at + PAGE_SIZE]) for at in range(0, len(view), PAGE_SIZE)]
        view.release()
    return sum(pages) / len(pages)
