"""Which commit log files go, and when: hours, ages, disk levels, limits per round."""

from __future__ import annotations

import datetime
import os
from dataclasses import replace
from pathlib import Path

import pytest

from cometmq.store.commit_log import CommitLog
from cometmq.store.config import StoreConfig
from cometmq.store.mapped_file import OpenFiles
from cometmq.store.retention import HOUR_MS, Retention, delete_hours

FILE_SIZE = 4096
NOON_MS = int(datetime.datetime(2026, 11, 15, 12, 30).timestamp() * 1000)
FOUR_MS = int(datetime.datetime(2026, 11, 15, 4, 59).timestamp() * 1000)


class Store:
    """A log of files, retention over it, and a disk whose fullness the test says."""

    def __init__(self, root: Path, file_count: int = 5, age_hours: float = 100, **options: object) -> None:
        config = StoreConfig(
            store_path_root_dir=root,
            mapped_file_size_commit_log=FILE_SIZE,
            delete_commit_log_files_interval=0,
            delete_consume_queue_files_interval=0,
        )
        self.config = replace(config, **options)  # type: ignore[arg-type]
        self.percent = 20
        self.followed: list[int] = []
        config.commit_log_dir.mkdir(parents=True)
        for number in range(file_count):
            path = config.commit_log_dir / f"{number * FILE_SIZE:020d}"
            path.write_bytes(bytes(FILE_SIZE))
            modified_s = NOON_MS / 1000 - age_hours * 3600
            os.utime(path, (modified_s, modified_s))
        self.log = CommitLog(self.config, OpenFiles(16), ahead_size=0)
        self.log.load()
        self.retention = Retention(
            self.config, self.log, self.follow, started_ms=0, usage=lambda _path: self.percent
        )

    def follow(self, min_offset: int) -> list[Path]:
        self.followed.append(min_offset)
        return []

    def names(self) -> list[int]:
        self.retention._deletion and self.retention._deletion.join()
        on_disk = sorted(int(path.name) // FILE_SIZE for path in self.config.commit_log_dir.iterdir())
        assert on_disk == [file.start // FILE_SIZE for file in self.log.files]
        return on_disk

    def round_at(self, now_ms: int) -> list[int]:
        self.retention.run_round(now_ms)
        return self.names()


def test_nothing_goes_outside_of_the_hour(tmp_path: Path) -> None:
    assert Store(tmp_path).round_at(NOON_MS) == [0, 1, 2, 3, 4]


def test_expired_files_go_in_the_hour_but_never_the_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.round_at(FOUR_MS) == [4]
    assert store.followed == [4 * FILE_SIZE]
    assert store.round_at(FOUR_MS) == [4]
    assert store.followed == [4 * FILE_SIZE]


def test_files_younger_than_the_reserved_time_stay_and_guard_those_behind_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fresh = store.config.commit_log_dir / f"{2 * FILE_SIZE:020d}"
    os.utime(fresh, (FOUR_MS / 1000 - 71 * 3600,) * 2)
    assert store.round_at(FOUR_MS) == [2, 3, 4]
    assert store.round_at(FOUR_MS + HOUR_MS) == [2, 3, 4]  # 5 o'clock
    os.utime(fresh, (FOUR_MS / 1000 - 72 * 3600,) * 2)
    assert store.round_at(FOUR_MS) == [4]


def test_at_most_ten_files_go_in_a_round(tmp_path: Path) -> None:
    store = Store(tmp_path, file_count=25)
    assert store.round_at(FOUR_MS) == list(range(10, 25))
    assert store.round_at(FOUR_MS) == list(range(20, 25))
    assert store.round_at(FOUR_MS) == [24]


def test_expired_files_go_at_any_hour_when_the_disk_is_above_75_percent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.percent = 75
    assert store.round_at(NOON_MS) == [0, 1, 2, 3, 4]
    store.percent = 76
    assert store.round_at(NOON_MS) == [4]


def test_unreadable_disk_usage_counts_as_short_of_space(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.percent = -1
    assert store.round_at(NOON_MS) == [4]


def test_above_85_percent_files_go_before_their_time(tmp_path: Path) -> None:
    store = Store(tmp_path, age_hours=1)
    store.percent = 85
    assert store.round_at(NOON_MS) == [0, 1, 2, 3, 4]
    store.percent = 86
    assert store.round_at(NOON_MS) == [4]
    assert not store.retention.disk.full


def test_without_forced_cleaning_young_files_stay_on_a_full_disk(tmp_path: Path) -> None:
    store = Store(tmp_path, age_hours=1, clean_file_forcibly_enable=False)
    store.percent = 99
    assert store.round_at(NOON_MS) == [0, 1, 2, 3, 4]
    assert store.retention.disk.full


def test_writes_stop_above_90_percent_and_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path, file_count=1)
    disk = store.retention.disk
    now_ms = 0
    seen = []
    for percent in (90, 91, 100, 91, 90, 86, 95, 85):
        store.percent = percent
        now_ms += 10_000
        store.retention.tick(now_ms)
        seen.append(disk.full)
    assert seen == [False, True, True, True, False, False, True, False]


def test_requested_deletion_works_at_any_hour_for_twenty_rounds(tmp_path: Path) -> None:
    store = Store(tmp_path, file_count=2)
    store.retention.request_deletion()
    assert store.round_at(NOON_MS) == [1]
    for _ in range(19):
        store.round_at(NOON_MS)
    # The rounds are used up: a file that would go now stays.
    (store.config.commit_log_dir / f"{2 * FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    store.log.load()
    assert store.round_at(NOON_MS) == [1, 2]


def test_rounds_begin_after_a_minute_and_repeat_at_the_interval(tmp_path: Path) -> None:
    store = Store(tmp_path, file_count=25)
    at_four = FOUR_MS - FOUR_MS % 1000
    store.retention = Retention(
        store.config, store.log, store.follow, started_ms=at_four - 60_000, usage=lambda _path: 20
    )
    store.retention.tick(at_four - 1)
    assert len(store.names()) == 25
    store.retention.tick(at_four)
    assert len(store.names()) == 15
    store.retention.tick(at_four + 9_999)
    assert len(store.names()) == 15
    store.retention.tick(at_four + 10_000)
    assert len(store.names()) == 5


def test_files_of_followers_are_deleted_too_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    queue_file = tmp_path / "queue"
    queue_file.write_text("")
    store.follow = lambda _offset: [queue_file, tmp_path / "gone"]  # type: ignore[method-assign]
    store.retention = Retention(store.config, store.log, store.follow, started_ms=0, usage=lambda _path: 20)
    store.round_at(FOUR_MS)
    assert not queue_file.exists()


def test_close_does_not_wait_for_the_pauses(tmp_path: Path) -> None:
    store = Store(tmp_path, file_count=8, delete_commit_log_files_interval=60_000)
    store.retention.run_round(FOUR_MS)
    store.retention.close()
    assert len(list(store.config.commit_log_dir.iterdir())) >= 7


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("4", {4}), ("02;14", {2, 14}), (" 3 ; x;", {3}), ("", set())]
)
def test_delete_when_is_a_list_of_hours(text: str, hours: set[int]) -> None:
    assert delete_hours(text) == hours
