"""What a voter keeps: durable, torn ends dropped, damage never taken for a torn end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.controller.raft.messages import Entry, EntryKind, HardState, Snapshot, Step, Voter
from cometmq.controller.voter.files import Damaged, DiskFailed
from cometmq.controller.voter.log_file import LogFile, encode_entry, read_records
from cometmq.controller.voter.storage import RaftStorage
from cometmq.errors import ConfigError

VOTERS = (Voter(1, "a"), Voter(2, "b"))


def entry(index: int, term: int = 1, data: bytes = b"command") -> Entry:
    return Entry(index, term, EntryKind.COMMAND, data)


def member(directory: Path, entries: int = 0) -> RaftStorage:
    """A voter of a group whose log has this many entries."""
    storage = RaftStorage(directory, 1)
    storage.open()
    storage.join("cluster", VOTERS)
    step = Step(hard_state=HardState(1, Voter(1, "a")))
    step.entries = [entry(index) for index in range(1, entries + 1)]
    storage.write(step)
    return storage


def reopened(directory: Path) -> tuple[RaftStorage, Any]:
    storage = RaftStorage(directory, 1)
    return storage, storage.open()


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    storage = member(tmp_path, entries=3)
    change = Entry(4, 2, EntryKind.VOTERS, b"", VOTERS)
    storage.write(
        Step(hard_state=HardState(2, Voter(2, "b")), entries=[change, Entry(5, 2, EntryKind.NOTHING)])
    )
    storage.close()
    again, kept = reopened(tmp_path)
    assert kept.hard_state == HardState(2, Voter(2, "b"))
    assert kept.entries == [entry(1), entry(2), entry(3), change, Entry(5, 2, EntryKind.NOTHING)]
    assert kept.snapshot == Snapshot(0, 0, VOTERS)
    assert (again.me, again.voter.cluster) == (storage.me, "cluster")


def test_a_cut_forgets_the_rest_and_appends_after_it(tmp_path: Path) -> None:
    storage = member(tmp_path, entries=5)
    storage.write(Step(cut_from=3, entries=[entry(3, 2), entry(4, 2)]))
    storage.write(Step(hard_state=HardState(2)))
    storage.close()
    assert reopened(tmp_path)[1].entries == [entry(1), entry(2), entry(3, 2), entry(4, 2)]


def test_a_snapshot_shortens_the_log(tmp_path: Path) -> None:
    storage = member(tmp_path, entries=5)
    storage.write(Step(snapshot=Snapshot(3, 1, VOTERS, b"state")))
    storage.write(Step(entries=[entry(6)]))
    storage.close()
    kept = reopened(tmp_path)[1]
    assert kept.snapshot == Snapshot(3, 1, VOTERS, b"state")
    assert kept.entries == [entry(4), entry(5), entry(6)]


def test_a_snapshot_of_another_log_replaces_all_of_it(tmp_path: Path) -> None:
    storage = member(tmp_path, entries=5)
    storage.write(
        Step(hard_state=HardState(7), snapshot=Snapshot(4, 7, VOTERS, b"other"), entries=[entry(5, 7)])
    )
    storage.close()
    assert reopened(tmp_path)[1].entries == [entry(5, 7)]


def test_a_crash_between_snapshot_and_shorter_log(tmp_path: Path) -> None:
    storage = member(tmp_path, entries=5)
    log = (tmp_path / "log").read_bytes()
    storage.write(Step(snapshot=Snapshot(3, 1, VOTERS, b"state")))
    storage.close()
    (tmp_path / "log").write_bytes(log)
    assert reopened(tmp_path)[1].entries == [entry(4), entry(5)]


@pytest.mark.parametrize("missing", [1, 3, 12, 25])
def test_a_torn_last_record_is_dropped(tmp_path: Path, missing: int) -> None:
    storage = member(tmp_path, entries=4)
    storage.close()
    path = tmp_path / "log"
    os.truncate(path, path.stat().st_size - missing)
    again, kept = reopened(tmp_path)
    assert kept.entries == [entry(1), entry(2), entry(3)]
    assert again.voter.uuid == storage.voter.uuid
    again.write(Step(entries=[entry(4, 1, b"another")]))
    again.close()
    assert reopened(tmp_path)[1].entries[-1] == entry(4, 1, b"another")


def test_sectors_that_were_never_written_are_a_torn_record(tmp_path: Path) -> None:
    large = encode_entry(entry(2, data=b"x" * 3_000))
    first = encode_entry(entry(1))
    torn = first + large[: 1_024 - len(first)] + bytes(len(large) - 1_024 + len(first))
    assert read_records(torn, tmp_path)[0] == [entry(1)]


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    """Also in the last record: a crash does not leave such a thing."""
    data = b"".join(encode_entry(entry(index)) for index in (1, 2, 3))
    for position in range(len(data)):
        for bit in (1, 0x80):
            bad = bytearray(data)
            bad[position] ^= bit
            with pytest.raises(Damaged):
                read_records(bytes(bad), tmp_path)


@pytest.mark.parametrize("name", ["voter", "hard-state", "snapshot", "log"])
def test_a_damaged_voter_comes_back_as_another_one(tmp_path: Path, name: str) -> None:
    storage = member(tmp_path, entries=4)
    storage.close()
    flip(tmp_path / name, 14)
    again, kept = reopened(tmp_path)
    assert again.broken
    assert again.voter.uuid != storage.voter.uuid
    assert again.voter.cluster == ""
    assert again.voter.former  # so it never helps to found a group
    assert (kept.entries, kept.hard_state) == ([], HardState())
    assert len(list(tmp_path.glob("broken-*/log"))) == 1


@pytest.mark.parametrize("name", ["voter", "hard-state"])
def test_a_missing_file_is_damage(tmp_path: Path, name: str) -> None:
    member(tmp_path, entries=2).close()
    (tmp_path / name).unlink()
    assert reopened(tmp_path)[0].broken


def test_a_hard_state_older_than_the_log_is_damage(tmp_path: Path) -> None:
    storage = member(tmp_path, entries=2)
    old = (tmp_path / "hard-state").read_bytes()
    storage.write(Step(hard_state=HardState(5), entries=[entry(3, 5)]))
    storage.close()
    (tmp_path / "hard-state").write_bytes(old)
    assert reopened(tmp_path)[0].broken


def test_the_directory_of_another_voter_is_refused(tmp_path: Path) -> None:
    member(tmp_path).close()
    with pytest.raises(ConfigError, match="belongs to voter 1"):
        RaftStorage(tmp_path, 2).open()


@pytest.mark.parametrize("call", ["fsync", "fdatasync", "write"])
def test_a_failed_sync_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    storage = member(tmp_path, entries=1)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(DiskFailed, match="Input/output error"):
        storage.write(Step(hard_state=HardState(2), entries=[entry(2, 2)]))


def test_a_gap_in_the_log_is_damage(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(encode_entry(entry(1)) + encode_entry(entry(3)))
    read: Callable[[], object] = LogFile(tmp_path / "log").load
    with pytest.raises(Damaged, match="entry 3 after entry 1"):
        read()
