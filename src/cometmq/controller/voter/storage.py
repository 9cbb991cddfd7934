"""What one voter keeps on disk: who it is, term and vote, snapshot, log. Synchronous calls of one thread.

Files of the directory: ``voter`` (JSON: id, UUID, group), ``hard-state``, ``snapshot``, ``log``. A voter whose files
are damaged has forgotten what it promised. It must not vote any more: its files are put aside, and it comes back with
a new UUID, as one that asks to be let in.
"""

from __future__ import annotations

import logging
import os
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from cometmq.controller.raft.codec import (
    decode_hard_state,
    decode_snapshot,
    encode_hard_state,
    encode_snapshot,
)
from cometmq.controller.raft.messages import Entry, HardState, Snapshot, Step, Voter
from cometmq.controller.voter.files import Damaged, DiskFailed, replace_file, seal, unseal
from cometmq.controller.voter.log_file import LogFile
from cometmq.directories import sync_directory
from cometmq.errors import ConfigError

log = logging.getLogger(__name__)

HARD_STATE_MAGIC = 0x43515248
SNAPSHOT_MAGIC = 0x43515253
FORMAT = 1

_Kept = TypeVar("_Kept")


class VoterFile(msgspec.Struct, frozen=True):
    id: int
    uuid: str
    cluster: str = ""  # empty: not a member yet
    former: str = ""  # the UUID under which it was a member before its files were damaged
    format: int = FORMAT


@dataclass(slots=True)
class Kept:
    """Everything that was found on disk."""

    hard_state: HardState
    snapshot: Snapshot
    entries: list[Entry]


