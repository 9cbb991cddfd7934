"""Metadata kept by the voters themselves: the records of all groups as the state machine of the embedded Raft."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from cometmq.controller.commands import (
    Command,
    GroupRecord,
    Outcome,
    apply,
    decode_command,
    encode_command,
)
from cometmq.controller.config import ControllerConfig
from cometmq.controller.raft.messages import Entry, EntryKind, Snapshot, Voter
from cometmq.controller.voter.formation import Formation
from cometmq.controller.voter.node import COMPACT_AFTER, StateMachine, VoterNode
from cometmq.controller.voter.storage import RaftStorage
from cometmq.controller.wire import ControllerCode
from cometmq.net.endpoint import Handler

log = logging.getLogger(__name__)

DECIDE_TIMEOUT_MS = 2_000
OUTCOMES_MAX = 1_000  # of applied commands, until their proposers have looked


class LogCommand(msgspec.Struct, frozen=True):
    """One entry of the log."""

    group: str
    command: msgspec.Raw


class VoterAddress(msgspec.Struct, frozen=True):
    """Where a voter that was added later is reached."""

    id: int
    address: str


class Records(msgspec.Struct):
    """Everything that is decided; a snapshot holds it as JSON."""

    groups: dict[str, GroupRecord] = {}
    voters: dict[int, str] = {}


VOTERS_GROUP = ""  # entries of this "group" are about the voters themselves


class RaftMetadata(StateMachine):
    """Implements ``Metadata``."""

    def __init__(
        self, config: ControllerConfig, *, compact_after: int = COMPACT_AFTER, replace_after_ms: int = 0
    ) -> None:
        """``replace_after_ms``: how long a voter was silent that came back without its files."""
        self.on_change: Callable[[str], None] = lambda _group: None
        self.on_leadership: Callable[[bool], None] = lambda _leads: None
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self._records = Records()
        self._outcomes: dict[int, Outcome] = {}
        times = config.raft_times
        storage = RaftStorage(config.directory, config.self_id)
        self.node = VoterNode(storage, config.peers, self, times=times, compact_after=compact_after)
        self._formation = Formation(self.node, replace_after_ms=replace_after_ms or 3 * times.election_max)
        self._round: asyncio.Future[None] | None = None  # a proof of leadership that has not begun yet

    # -- life -------------------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        return {ControllerCode.RAFT: self.node.serve}

    async def start(self, own_address: str) -> None:
        self.node.peers[self.node.storage.voter.id] = own_address
        self.node.on_leadership = self._leadership
        self.node.on_failure = lambda error: self.on_failure(error)
        self.node.open()
        self._formation.start()

    async def stop(self) -> None:
        await self._formation.stop()
        await self.node.close()

    def _leadership(self, leads: bool) -> None:
        if leads:
            self._formation.leads_now()
        self.on_leadership(leads)

    # -- what controllers ask ---------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.node.leads

    @property
    def leader_address(self) -> str:
        return self.node.leader_address

    @property
    def revision(self) -> int:
        return self.node.applied_index

    def record(self, group: str) -> GroupRecord | None:
        return self._records.groups.get(group)

    def groups(self) -> Iterable[str]:
        return self._records.groups.keys()

    async def propose(self, group: str, command: Command) -> Outcome:
        data = msgspec.json.encode(LogCommand(group, msgspec.Raw(encode_command(command))))
        index = await self.node.propose(data, DECIDE_TIMEOUT_MS)
        return self._outcomes[index]

    async def confirm_leadership(self) -> None:
        """Callers that come while a round is under way share the next one."""
        if self._round is None:
            self._round = asyncio.ensure_future(self._next_round())
        await asyncio.shield(self._round)

    async def _next_round(self) -> None:
        await asyncio.sleep(0)  # whoever asks in this turn of the loop joins in
        self._round = None
        await self.node.read(DECIDE_TIMEOUT_MS)

    async def add_voter(self, voter_id: int, address: str) -> None:
        """Allow a voter in that is not in our list; it asks, and the leader adds it then."""
        await self._decide_voter(VoterAddress(voter_id, address))

    async def remove_voter(self, voter_id: int) -> bool:
        raft = self.node.raft
        if raft is None or voter_id not in {voter.id for voter in raft.voters}:
            return False
        await self._decide_voter(VoterAddress(voter_id, ""))  # else it would be let in again
        left = tuple(voter for voter in raft.voters if voter.id != voter_id)
        return await self.node.change_voters(left, DECIDE_TIMEOUT_MS)

    def transfer(self, voter_id: int) -> bool:
        """Begin to hand the leadership over."""
        raft = self.node.raft
        to = (
            next((voter for voter in raft.voters if voter.id == voter_id), None) if raft is not None else None
        )
        return to is not None and self.node.transfer(to)

    async def _decide_voter(self, change: VoterAddress) -> None:
        data = msgspec.json.encode(LogCommand(VOTERS_GROUP, msgspec.Raw(msgspec.json.encode(change))))
        await self.node.propose(data, DECIDE_TIMEOUT_MS)

    def status(self) -> Mapping[str, object]:
        node, raft = self.node, self.node.raft
        voters: tuple[Voter, ...] = raft.voters if raft is not None else ()
        return {
            "kind": "raft",
            "voter": node.me.id,
            "uuid": node.me.uuid,
            "cluster": node.storage.voter.cluster,
            "role": raft.role.name if raft is not None else ("FAILED" if node.failure else "WAITING"),
            "term": raft.term if raft is not None else 0,
            "commitIndex": raft.commit_index if raft is not None else 0,
            "appliedIndex": node.applied_index,
            "leader": node.leader_address,
            "voters": {str(voter.id): node.peers.get(voter.id, "") for voter in voters},
            "broken": node.storage.broken,
            "tickLatenessMs": round(node.lateness.last_ms, 1),
            "tickLatenessWorstMs": round(node.lateness.worst_ms, 1),
        }

    # -- the state machine ------------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        if entry.kind is not EntryKind.COMMAND:
            return
        item = msgspec.json.decode(entry.data, type=LogCommand)
        if item.group == VOTERS_GROUP:
            change = msgspec.json.decode(item.command, type=VoterAddress)
            self._records.voters[change.id] = change.address
            self._know_voters()
            return
        record = self._records.groups.get(item.group)
        if record is None:
            record = GroupRecord()
        outcome = apply(record, decode_command(bytes(item.command)))
        if outcome.accepted:
            self._records.groups[item.group] = record
        self._remember(entry.index, outcome)
        if outcome.accepted:
            self.on_change(item.group)

    def _remember(self, index: int, outcome: Outcome) -> None:
        self._outcomes[index] = outcome
        while len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]

    def _know_voters(self) -> None:
        me = self.node.me.id
        for number, address in self._records.voters.items():
            if number == me:
                continue
            if address:
                self.node.peers[number] = address
            else:
                self.node.peers.pop(number, None)

    def load(self, snapshot: Snapshot) -> None:
        self._records = msgspec.json.decode(snapshot.data, type=Records) if snapshot.data else Records()
        self._know_voters()
        for group in self._records.groups:
            self.on_change(group)

    def dump(self) -> bytes:
        return msgspec.json.encode(self._records)
