"""Rules of a replica that are easier to see alone than in the simulator."""

from __future__ import annotations

import pytest
from sim.replica_disk import SimLog, record

from cometmq.broker.ha.frames import Ack, AlterSyncSet, Close, Data, Fence, Hello, Send, Welcome
from cometmq.broker.ha.replica import Replica, Standing
from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.controller.group_state import GroupView

LEASE = 1_000


def view(
    *members: int, epoch: int = 1, version: int = 1, quorum: int = 0, unclean: tuple[int, ...] = ()
) -> GroupView:
    return GroupView(
        1, epoch, frozenset(members), version, unclean=frozenset(unclean), min_in_sync=2, ack_replicas=quorum
    )


def master(*members: int, quorum: int = 0, now: float = 0) -> Replica:
    replica = Replica(1, SimLog(), now=now)
    replica.on_view(view(*members, quorum=quorum), now, now)
    assert replica.role is ReplicaRole.MASTER
    return replica


def follow(replica: Replica, follower: int, offset: int, *, session: int = 1, now: float = 1) -> None:
    """A follower shakes hands and acknowledges up to an offset."""
    replica.receive(Hello(follower, session, 1, replica.log.epochs, offset), now)
    replica.receive(Ack(follower, session, 1, offset, offset), now)


def proposals(replica: Replica) -> list[AlterSyncSet]:
    return [output for output in replica.take() if isinstance(output, AlterSyncSet)]


def test_a_byte_is_confirmed_when_every_member_has_it() -> None:
    replica = master(1, 2, 3)
    assert replica.append(record(1), 1) == 8
    follow(replica, 2, 8)
    assert replica.confirm == 0
    follow(replica, 3, 8)
    assert replica.confirm == 8


def test_by_quorum_k_of_the_known_and_of_the_proposed_set_must_have_it() -> None:
    replica = master(1, 2, 3, quorum=2)
    follow(replica, 4, 0)
    follow(replica, 2, 0)
    follow(replica, 3, 0)
    replica.tick(2)
    assert [p.members for p in proposals(replica)] == [{1, 2, 3, 4}]
    replica.append(record(1), 3)
    replica.receive(Ack(4, 1, 1, 8, 8), 4)
    assert replica.confirm == 0  # two of the union, but one of the known set
    replica.receive(Ack(2, 1, 1, 8, 8), 4)
    assert replica.confirm == 8


def test_acknowledgements_from_before_a_loss_of_power_are_forgotten() -> None:
    replica = master(1, 2, 3)
    follow(replica, 3, 0)
    replica.take()
    replica.on_view(view(1, 2, version=2, unclean=(3,)), None, 2)
    assert Close(3) in replica.take()
    replica.tick(3)
    assert all(3 not in proposal.members for proposal in proposals(replica))
    follow(replica, 3, 0, session=1, now=4)  # a late copy of the old greeting
    assert 3 not in replica.in_sync.streams
    follow(replica, 3, 0, session=2, now=4)
    assert 3 in replica.in_sync.streams


def test_a_new_master_grants_nothing_until_the_lease_before_it_has_surely_ended() -> None:
    replica = master(1, 2)
    replica.on_view(view(1, 2), 1_200, 1_210)
    assert replica.has_lease(1_211)
    assert not replica.may_grant(1_211)
    assert replica.may_grant(1_260)
    assert not replica.may_grant(1_200 + LEASE)  # from when the heartbeat was sent


def test_without_a_lease_a_master_goes_on_as_long_as_all_members_answer() -> None:
    replica = master(1, 2, 3)
    follow(replica, 2, 0, now=900)
    assert replica.standing(LEASE - 1) is Standing.SERVING
    assert replica.standing(LEASE) is Standing.FENCED
    follow(replica, 3, 0, now=900)
    assert replica.standing(LEASE) is Standing.NOLEASE
    assert replica.may_append(LEASE)
    replica.stream_lost(3, LEASE)
    assert not replica.may_append(LEASE)


def test_a_master_that_hears_of_a_later_epoch_stops() -> None:
    replica = master(1, 2)
    replica.receive(Fence(2, 1, 2), 1)
    assert replica.standing(1) is Standing.FENCED
    assert replica.append(record(1), 1) is None


def test_below_the_least_number_of_members_nothing_is_appended() -> None:
    replica = master(1, 2)
    replica.on_view(view(1, version=2), 1, 1)
    assert replica.append(record(1), 2) is None


def test_a_master_that_resigns_drains_and_may_stay_after_all() -> None:
    replica = master(1, 2)
    replica.append(record(1), 1)
    replica.resign()
    assert replica.append(record(2), 1) is None
    assert not replica.has_lease(1)
    assert not replica.drained
    follow(replica, 2, 8)
    assert replica.drained
    replica.stay()
    assert replica.append(record(2), 2) == 16


@pytest.mark.parametrize("forced", [0, 3])
def test_confirmed_bytes_are_cut_only_where_an_operator_accepted_it(forced: int) -> None:
    log = SimLog()
    log.save_epochs(log.epochs.with_epoch(1, 0))
    log.append(record(1) + record(2))
    replica = Replica(2, log, now=0, confirm=16)
    replica.on_view(GroupView(3, 3, frozenset((3,)), 5, forced_epoch=forced), None, 0)
    greeting = next(output.frame for output in replica.take() if isinstance(output, Send))
    epochs = log.epochs.with_epoch(3, 8)
    replica.receive(Welcome(3, greeting.session, 3, epochs, 8), 1)
    assert replica.role is (ReplicaRole.FOLLOWER if forced else ReplicaRole.FAILED)
    assert log.max_offset == (8 if forced else 16)


def test_data_of_a_replaced_master_is_answered_with_a_fence() -> None:
    replica = Replica(2, SimLog(), now=0)
    replica.on_view(GroupView(0, 4, frozenset((1, 2)), 5), None, 0)  # deposed: nobody is master
    replica.receive(Data(1, 1, 3, 0, 0, record(1)), 1)
    assert replica.take() == [Send(1, Fence(2, 1, 4))]
    assert replica.log.max_offset == 0


def test_silence_is_told_about_the_master_of_the_known_epoch() -> None:
    replica = Replica(2, SimLog(), now=0)
    replica.on_view(view(1, 2, epoch=3), None, 500)
    assert replica.status(900)[0::5] == (3, 400)
    replica.stream_lost(1, 900)
    assert replica.status(900).stream_closed
    replica.on_view(view(1, 2, epoch=4, version=2), None, 1_000)
    assert (replica.status(1_000).master_silence, replica.status(1_000).stream_closed) == (0, False)


def test_what_is_kept_as_confirmed_is_on_this_disk() -> None:
    replica = master(1, 2, 3, quorum=2)
    replica.append(record(1), 1)
    follow(replica, 2, 8)
    assert (replica.confirm, replica.confirm_to_keep) == (8, 0)
    replica.log.flush()
    assert replica.confirm_to_keep == 8


def test_a_follower_that_only_shakes_hands_leaves_the_set() -> None:
    """Its disk is full: it takes nothing, reconnects, acknowledges what it has, and would hold up everybody."""
    replica = master(1, 2, 3)
    follow(replica, 2, 0)
    follow(replica, 3, 0)
    replica.append(record(1), 2)
    for now in range(3, 10_000, 100):
        follow(replica, 2, 0, session=now, now=now)
        follow(replica, 3, 8, session=now, now=now)
        replica.tick(now)
        found = proposals(replica)
        if found:
            assert found[0].members == {1, 3}
            assert now >= replica.times.catch_up
            return
    raise AssertionError("it stayed in the set")
