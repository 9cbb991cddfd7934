"""Voters are known by id and UUID (ha.md 5)."""

from __future__ import annotations

from cometmq.controller.raft.core import Raft
from cometmq.controller.raft.messages import AppendRequest, Entry, EntryKind, HardState, Snapshot, Voter

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
