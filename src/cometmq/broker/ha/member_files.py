"""The directory ``ha/`` of a replica's store: what it is, which epochs its log has, how much is confirmed.

Files that cannot be trusted make the replica a new one: they are kept aside, it gets another store id, and its log is
copied from the master again.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from cometmq.broker.ha.confirm_file import Confirmed, load_confirmed, save_confirmed
from cometmq.broker.ha.durable_file import DamagedFile
from cometmq.broker.ha.epoch_file import EpochFile
from cometmq.broker.ha.identity import Identity
from cometmq.broker.ha.session_file import SessionFile
from cometmq.errors import ConfigError
from cometmq.store.scan_cy import MESSAGE_MAGIC

log = logging.getLogger(__name__)

HA_DIRECTORY = "ha"
DAMAGED_PREFIX = "damaged-"  # of the directory that keeps what could not be trusted
DLEDGER_HEAD_SIZE = 48  # bytes that DLedger puts before every message


@dataclass(slots=True)
class MemberFiles:
    directory: Path
    identity: Identity
    epochs: EpochFile
    session: SessionFile
    confirmed: Confirmed | None

    @classmethod
    def open(cls, root: Path, group: str, replica_id: int, boot_id: str = "") -> MemberFiles:
        """Raises OSError, or ConfigError if the store is another replica's."""
        directory = root / HA_DIRECTORY
        directory.mkdir(parents=True, exist_ok=True)
        try:
            return cls._read(directory, group, replica_id, boot_id)
        except DamagedFile as error:
            aside = directory / f"{DAMAGED_PREFIX}{time.strftime('%Y%m%d-%H%M%S')}"
            log.error(
                "event=REPLICA_FILES_DAMAGED replica begins anew as a new one, kept=%s: %s", aside, error
            )
            aside.mkdir()
            for name in ("identity", "epochs", "confirm", "truncate.intent"):
                if (directory / name).exists():
                    os.rename(directory / name, aside / name)
            return cls._read(directory, group, replica_id, boot_id)

    @classmethod
    def _read(cls, directory: Path, group: str, replica_id: int, boot_id: str) -> MemberFiles:
        return cls(
            directory,
            Identity.load_or_create(directory / "identity", group, replica_id),
            EpochFile(directory / "epochs"),
            SessionFile.begin(directory / "session", boot_id),
            load_confirmed(directory / "confirm"),
        )

    @property
    def gate(self) -> int:
        """How much of the log the queues may know at the start; a log that was never a replica's: all of it."""
        if self.confirmed is not None:
            return self.confirmed.offset
        return 0 if self.epochs.epochs.entries else 1 << 62

    def save_confirmed(self, offset: int, epoch: int) -> None:
        confirmed = Confirmed(offset, epoch)
        if confirmed != self.confirmed:
            self.confirmed = confirmed
            save_confirmed(self.directory / "confirm", confirmed)


def refuse_dledger_store(root: Path, commit_log: Path) -> None:
    """A store that real DLedger wrote is not opened: every message in it stands behind a head of 48 bytes."""
    data = sorted(root.glob("dledger-*/data/*"))
    for path in data + (sorted(commit_log.iterdir())[:1] if commit_log.is_dir() else []):
        with path.open("rb") as file:
            head = file.read(DLEDGER_HEAD_SIZE + 8)
        magic = int.from_bytes(head[DLEDGER_HEAD_SIZE + 4 : DLEDGER_HEAD_SIZE + 8], "big")
        if path.parent.name == "data" or magic == MESSAGE_MAGIC:
            raise ConfigError(
                f"{path} was written by DLedger of RocketMQ, whose format is another one (a head of 48 bytes before "
                "every message): start with an empty storePathRootDir and let consumers finish on the old group, "
                "or copy the messages with a consumer and a producer."
            )
