"""A small store of several files, as most tests of its log want one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.store import MessageStore

FILE_SIZE = 65536


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = MessageStore(
        StoreConfig(store_path_root_dir=tmp_path / "store", mapped_file_size_commit_log=FILE_SIZE)
    )
    store.open()
    try:
        yield store
    finally:
        store.close()
