"""The checkpoint file, against the one of the Java broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.checkpoint import CHECKPOINT_SIZE, Checkpoint


def test_golden_checkpoint_reads_as_listed_and_saves_to_the_same_bytes(
    golden: Path, golden_store: Callable[[str], Path]
) -> None:
    path = golden_store("clean") / "checkpoint"
    listed = json.loads((golden / "store-4.9.7" / "clean.manifest.json").read_text())["checkpoint"]
    original = path.read_bytes()
    checkpoint = Checkpoint.load(path)
    assert checkpoint.physic_msg_timestamp_ms == listed["physicMsgTimestamp"]
    assert checkpoint.logics_msg_timestamp_ms == listed["logicsMsgTimestamp"]
    assert checkpoint.index_msg_timestamp_ms == listed["indexMsgTimestamp"]
    path.unlink()
    checkpoint.save()
    assert path.read_bytes() == original


@pytest.mark.parametrize("content", [None, b""])
def test_missing_or_empty_file_means_zeros(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = Checkpoint.load(path)
    assert checkpoint.min_timestamp_ms == 0
    checkpoint.save()
    assert path.stat().st_size == CHECKPOINT_SIZE


def test_min_timestamp_is_three_seconds_before_the_earlier_of_log_and_queues(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms = 10_000, 9_000
    assert checkpoint.min_timestamp_ms == 6_000
    checkpoint.logics_msg_timestamp_ms = 2_000
    assert checkpoint.min_timestamp_ms == 0


def test_saving_again_changes_only_the_times(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save()
    checkpoint.physic_msg_timestamp_ms = 5
    checkpoint.index_msg_timestamp_ms = 7
    checkpoint.save()
    again = Checkpoint.load(checkpoint.path)
    assert (again.physic_msg_timestamp_ms, again.logics_msg_timestamp_ms, again.index_msg_timestamp_ms) == (
        5,
        0,
        7,
    )


def test_short_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(100))
    with pytest.raises(StoreError, match=r"checkpoint has 100 bytes instead of 4096: delete it"):
        Checkpoint.load(path)
