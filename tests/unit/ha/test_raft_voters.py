"""Voters are known by id and UUID; a leader does not flood those who lag."""

from __future__ import annotations

from cometmq.controller.raft.core import Raft, RaftTimes, Role
from cometmq.controller.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    HardState,
    Message,
    Snapshot,
    SnapshotRequest,
    Voter,
    VoteReply,
)

FIRST = (Voter(1, "a"), Voter(2, "b"), Voter(3, "c"))


def voter(me: Voter) -> Raft:
    return Raft(
        me,
        now=0,
        random_between=lambda low, high: low,
        hard_state=HardState(1, None),
        snapshot=Snapshot(0, 0, FIRST),
    )


def test_a_leader_that_was_added_while_we_were_away_is_followed() -> None:
    lagging, leader = voter(FIRST[2]), Voter(1, "new")
    change = Entry(1, 2, EntryKind.VOTERS, voters=(leader, *FIRST[1:]))
    lagging.receive(AppendRequest(leader, lagging.me, 2, 0, 0, (change,), 1, 0), 10)
    assert lagging.leader == leader
    assert leader in lagging.voters


def test_a_new_disk_does_not_take_what_was_meant_for_the_old_one() -> None:
    wiped = voter(Voter(3, "another"))
    wiped.receive(AppendRequest(FIRST[0], FIRST[2], 2, 0, 0, (), 0, 0), 10)
    assert wiped.leader is None
    assert not wiped.take().messages


def leader(entries: int, snapshot: Snapshot | None = None) -> Raft:
    """Voter 1 leads; the others have answered nothing yet."""
    first = snapshot or Snapshot(0, 0, FIRST)
    log = tuple(Entry(first.index + 1 + at, 1, EntryKind.COMMAND) for at in range(entries))
    raft = Raft(
        FIRST[0], now=0, random_between=lambda low, high: low, hard_state=HardState(1, None), snapshot=first,
        entries=log,
    )  # fmt: skip
    raft.tick(RaftTimes().election_max)
    for trial in (True, False):
        raft.receive(VoteReply(FIRST[1], raft.me, 2, True, trial), RaftTimes().election_max)
    assert raft.role is Role.LEADER
    messages(raft)
    return raft


def messages(raft: Raft, to: Voter | None = None) -> list[Message]:
    step = raft.take()
    raft.synced(step)
    return [message for message in step.messages if to is None or message.to == to]


def test_many_answers_of_one_who_lags_begin_one_exchange() -> None:
    raft, now = leader(20), RaftTimes().election_max
    for _ in range(10):
        raft.propose(b"")
    messages(raft)
    for _ in range(10):  # to each of them: my log ends at 7
        raft.receive(AppendReply(FIRST[2], raft.me, raft.term, False, 7, 0), now)
    sent = messages(raft, FIRST[2])
    assert len(sent) == 1
    assert isinstance(sent[0], AppendRequest)
    assert sent[0].previous_index == 7
    for _ in range(10):
        raft.receive(AppendReply(FIRST[2], raft.me, raft.term, True, 20, 0), now)
    assert len(messages(raft, FIRST[2])) == 1


def test_one_whose_answers_make_no_sense_is_tried_again_with_the_heartbeat_only() -> None:
    raft, now = leader(20), RaftTimes().election_max
    raft.receive(AppendReply(FIRST[2], raft.me, raft.term, True, 15, 0), now)
    messages(raft)
    for at in range(20):  # it has forgotten what it acknowledged
        raft.receive(AppendReply(FIRST[2], raft.me, raft.term, False, at % 15, 0), now)
    assert len(messages(raft, FIRST[2])) <= 1
    raft.tick(now + RaftTimes().heartbeat)
    assert len(messages(raft, FIRST[2])) == 1


def test_a_snapshot_is_sent_once_per_heartbeat() -> None:
    raft, now = leader(3, Snapshot(50, 1, FIRST, b"state")), RaftTimes().election_max
    for _ in range(10):
        raft.receive(AppendReply(FIRST[2], raft.me, raft.term, False, 0, 0), now)
        raft.read("asked")
        raft.propose(b"")
    assert sum(isinstance(sent, SnapshotRequest) for sent in messages(raft, FIRST[2])) == 1
    raft.tick(now + RaftTimes().heartbeat)
    assert [type(sent) for sent in messages(raft, FIRST[2])] == [SnapshotRequest]
    raft.receive(AppendReply(FIRST[2], raft.me, raft.term, True, 50, 0), now)
    assert [type(sent) for sent in messages(raft, FIRST[2])] == [AppendRequest]
