"""Disk levels: percent rounded up, clamped options."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from cometmq.store.disk import DiskLevels, DiskWatch, SpaceNeed, used_percent


def test_used_percent_agrees_with_the_file_system_and_is_rounded_up(tmp_path: Path) -> None:
    usage = shutil.disk_usage(tmp_path)
    exact = 100 * usage.used / (usage.used + usage.free)
    assert exact - 1 < used_percent(tmp_path) < exact + 2
    assert used_percent(tmp_path / "not" / "yet") == used_percent(tmp_path)


@pytest.mark.parametrize(
    ("blocks", "free", "available", "percent"),
    [(100, 50, 50, 50), (1000, 499, 499, 51), (100, 10, 0, 100), (100, 20, 10, 89), (0, 0, 0, -1)],
)
def test_space_reserved_for_root_is_not_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, available: int, percent: int
) -> None:
    status = SimpleNamespace(f_blocks=blocks, f_bfree=free, f_bavail=available)
    monkeypatch.setattr(os, "statvfs", lambda _path: status)
    assert used_percent(tmp_path) == percent


def test_the_fuller_of_two_disks_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    percents = {tmp_path / "log": 20, tmp_path / "queues": 80}
    watch = DiskWatch(tmp_path / "log", tmp_path / "queues", DiskLevels(), percents.__getitem__)
    assert watch.need() is SpaceNeed.EXPIRED_NOW
    percents[tmp_path / "queues"] = 91
    assert watch.need() is SpaceNeed.ANY_NOW
    assert watch.full
    percents[tmp_path / "queues"] = 92
    assert watch.look()
    percents[tmp_path / "queues"] = 70
    assert watch.need() is SpaceNeed.NONE
    assert not watch.full
    refused, taken = [record.getMessage() for record in caplog.records]
    assert "91 % full, above 90 %: messages are refused" in refused
    assert "70 % full: messages are taken again" in taken


def test_max_used_is_kept_between_10_and_95() -> None:
    assert DiskLevels.clamped(5, 85, 90).max_used == 10
    assert DiskLevels.clamped(99, 85, 90).max_used == 95
