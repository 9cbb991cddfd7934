"""Commands of the controller and what they require."""

from __future__ import annotations

from cometmq.controller.commands import GroupRecord, RemoveReplica, SetConfig, apply
from cometmq.controller.group_state import NO_MASTER, GroupState


def group(*replicas: int, min_in_sync: int = 2) -> GroupState:
    """Replicas registered, the first is master of epoch 1, all are in sync."""
    state = GroupState()
    state.configure(min_in_sync)
    for replica in replicas:
        state.register(replica, f"s{replica}", unclean=False)
    assert state.elect(replicas[0], 0, ())
    assert state.alter_sync_set(replicas[0], 1, state.view.set_version, replicas)
    return state


def test_only_the_master_of_this_epoch_and_version_changes_the_set() -> None:
    state = group(1, 2, 3)
    view = state.view
    assert not state.alter_sync_set(2, view.epoch, view.set_version, (2,))
    assert not state.alter_sync_set(1, view.epoch - 1, view.set_version, (1,))
    assert not state.alter_sync_set(1, view.epoch, view.set_version - 1, (1,))
    assert not state.alter_sync_set(1, view.epoch, view.set_version, (2, 3))  # without itself
    assert state.view == view
    assert state.alter_sync_set(1, view.epoch, view.set_version, (1, 3))
    assert state.view.sync_set == {1, 3}


def test_a_master_comes_from_the_in_sync_set() -> None:
    state = group(1, 2, 3)
    assert state.alter_sync_set(1, 1, state.view.set_version, (1, 2))
    assert not state.elect(3, 1, (1,))
    assert not state.elect(2, 0, (1,))  # of another epoch
    assert state.elect(2, 1, (1,))
    assert (state.view.master, state.view.epoch, state.view.sync_set) == (2, 2, {2})


def test_who_left_a_set_that_was_too_small_stays_eligible_until_it_is_large_enough() -> None:
    state = group(1, 2, 3)
    assert state.alter_sync_set(1, 1, state.view.set_version, (1,))
    assert state.eligible == {2, 3}
    state.register(1, "s1", unclean=True)  # the last one lost power
    assert not state.view.sync_set
    assert (state.view.master, state.view.epoch) == (NO_MASTER, 2)
    assert not state.elect(1, 2, ())
    assert state.elect(3, 2, ())
    assert state.alter_sync_set(3, 3, state.view.set_version, (2, 3))
    assert not state.eligible


def test_a_disk_that_may_lack_pages_is_not_elected_before_it_caught_up() -> None:
    state = group(1, 2, 3)
    state.register(2, "s2", unclean=True)
    assert state.view.sync_set == {1, 3}
    assert not state.elect(2, 1, (1,))
    assert state.alter_sync_set(1, 1, state.view.set_version, (1, 2, 3))
    assert state.elect(2, 1, (1,))


def test_a_new_disk_under_an_old_id_is_a_new_replica() -> None:
    state = group(1, 2, 3)
    state.register(3, "another", unclean=False)
    assert state.view.sync_set == {1, 2}


def test_force_and_removal_are_for_operators() -> None:
    state = group(1, 2, 3)
    assert not state.remove(1)  # the master
    assert state.remove(3)
    assert state.view.sync_set == {1, 2}
    assert state.force_elect(2)
    assert (state.view.master, state.view.epoch, state.view.forced_epoch) == (2, 2, 2)


def test_a_set_with_a_removed_replica_is_void_and_the_master_hears_of_it() -> None:
    state = group(1, 2, 3, min_in_sync=1)
    before = state.view
    state.stores.pop(3)
    assert state.alter_sync_set(1, 1, before.set_version, (1, 3))
    assert state.view.sync_set == before.sync_set
    assert state.view.set_version > before.set_version


def test_the_last_holders_of_confirmed_bytes_are_not_removed() -> None:
    state = group(1, 2, 3)
    assert state.remove(3)
    assert not state.remove(2)
    assert state.configure(1)
    assert state.remove(2)
    assert not state.eligible


def test_a_group_does_not_shrink_below_what_it_takes_to_confirm() -> None:
    record = GroupRecord(state=group(1, 2), min_in_sync=2)
    record.state.alter_sync_set(1, 1, record.state.view.set_version, (1,))
    record.state.eligible = frozenset()  # replica 2 has not everything, so that nothing would be lost with it
    refused = apply(record, RemoveReplica(2))
    assert not refused.accepted
    assert "minInSyncReplicas=2" in refused.reason
    assert apply(record, SetConfig(min_in_sync=1)).accepted
    assert apply(record, RemoveReplica(2)).accepted


def test_by_quorum_a_master_is_deposed_first_and_the_set_keeps_its_size() -> None:
    state = GroupState()
    state.configure(1, 2)
    for replica in (1, 2, 3):
        state.register(replica, f"s{replica}", unclean=False)
    assert state.elect(1, 0, ())
    assert state.alter_sync_set(1, 1, state.view.set_version, (1, 2, 3))
    assert not state.elect(2, 1, (1,))
    state.register(3, "s3", unclean=True)
    assert state.view.sync_set == {1, 2, 3}
    assert state.depose(1, 1)
    assert not state.elect(3, 2, (1,))
    assert state.elect(2, 2, (1,))
    assert (state.view.master, state.view.epoch, state.view.sync_set) == (2, 3, {1, 2, 3})
    assert not state.configure(1, 3)  # what is confirmed was confirmed by two


def test_the_only_copy_of_a_group_that_wants_one_stays_electable() -> None:
    state = group(1, min_in_sync=1)
    state.register(1, "s1", unclean=True)
    assert state.elect(1, 2, ())
    state.register(1, "s1", unclean=False, corrupt=True)
    assert not state.elect(1, state.view.epoch, ())


def test_more_copies_than_there_are_replicas_cannot_be_asked_for() -> None:
    state = group(1, 2)
    assert not state.configure(3)
    assert state.configure(1)
    assert state.configure(2)
