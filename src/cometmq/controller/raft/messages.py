"""What voters say to each other, what they keep, and what one step of the core asks its driver to do. Plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Voter(NamedTuple):
    """A voter is its id and the UUID of its disk: one that lost its disk is another voter."""

    id: int
    uuid: str


class EntryKind(enum.IntEnum):
    NOTHING = 0  # the first entry of every leader
    COMMAND = 1
    VOTERS = 2


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    term: int
    kind: EntryKind
    data: bytes = b""
    voters: tuple[Voter, ...] = ()


class HardState(NamedTuple):
    """What must be on disk before any message of the same step is sent."""

    term: int = 0
    vote: Voter | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state machine after ``index``, and who voted then."""

    index: int = 0
    term: int = 0
    voters: tuple[Voter, ...] = ()
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Message:
    sender: Voter
    to: Voter
    term: int


@dataclass(frozen=True, slots=True)
class VoteRequest(Message):
    last_index: int
    last_term: int
    trial: bool  # pre-vote: "would you?"; changes nothing at the receiver
    transfer: bool = False  # asked for by the leader itself


@dataclass(frozen=True, slots=True)
class VoteReply(Message):
    granted: bool
    trial: bool


@dataclass(frozen=True, slots=True)
class AppendRequest(Message):
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit_index: int
    round: int  # of heartbeats; answered ones prove that we were leader when the round began


@dataclass(frozen=True, slots=True)
class AppendReply(Message):
    matches: bool
    index: int  # last entry that agrees; when nothing matches, where to try next
    round: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest(Message):
    snapshot: Snapshot
    round: int


@dataclass(frozen=True, slots=True)
class ElectNow(Message):
    """The leader hands over: begin an election without waiting."""


@dataclass(frozen=True, slots=True)
class Read:
    """A query may be answered once everything up to ``index`` is applied."""

    token: object
    index: int


@dataclass(slots=True)
class Step:
    """What to do after a call, in this order: write and sync, tell the core, send, apply."""

    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    cut_from: int | None = None  # entries from this index on are void
    entries: list[Entry] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    committed: list[Entry] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)

    @property
    def must_sync(self) -> bool:
        return bool(self.hard_state or self.snapshot or self.cut_from is not None or self.entries)
