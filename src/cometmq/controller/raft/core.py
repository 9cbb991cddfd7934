"""One voter of the metadata group: elections, replication, membership, reads, as a function of messages and time.

Theory of operation. The driver calls ``tick``, ``receive`` or ``propose``, then ``take`` for the Step: what to write
and sync first, what to send only after that, what is committed. After the sync it calls ``synced``. Times are
milliseconds of any steady clock, chance is injected, so a run can be repeated exactly (tests/sim).

* Pre-vote and sticky followers: nobody who hears a leader helps to replace it, a voter that was cut off does not
  disturb when it returns. Check-quorum: a leader that hears no majority for an election timeout steps down.
* A leader begins its term with an empty entry and commits older ones only with it.
* Voters change one at a time, only after an entry of the current term is committed and the last change is.
* One message at a time looks for the point where a follower's log parts from ours. Answers that bring no news are not
  answered: the next heartbeat tries again. Otherwise every message to a follower that lags, or whose files are damaged,
  would begin an exchange of its own, and they would go on beside each other.
* A voter is (id, UUID), and only voters of the configuration are counted, so a wiped disk cannot vote twice. Messages
  of a UUID that we do not know are taken: we may be the one who has not heard yet that it was added.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from cometmq.controller.raft.log import RaftLog
from cometmq.controller.raft.messages import (
    AppendReply,
    AppendRequest,
    ElectNow,
    Entry,
    EntryKind,
    HardState,
    Message,
    Read,
    Snapshot,
    SnapshotRequest,
    Step,
    Voter,
    VoteReply,
    VoteRequest,
)

ENTRIES_PER_MESSAGE_MAX = 64


class Role(enum.Enum):
    FOLLOWER = enum.auto()
    TRIAL = enum.auto()  # asks whether it would be elected
    CANDIDATE = enum.auto()
    LEADER = enum.auto()


@dataclass(frozen=True, slots=True)
class RaftTimes:
    """Milliseconds."""

    election_min: int = 500
    election_max: int = 1_000
    heartbeat: int = 100


class Raft:
    def __init__(
        self,
        me: Voter,
        *,
        now: int,
        random_between: Callable[[int, int], int],
        times: RaftTimes | None = None,
        hard_state: HardState | None = None,
        snapshot: Snapshot | None = None,
        entries: tuple[Entry, ...] = (),
    ) -> None:
        """A new group begins with a snapshot at index 0 that names its voters; a joining voter with none."""
        self.me = me
        self._random_between = random_between
        self._times = times or RaftTimes()
        self._now = now
        kept = hard_state or HardState()
        self.term, self.vote = kept.term, kept.vote
        self.log = RaftLog(snapshot or Snapshot(), entries)
        self.commit_index = self.log.snapshot.index
        self._handed_out = self.commit_index  # committed entries up to here were given to the driver
        self._synced_index = self.log.last_index
        self.role = Role.FOLLOWER
        self.leader: Voter | None = None
        self._heard_leader = now - self._times.election_min
        self._votes: set[Voter] = set()
        self._step = Step()
        self._transfer_to: Voter | None = None
        self._transfer_until = 0
        # Of a leader, by voter
        self._next: dict[Voter, int] = {}
        self._match: dict[Voter, int] = {}
        self._snapshot_at: dict[Voter, int] = {}  # when it was sent last
        self._active: set[Voter] = set()
        self._answered: dict[Voter, int] = {}
        self._reads: list[tuple[int, Read]] = []
        self._reset_leadership()
        self._postpone_election()

    # -- what the driver calls ------------------------------------------------------------------------------------

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self.log.voters()[1]

    def tick(self, now: int) -> None:
        """Time has passed; call it a few times per heartbeat interval."""
        self._now = now
        if self.role is not Role.LEADER:
            if now >= self._election_at and self.me in self.voters:
                self._campaign(trial=True)
            return
        if now >= self._quorum_check_at:
            self._check_quorum()
        if self.role is Role.LEADER and now >= self._heartbeat_at:
            self._broadcast()
        if self._transfer_to is not None and now >= self._transfer_until:
            self._transfer_to = None

    def receive(self, message: Message, now: int) -> None:
        self._now = now
        if message.to != self.me:
            return  # meant for the voter that had this id before
        if isinstance(message, VoteRequest):
            self._on_vote_request(message)
            return
        if isinstance(message, VoteReply) and message.trial and message.granted:
            self._on_vote_reply(message)  # its term is one that does not exist yet
            return
        if message.term > self.term:
            self._follow(message.term, None)
        if message.term < self.term:
            self._answer_the_past(message)
            return
        if isinstance(message, AppendRequest):
            self._on_append(message)
        elif isinstance(message, SnapshotRequest):
            self._on_snapshot(message)
        elif isinstance(message, AppendReply):
            self._on_append_reply(message)
        elif isinstance(message, VoteReply):
            self._on_vote_reply(message)
        elif isinstance(message, ElectNow):
            self._campaign(trial=False, transfer=True)

    def propose(self, data: bytes) -> int | None:
        """Index of the new entry, None if this is not the leader (or is just handing over)."""
        if self.role is not Role.LEADER or self._transfer_to is not None:
            return None
        return self._append_own(EntryKind.COMMAND, data)

    def change_voters(self, voters: tuple[Voter, ...]) -> int | None:
        """Add or remove one voter; None if that is not possible now."""
        index, before = self.log.voters()
        differ = set(voters) ^ set(before)
        settled = index <= self.commit_index and self.log.term_at(self.commit_index) == self.term
        if self.role is not Role.LEADER or len(differ) != 1 or not voters or not settled:
            return None
        return self._append_own(EntryKind.VOTERS, b"", voters)

    def transfer(self, to: Voter) -> bool:
        """Hand leadership over; nothing can be proposed until it has happened or failed."""
        if self.role is not Role.LEADER or to == self.me or to not in self.voters:
            return False
        self._transfer_to, self._transfer_until = to, self._now + self._times.election_max
        self._hand_over_if_ready()
        self._send_entries(to)
        return True

    def read(self, token: object) -> bool:
        """Ask for a linearizable read; ``Step.reads`` answers. False if this is not an established leader."""
        if self.role is not Role.LEADER or self.log.term_at(self.commit_index) != self.term:
            return False
        self._round += 1
        self._reads.append((self._round, Read(token, self.commit_index)))
        self._broadcast()
        self._finish_reads()
        return True

    def compact(self, index: int, data: bytes) -> None:
        """The state machine after ``index`` (which it has applied) is ``data``: entries before it may go."""
        assert index <= self._handed_out
        term = self.log.term_at(index)
        if term is None or index <= self.log.snapshot.index:
            return
        voters = self._voters_at(index)
        snapshot = Snapshot(index, term, voters, data)
        self.log.compact(snapshot)
        self._step.snapshot = snapshot

    @property
    def has_work(self) -> bool:
        """There is something to take."""
        step = self._step
        return bool(step.messages or step.must_sync or step.reads) or self._handed_out < self.commit_index

    def take(self) -> Step:
        """What is to be done now; see Step for the order."""
        committed = self.log.between(self._handed_out + 1, self.commit_index + 1)
        self._handed_out = self.commit_index
        step, self._step = self._step, Step()
        step.committed = committed
        return step

    def synced(self, step: Step) -> None:
        """Everything of this step that had to be written is on disk."""
        if step.entries:
            last = step.entries[-1]
            if self.log.term_at(last.index) == last.term:
                self._synced_index = max(self._synced_index, last.index)
        if self.role is Role.LEADER:
            self._match[self.me] = min(self._synced_index, self.log.last_index)
            self._advance_commit()

    # -- elections ------------------------------------------------------------------------------------------------

    def _campaign(self, *, trial: bool, transfer: bool = False) -> None:
        if self.me not in self.voters:
            return
        self._postpone_election()
        self.leader = None
        self.role = Role.TRIAL if trial else Role.CANDIDATE
        if not trial:
            self._set_hard_state(self.term + 1, self.me)
        self._votes = {self.me}
        if self._has_quorum(self._votes):
            self._won()
            return
        term = self.term + 1 if trial else self.term
        for voter in self._others():
            self._send(
                VoteRequest(self.me, voter, term, self.log.last_index, self.log.last_term, trial, transfer)
            )

    def _on_vote_request(self, request: VoteRequest) -> None:
        hears_leader = self.leader is not None and self._now - self._heard_leader < self._times.election_min
        leads = self.role is Role.LEADER
        if (hears_leader or leads) and not request.transfer:
            self._refuse_vote(request)
            return
        if not request.trial and request.term > self.term:
            self._follow(request.term, None)
        up_to_date = not self.log.is_newer_than(request.last_term, request.last_index)
        if request.trial:
            granted = up_to_date and request.term > self.term
        else:
            granted = up_to_date and request.term == self.term and self.vote in (None, request.sender)
        if not granted:
            self._refuse_vote(request)
            return
        if not request.trial:
            self._set_hard_state(self.term, request.sender)
            self._postpone_election()
        self._send(VoteReply(self.me, request.sender, request.term, True, request.trial))

    def _refuse_vote(self, request: VoteRequest) -> None:
        self._send(VoteReply(self.me, request.sender, self.term, False, request.trial))

    def _on_vote_reply(self, reply: VoteReply) -> None:
        awaited = Role.TRIAL if reply.trial else Role.CANDIDATE
        expected_term = self.term + 1 if reply.trial else self.term
        if self.role is not awaited or not reply.granted or reply.term != expected_term:
            return
        self._votes.add(reply.sender)
        if self._has_quorum(self._votes):
            self._won()

    def _won(self) -> None:
        if self.role is Role.TRIAL:
            self._campaign(trial=False)
            return
        self.role, self.leader = Role.LEADER, self.me
        self._reset_leadership()
        self._next = dict.fromkeys(self._others(), self.log.last_index + 1)
        self._append_own(EntryKind.NOTHING, b"")

    def _follow(self, term: int, leader: Voter | None) -> None:
        if term > self.term:
            self._set_hard_state(term, None)
        if self.role is not Role.FOLLOWER:
            self._postpone_election()
        self.role, self.leader = Role.FOLLOWER, leader
        self._transfer_to = None
        self._reads = []

    def _postpone_election(self) -> None:
        wait = self._random_between(self._times.election_min, self._times.election_max)
        self._election_at = self._now + wait

    def _check_quorum(self) -> None:
        self._quorum_check_at = self._now + self._times.election_max
        if not self._has_quorum(self._active | {self.me}):
            self._follow(self.term, None)
        self._active = set()

    # -- replication: leader --------------------------------------------------------------------------------------

    def _reset_leadership(self) -> None:
        self._next = {}
        self._match = {self.me: min(self._synced_index, self.log.last_index)}
        self._snapshot_at = {}
        self._active = set()
        self._round = 0
        self._answered = {}
        self._reads = []
        self._heartbeat_at = self._now
        self._quorum_check_at = self._now + self._times.election_max
        self._transfer_to = None

    def _append_own(self, kind: EntryKind, data: bytes, voters: tuple[Voter, ...] = ()) -> int:
        entry = Entry(self.log.last_index + 1, self.term, kind, data, voters)
        self._append_entry(entry)
        self._broadcast()
        return entry.index

    def _append_entry(self, entry: Entry) -> None:
        self.log.append(entry)
        self._step.entries.append(entry)

    def _broadcast(self) -> None:
        self._heartbeat_at = self._now + self._times.heartbeat
        for voter in self._others():
            self._send_entries(voter)

    def _send_entries(self, to: Voter) -> None:
        first = self._next.setdefault(to, self.log.last_index + 1)
        previous = first - 1
        previous_term = self.log.term_at(previous)
        if previous_term is None and self._snapshot_is_due(to):
            self._snapshot_at[to] = self._now
            self._send(SnapshotRequest(self.me, to, self.term, self.log.snapshot, self._round))
            return
        entries = tuple(self.log.between(first, first + ENTRIES_PER_MESSAGE_MAX))
        if previous_term is None:  # a snapshot is on its way; only the round counts
            previous, previous_term, entries = self.log.last_index, self.log.last_term, ()
        self._send(
            AppendRequest(
                self.me, to, self.term, previous, previous_term, entries, self.commit_index, self._round
            )
        )

    def _snapshot_is_due(self, to: Voter) -> bool:
        sent_at = self._snapshot_at.get(to)
        return sent_at is None or self._now - sent_at >= self._times.heartbeat

    def _on_append_reply(self, reply: AppendReply) -> None:
        if self.role is not Role.LEADER:
            return
        peer = reply.sender
        self._active.add(peer)
        self._answered[peer] = max(self._answered.get(peer, 0), reply.round)
        self._finish_reads()
        known = self._match.get(peer, 0)
        if not reply.matches:
            # Never below what is known to match: an old answer may come late.
            self._try_earlier(peer, max(reply.index, known) + 1)
            return
        self._match[peer] = max(known, reply.index)
        self._next[peer] = max(self._next.get(peer, 1), self._match[peer] + 1)
        self._advance_commit()
        self._hand_over_if_ready()
        if self.role is Role.LEADER and reply.index > known and self._next[peer] <= self.log.last_index:
            self._send_entries(peer)

    def _try_earlier(self, peer: Voter, index: int) -> None:
        if index < self._next.setdefault(peer, self.log.last_index + 1):
            self._next[peer] = index
            self._send_entries(peer)

    def _advance_commit(self) -> None:
        voters = self.voters
        if not voters:
            return
        matched = sorted((self._match.get(voter, 0) for voter in voters), reverse=True)
        index = matched[len(voters) // 2]
        if index > self.commit_index and self.log.term_at(index) == self.term:
            self.commit_index = index
            if self.me not in voters and self.log.voters()[0] <= index:
                self._follow(self.term, None)  # we were removed, and that is settled now

    def _finish_reads(self) -> None:
        while self._reads:
            number, read = self._reads[0]
            if not self._has_quorum(
                {v for v, answered in self._answered.items() if answered >= number} | {self.me}
            ):
                return
            self._reads.pop(0)
            self._step.reads.append(read)

    def _hand_over_if_ready(self) -> None:
        to = self._transfer_to
        if to is not None and self._match.get(to, 0) == self.log.last_index:
            self._send(ElectNow(self.me, to, self.term))

    # -- replication: follower ------------------------------------------------------------------------------------

    def _hear_leader(self, message: Message) -> None:
        if self.role is not Role.FOLLOWER:
            self._follow(self.term, message.sender)
        self.leader = message.sender
        self._heard_leader = self._now
        self._postpone_election()

    def _on_append(self, request: AppendRequest) -> None:
        self._hear_leader(request)
        previous = request.previous_index
        if previous < self.log.snapshot.index:
            # What the snapshot covers is committed and so agrees with every leader.
            self._reply_append(request, True, self.log.snapshot.index)
            return
        if self.log.term_at(previous) != request.previous_term:
            self._reply_append(request, False, self._agreeing_before(previous))
            return
        for entry in request.entries:
            self._take_entry(entry)
        last = previous + len(request.entries)
        self._commit_up_to(min(request.commit_index, last))
        self._reply_append(request, True, last)

    def _agreeing_before(self, index: int) -> int:
        """Where the leader should try next: before the whole term that does not agree."""
        if index > self.log.last_index:
            return self.log.last_index
        term = self.log.term_at(index)
        while index > self.commit_index and self.log.term_at(index) == term:
            index -= 1
        return index

    def _take_entry(self, entry: Entry) -> None:
        term = self.log.term_at(entry.index)
        if term == entry.term:
            return
        if term is not None:
            assert entry.index > self.commit_index, "a committed entry was to be replaced"
            self.log.cut(entry.index)
            self._synced_index = min(self._synced_index, entry.index - 1)
            step = self._step
            step.entries = [kept for kept in step.entries if kept.index < entry.index]
            step.cut_from = min(entry.index, entry.index if step.cut_from is None else step.cut_from)
        self._append_entry(entry)

    def _commit_up_to(self, index: int) -> None:
        self.commit_index = max(self.commit_index, index)

    def _reply_append(self, request: AppendRequest | SnapshotRequest, matches: bool, index: int) -> None:
        self._send(AppendReply(self.me, request.sender, self.term, matches, index, request.round))

    def _on_snapshot(self, request: SnapshotRequest) -> None:
        self._hear_leader(request)
        snapshot = request.snapshot
        if snapshot.index > self.commit_index:
            self.log.compact(snapshot)
            self.commit_index = self._handed_out = snapshot.index
            self._synced_index = self.log.last_index
            self._step.snapshot = snapshot
            self._step.entries = [entry for entry in self._step.entries if entry.index > snapshot.index]
        self._reply_append(request, True, self.commit_index)

    # -- small things ---------------------------------------------------------------------------------------------

    def _others(self) -> list[Voter]:
        return [voter for voter in self.voters if voter != self.me]

    def _has_quorum(self, those: set[Voter]) -> bool:
        voters = self.voters
        return bool(voters) and sum(voter in those for voter in voters) > len(voters) // 2

    def _answer_the_past(self, message: Message) -> None:
        """A leader of an older term learns from our answer that it is none any more."""
        if isinstance(message, (AppendRequest, SnapshotRequest)):
            self._reply_append(message, False, self.log.last_index)

    def _voters_at(self, index: int) -> tuple[Voter, ...]:
        for entry in reversed(self.log.between(self.log.snapshot.index + 1, index + 1)):
            if entry.kind is EntryKind.VOTERS:
                return entry.voters
        return self.log.snapshot.voters

    def _set_hard_state(self, term: int, vote: Voter | None) -> None:
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            self._step.hard_state = HardState(term, vote)

    def _send(self, message: Message) -> None:
        self._step.messages.append(message)
