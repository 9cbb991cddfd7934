"""When a master is called dead, and who is elected."""

from __future__ import annotations

import pytest

from cometmq.controller.elections import Depose, Elect, ElectionTimes, GroupWatch, Report
from cometmq.controller.group_state import NO_MASTER, GroupState

TIMEOUT, GRACE = 1_500, 200
TIMES = ElectionTimes(TIMEOUT, GRACE)


def group(quorum: int = 0, replicas: tuple[int, ...] = (1, 2, 3)) -> GroupState:
    """Replica 1 is master of epoch 1, all are in sync."""
    state = GroupState()
    state.configure(2, quorum)
    for replica in replicas:
        state.register(replica, f"s{replica}", unclean=False)
    assert state.elect(1, 0, ())
    assert state.alter_sync_set(1, 1, state.view.set_version, replicas)
    return state


def report(replica: int, end: int = 100, *, epoch: int = 1, silence: int = 0, closed: bool = False) -> Report:
    return Report(replica, epoch, 1, end, silence, closed)


def watch_of(*reports: Report, now: float = 0) -> GroupWatch:
    watch = GroupWatch(TIMES, 0)
    for one in reports:
        watch.heard(one, now)
    return watch


def test_a_live_master_stays() -> None:
    watch = watch_of(report(1), report(2), report(3), now=1_000)
    assert watch.decide(group(), 1_000 + TIMEOUT - 1) is None


def test_rule_a_needs_both_connections_closed_for_a_while() -> None:
    state = group()
    watch = watch_of(report(1), report(2, closed=True), report(3), now=1_000)
    assert watch.decide(state, 1_400) is None  # its session lives
    watch.closed(1, 1_400)
    assert watch.decide(state, 1_400 + GRACE - 1) is None
    assert watch.decide(state, 1_400 + GRACE) == Elect(2, 1, frozenset({1}), "connections closed")
    watch.heard(report(1), 1_650)  # it is back
    assert watch.decide(state, 1_650) is None


def test_rule_a_asks_witnesses_of_this_epoch_only() -> None:
    watch = watch_of(report(1), report(2, closed=True, epoch=0), report(3, closed=True, epoch=0))
    watch.closed(1, 0)
    assert watch.decide(group(), GRACE + 1) is None


def test_rule_b_counts_from_the_begin_of_our_leadership() -> None:
    watch = GroupWatch(TIMES, 10_000)
    watch.heard(report(2), 11_000)
    assert watch.decide(group(), 10_000 + TIMEOUT - 1) is None
    decision = watch.decide(group(), 10_000 + TIMEOUT)
    assert isinstance(decision, Elect)
    assert (decision.new_master, decision.dead) == (2, {1, 3})


def test_rule_c_lets_a_new_leader_act_at_once() -> None:
    state = group()
    watch = watch_of(report(2, silence=TIMEOUT), report(3, silence=TIMEOUT - 1))
    assert watch.decide(state, 1) is None
    watch.heard(report(3, 101, silence=TIMEOUT), 2)
    assert watch.decide(state, 2) == Elect(3, 1, frozenset({1}), "silent to its replicas")


def test_rule_c_takes_no_silence_about_another_epoch() -> None:
    watch = watch_of(report(2, silence=TIMEOUT, epoch=0), report(3, silence=TIMEOUT, epoch=0))
    assert watch.decide(group(), 1) is None


def test_rule_d_keeps_the_old_master_in_sync() -> None:
    watch = watch_of(report(1), report(2), report(3, 90))
    assert watch.resign(group(), 1) == Elect(2, 1, frozenset(), "resigned")
    assert watch.resign(group(), 1, preferred=3) == Elect(3, 1, frozenset(), "resigned")


@pytest.mark.parametrize(("second", "third", "expected"), [(100, 101, 3), (101, 100, 2), (100, 100, 2)])
def test_the_longest_log_is_preferred_then_the_lowest_id(second: int, third: int, expected: int) -> None:
    watch = watch_of(report(2, second), report(3, third), now=TIMEOUT)
    decision = watch.decide(group(), TIMEOUT)
    assert isinstance(decision, Elect)
    assert decision.new_master == expected


def test_who_left_a_set_that_was_too_small_is_the_second_choice() -> None:
    state = group()
    assert state.alter_sync_set(1, 1, state.view.set_version, (1,))
    watch = watch_of(report(3), now=TIMEOUT)
    assert watch.decide(state, TIMEOUT) == Elect(3, 1, frozenset({1}), "no heartbeat")


def test_nobody_is_elected_who_may_lack_bytes() -> None:
    state = group()
    assert state.alter_sync_set(1, 1, state.view.set_version, (1, 2))
    state.register(2, "s2", unclean=True)
    watch = watch_of(report(2), report(3), now=TIMEOUT)
    assert watch.decide(state, TIMEOUT) is None
    assert watch.may_force(state, 2, TIMEOUT)
    assert not watch.may_force(state, 9, TIMEOUT)


def test_an_operator_cannot_force_what_can_be_elected() -> None:
    watch = watch_of(report(2), now=TIMEOUT)
    assert not watch.may_force(group(), 2, TIMEOUT)
    assert not watch_of(report(1), report(2)).may_force(group(), 2, 1)


def test_a_restarted_replica_is_not_alive_before_its_first_heartbeat() -> None:
    watch = watch_of(report(2))
    watch.registered(2, 10)
    assert watch.alive(10) == set()


def test_by_quorum_the_group_is_deposed_first() -> None:
    state = group(quorum=2)
    watch = watch_of(report(2, 100), report(3, 120), now=TIMEOUT)
    assert watch.decide(state, TIMEOUT) == Depose(1, 1, "no heartbeat")
    assert state.depose(1, 1)
    assert state.view.master == NO_MASTER
    assert watch.decide(state, TIMEOUT) is None  # what they said before is old
    watch.heard(report(2, 130, epoch=2), TIMEOUT)
    assert watch.decide(state, TIMEOUT) is None  # one of two that are needed
    watch.heard(report(3, 120, epoch=2), TIMEOUT)
    assert watch.decide(state, TIMEOUT, preferred=3) == Elect(2, 2, frozenset({1}), "no master")


def test_by_quorum_an_unclean_member_is_no_witness() -> None:
    state = group(quorum=2)
    assert state.depose(1, 1)
    state.register(3, "s3", unclean=True)
    watch = watch_of(report(2, epoch=2), report(3, 500, epoch=2))
    assert watch.decide(state, 1) is None
    watch.heard(report(1, 90, epoch=2), 1)
    assert watch.decide(state, 1) == Elect(2, 2, frozenset(), "no master")


def test_by_quorum_the_wish_of_a_master_that_resigned_counts_among_equals_once() -> None:
    state = group(quorum=2)
    watch = watch_of(report(1), report(2), report(3))
    assert watch.resign(state, 1, preferred=3) == Depose(1, 1, "resigned")
    assert watch.decide(state, 1) is None
    assert state.depose(1, 1)
    for replica in (1, 2, 3):
        watch.heard(report(replica, epoch=2), 2)
    decision = watch.decide(state, 2)
    assert isinstance(decision, Elect)
    assert decision.new_master == 3
    assert state.elect(3, 2, ())
    assert state.depose(3, 3)
    for replica in (1, 2, 3):
        watch.heard(report(replica, epoch=4), 3)
    assert watch.decide(state, 3) == Elect(1, 4, frozenset(), "no master")