class RaftStorage:
    def __init__(self, directory: str | Path, voter_id: int) -> None:
        self.directory = Path(directory)
        self._id = voter_id
        self._log = LogFile(self.directory / "log")
        self._snapshot_index = 0
        self._last: list[Entry] = []  # entries after the snapshot, as on disk
        self.broken = ""  # why our files were put aside at this start
        self.voter = VoterFile(voter_id, "")

    @property
    def me(self) -> Voter:
        return Voter(self.voter.id, self.voter.uuid)

    # -- start ------------------------------------------------------------------------------------------------------

    def open(self) -> Kept:
        """Read the files, or begin anew where there are none or where they are damaged."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            return self._load()
        except Damaged as damage:
            self.broken = str(damage)
            log.error("VOTER_BROKEN voter=%s uuid=%s stops voting: %s", self._id, self.voter.uuid, damage)
            self._put_aside()
            return self._load()
        except OSError as error:
            raise DiskFailed(f"{self.directory} cannot be used: {error}.") from error

    def _load(self) -> Kept:
        self._load_voter()
        hard_state = HardState()
        if (content := self._read("hard-state", HARD_STATE_MAGIC)) is not None:
            hard_state = _decoded(decode_hard_state, content, "hard-state")
        snapshot = Snapshot()
        if (content := self._read("snapshot", SNAPSHOT_MAGIC)) is not None:
            snapshot = _decoded(decode_snapshot, content, "snapshot")
        if self.voter.cluster and not (self.directory / "hard-state").exists():
            raise Damaged(f"{self.directory / 'hard-state'} is missing.")
        entries = self._after(snapshot, self._log.load())
        if entries and entries[-1].term > hard_state.term:
            raise Damaged(f"{self.directory / 'hard-state'} is older than the log.")
        self._snapshot_index, self._last = snapshot.index, entries
        return Kept(hard_state, snapshot, list(entries))

    def _load_voter(self) -> None:
        path = self.directory / "voter"
        if not path.exists():
            if (self.directory / "log").exists() or (self.directory / "snapshot").exists():
                raise Damaged(f"{path} is missing.")
            self._keep_voter(VoterFile(self._id, str(uuid.uuid4())))
            return
        text, _, check = path.read_bytes().rstrip(b"\n").rpartition(b"\n")
        if check != _check(text):
            raise Damaged(f"{path} is damaged.")
        self.voter = _decoded(msgspec.json.Decoder(VoterFile).decode, text, "voter")
        if self.voter.id != self._id:
            raise ConfigError(f"{path} belongs to voter {self.voter.id}, but controllerSelfId is {self._id}.")

    def _read(self, name: str, magic: int) -> bytes | None:
        path = self.directory / name
        return unseal(magic, path.read_bytes(), path) if path.exists() else None

    def _after(self, snapshot: Snapshot, entries: list[Entry]) -> list[Entry]:
        """A crash may come between a new snapshot and the shorter log."""
        if not entries or entries[0].index == snapshot.index + 1:
            return entries
        if entries[0].index > snapshot.index + 1:
            raise Damaged(f"{self._log.path} begins after the end of the snapshot.")
        at = snapshot.index - entries[0].index
        agrees = at < len(entries) and entries[at].term == snapshot.term
        kept = entries[at + 1 :] if agrees else []
        self._log.rewrite(kept)
        return kept

    def _put_aside(self) -> None:
        former = self.voter.uuid or "unknown"
        self._log.close()
        aside = self.directory / f"broken-{uuid.uuid4().hex[:8]}"
        try:
            aside.mkdir()
            for name in ("voter", "hard-state", "snapshot", "log"):
                if (self.directory / name).exists():
                    os.replace(self.directory / name, aside / name)
            sync_directory(self.directory)
        except OSError as error:
            raise DiskFailed(f"{self.directory} cannot be put aside: {error}.") from error
        self._keep_voter(VoterFile(self._id, str(uuid.uuid4()), former=former))

    def _keep_voter(self, voter: VoterFile) -> None:
        text = msgspec.json.encode(voter)
        replace_file(self.directory / "voter", text + b"\n" + _check(text) + b"\n")
        self.voter = voter

    # -- membership -------------------------------------------------------------------------------------------------

    def join(self, cluster: str, first_voters: tuple[Voter, ...] = ()) -> Snapshot:
        """We belong to this group from now on; ``first_voters`` when it begins with us."""
        snapshot = Snapshot(0, 0, first_voters)
        if first_voters:
            self._write_snapshot_file(snapshot)
        if not (self.directory / "hard-state").exists():
            self._write_hard_state(HardState())
        self._keep_voter(msgspec.structs.replace(self.voter, cluster=cluster))
        return snapshot

    # -- steps ------------------------------------------------------------------------------------------------------

    def write(self, step: Step) -> None:
        """Everything of a step, durable when it returns; raises DiskFailed, after which nothing may be written."""
        if step.hard_state is not None:
            self._write_hard_state(step.hard_state)
        if step.snapshot is not None:
            self._write_snapshot(step.snapshot)
        if step.cut_from is not None:
            self._log.cut(step.cut_from)
            self._last = [entry for entry in self._last if entry.index < step.cut_from]
        if step.entries:
            self._log.append(step.entries)
            self._last += step.entries

    def _write_hard_state(self, state: HardState) -> None:
        replace_file(self.directory / "hard-state", seal(HARD_STATE_MAGIC, encode_hard_state(state)))

    def _write_snapshot_file(self, snapshot: Snapshot) -> None:
        replace_file(self.directory / "snapshot", seal(SNAPSHOT_MAGIC, encode_snapshot(snapshot)))

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        at = snapshot.index - self._snapshot_index - 1
        agrees = at == -1 or (0 <= at < len(self._last) and self._last[at].term == snapshot.term)
        self._write_snapshot_file(snapshot)
        self._last = self._last[at + 1 :] if agrees else []
        self._log.rewrite(self._last)
        self._snapshot_index = snapshot.index

    def close(self) -> None:
        self._log.close()


def _check(text: bytes) -> bytes:
    return b"crc32 %08x" % zlib.crc32(text)


def _decoded(decode: Callable[[bytes], _Kept], content: bytes, name: str) -> _Kept:
    try:
        return decode(content)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} of the voter cannot be read: {error}.") from error
