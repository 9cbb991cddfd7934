"""What voters say to each other, what they keep, and what one step of the core asks its driver to do. Plain data."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec


class Voter(NamedTuple):
    """A voter is its id and the UUID of its disk: one that lost its disk is another voter."""

    id: int
    uuid: str


class EntryKind(enum.IntEnum):
    NOTHING = 0  # the first entry of every leader
    COMMAND = 1
    VOTERS = 2


class Entry(msgspec.Struct, frozen=True):
    index: int
    term: int
    kind: EntryKind
    data: bytes = b""
    voters: tuple[Voter, ...] = ()


class HardState(NamedTuple):
    """What must be on disk before any message of the same step is sent."""

    term: int = 0
    vote: Voter | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The state machine after ``index``, and who voted then."""

    index: int = 0
    term: int = 0
    voters: tuple[Voter, ...] = ()
    data: bytes = b""


class Message(msgspec.Struct, frozen=True):
    sender: Voter
    to: Voter
    term: int


class VoteRequest(Message, frozen=True):
    last_index: int
    last_term: int
    trial: bool  # pre-vote: "would you?"; changes nothing at the receiver
    transfer: bool = False  # asked for by the leader itself


class VoteReply(Message, frozen=True):
    granted: bool
    trial: bool


class AppendRequest(Message, frozen=True):
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit_index: int
    round: int  # of heartbeats; answered ones prove that we were leader when the round began


class AppendReply(Message, frozen=True):
    matches: bool
    index: int  # last entry that agrees; when nothing matches, where to try next
    round: int


class SnapshotRequest(Message, frozen=True):
    snapshot: Snapshot
    round: int


class ElectNow(Message, frozen=True):
    """The leader hands over: begin an election without waiting."""


class Read(msgspec.Struct, frozen=True):
    """A query may be answered once everything up to ``index`` is applied."""

    token: object
    index: int


class Step(msgspec.Struct):
    """What to do after a call, in this order: write and sync, tell the core, send, apply."""

    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    cut_from: int | None = None  # entries from this index on are void
    entries: list[Entry] = []
    messages: list[Message] = []
    committed: list[Entry] = []
    reads: list[Read] = []

    @property
    def must_sync(self) -> bool:
        return bool(self.hard_state or self.snapshot or self.cut_from is not None or self.entries)
