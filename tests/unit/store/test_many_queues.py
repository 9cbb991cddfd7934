"""More queues than files may be open: the bound scaled down, the behaviour the same."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from store_kit import bodies, message, opened, small_config

from cometmq.store.file_ops import file_name
from cometmq.store.mapped_file import (
    MAPS_MAX,
    MAPS_RESERVED,
    MappedFile,
    OpenFiles,
    open_files_limit,
    raise_descriptor_limit,
)
from cometmq.store.store import MessageStore

TOPICS, QUEUES = 40, 8


def descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_all_queues_are_written_and_read_within_the_bound(tmp_path: Path) -> None:
    config = small_config(tmp_path, open_files_max=20)
    before = descriptor_count()
    with opened(config) as store:
        for round_number in range(3):
            for topic in range(TOPICS):
                for queue_id in range(QUEUES):
                    result = store.put(message(f"{round_number}", topic=f"T{topic}", queue_id=queue_id))
                    assert result.queue_offset == round_number
        assert len(store.open_files) <= 20
        assert descriptor_count() - before < 20 + 15
        for topic in range(TOPICS):
            for queue_id in range(QUEUES):
                assert bodies(store, f"T{topic}", queue_id) == [b"0", b"1", b"2"]
    store = MessageStore(config)
    report = store.open()
    assert (report.queue_count, report.tails_trusted) == (TOPICS * QUEUES, True)
    assert store.put(message("3", topic="T7", queue_id=3)).queue_offset == 3
    store.kill_for_test()
    with opened(config) as store:
        assert bodies(store, "T7", 3) == [b"0", b"1", b"2", b"3"]
        assert bodies(store, "T8", 3) == [b"0", b"1", b"2"]


def test_queue_in_use_stays_mapped_and_idle_ones_go(tmp_path: Path) -> None:
    with opened(small_config(tmp_path, open_files_max=10)) as store:
        busy = store.table.find_or_make("busy", 0)
        mapped_again = 0
        for n in range(60):
            mapped_again += busy.view is None
            store.put(message(topic="busy"))
            store.put(message(topic=f"other{n}"))
        assert mapped_again < 15  # each of the others is mapped once, 60 times in all
        store.open_files.close_idle()
        store.open_files.close_idle()
        assert busy.view is None
        # The current log file is pinned; a queue comes back by itself.
        assert len(store.open_files) == 1
        assert store.put(message(topic="busy")).queue_offset == 60


def test_view_outlives_the_table_entry(tmp_path: Path) -> None:
    files = OpenFiles(count_max=1)
    paths = [tmp_path / file_name(n * 4096) for n in range(2)]
    mapped = [MappedFile(path, n * 4096, 4096, files) for n, path in enumerate(paths)]
    for file in mapped:
        file.create()
    view = mapped[0].buffer()
    view[:5] = b"hello"
    mapped[1].buffer()
    assert mapped[0].view is None
    assert bytes(view[:5]) == b"hello"
    view[:5] = b"again"
    assert paths[0].read_bytes()[:5] == b"again"


def test_soft_limit_of_descriptors_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 5000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, new: limits.append(new))
    assert raise_descriptor_limit() == 5000
    assert limits[-1] == (5000, 5000)
    assert open_files_limit() == 2500
    limits.append((1 << 20, 1 << 20))
    assert open_files_limit() == MAPS_MAX - MAPS_RESERVED
