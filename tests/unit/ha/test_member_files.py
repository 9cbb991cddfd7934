"""Files of a replica: who it is, its epochs, what is confirmed, and a cut that a crash has interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.ha.confirm_file import Confirmed, load_confirmed, save_confirmed
from cometmq.broker.ha.durable_file import DamagedFile
from cometmq.broker.ha.epoch_file import RECORD_SIZE, EpochFile
from cometmq.broker.ha.epochs import Epoch, Epochs
from cometmq.broker.ha.identity import Identity
from cometmq.broker.ha.member_files import MemberFiles, refuse_dledger_store
from cometmq.broker.ha.session_file import SessionFile
from cometmq.broker.ha.truncation import Truncation
from cometmq.errors import ConfigError


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_store_keeps_its_identity_and_a_new_disk_is_somebody_new(tmp_path: Path) -> None:
    first = Identity.load_or_create(tmp_path / "a" / "identity", "G", 2)
    assert Identity.load_or_create(tmp_path / "a" / "identity", "G", 2) == first
    assert Identity.load_or_create(tmp_path / "b" / "identity", "G", 2).store_id != first.store_id
    with pytest.raises(ConfigError, match="replica 2 of the group G"):
        Identity.load_or_create(tmp_path / "a" / "identity", "G", 3)


def test_epochs_are_appended_and_cut(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "epochs")
    epochs = Epochs().with_epoch(1, 0).with_epoch(4, 100)
    file.save(epochs)
    file.save(epochs.with_epoch(5, 100))
    assert file.path.stat().st_size == 3 * RECORD_SIZE
    assert EpochFile(file.path).epochs.entries == (Epoch(1, 0), Epoch(4, 100), Epoch(5, 100))
    file.save(epochs.up_to(99))
    assert EpochFile(file.path).epochs.entries == (Epoch(1, 0),)


def test_an_epoch_that_a_crash_cut_short_was_never_there(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "epochs")
    file.save(Epochs().with_epoch(1, 0).with_epoch(2, 9))
    file.path.write_bytes(file.path.read_bytes()[: RECORD_SIZE + 11])
    assert EpochFile(file.path).epochs.last == 1


@pytest.mark.parametrize("position", [0, 5, 9, 20, 31])
def test_a_damaged_epoch_is_not_guessed(tmp_path: Path, position: int) -> None:
    file = EpochFile(tmp_path / "epochs")
    file.save(Epochs().with_epoch(1, 0))
    flip(file.path, position)
    with pytest.raises(DamagedFile):
        EpochFile(file.path)


def test_a_replica_with_damaged_files_begins_as_a_new_one(tmp_path: Path) -> None:
    first = MemberFiles.open(tmp_path, "G", 1)
    first.epochs.save(Epochs().with_epoch(3, 0))
    flip(first.epochs.path, 10)
    again = MemberFiles.open(tmp_path, "G", 1)
    assert again.identity.store_id != first.identity.store_id
    assert again.epochs.epochs == Epochs()
    assert list((tmp_path / "ha").glob("damaged-*/epochs"))


def test_a_damaged_hint_is_no_hint(tmp_path: Path) -> None:
    path = tmp_path / "confirm"
    assert load_confirmed(path) is None
    save_confirmed(path, Confirmed(17, 3))
    assert load_confirmed(path) == Confirmed(17, 3)
    flip(path, 3)
    assert load_confirmed(path) is None


def test_only_a_machine_that_went_down_makes_a_start_unclean(tmp_path: Path) -> None:
    path = tmp_path / "session"
    first = SessionFile.begin(path, "boot-1")
    killed = SessionFile.begin(path, "boot-1")
    assert (first.unclean, killed.unclean) == (False, False)
    assert killed.number > first.number
    assert SessionFile.begin(path, "boot-2").unclean
    stopped = SessionFile.begin(path, "boot-2")
    stopped.end(100, 100)
    assert not SessionFile.begin(path, "boot-3").unclean


class CutStore:
    """Notes where it was cut."""

    def __init__(self, end: int) -> None:
        self.max_physical_offset = end
        self.fail = False

    def truncate(self, offset: int) -> None:
        if self.fail:
            raise OSError("power is gone")
        self.max_physical_offset = offset


def test_a_cut_that_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    epochs = EpochFile(tmp_path / "epochs")
    epochs.save(Epochs().with_epoch(1, 0).with_epoch(2, 80))
    store: Any = CutStore(100)
    store.fail = True
    truncation = Truncation(tmp_path / "truncate.intent", store, epochs)
    with pytest.raises(OSError, match="power"):
        truncation.run(60)
    assert EpochFile(epochs.path).epochs.last == 2
    store.fail = False
    again = Truncation(tmp_path / "truncate.intent", store, EpochFile(epochs.path))
    assert again.finish_last() == 60
    assert store.max_physical_offset == 60
    assert EpochFile(epochs.path).epochs.last == 1
    assert again.finish_last() is None


def test_a_store_of_real_dledger_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    refuse_dledger_store(tmp_path, log)
    entry = b"\x00\x00\x00\x01" + bytes(44) + b"\x00\x00\x00\x60" + bytes.fromhex("DAA320A7")
    (log / f"{0:020d}").write_bytes(entry + bytes(100))
    with pytest.raises(ConfigError, match="DLedger"):
        refuse_dledger_store(tmp_path, log)
    data = tmp_path / "other" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020d}").write_bytes(entry)
    with pytest.raises(ConfigError, match="DLedger"):
        refuse_dledger_store(tmp_path / "other", tmp_path / "other" / "commitlog")
