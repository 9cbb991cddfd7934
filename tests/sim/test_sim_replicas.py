"""Replicas that elect their master, under every fault, and the mistakes that must be found (ha.md 12.2)."""

from __future__ import annotations

import pytest
from sim.replica_cluster import Bugs, ReplicaGroup
from sim.world import Violation

SEARCH_MAX = 500  # seeds; each planted mistake is found well before


def test_nothing_confirmed_is_lost(seeds: range) -> None:
    for seed in seeds:
        try:
            ReplicaGroup(seed).run()
        except (Violation, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_flushed_acknowledgements_survive_any_loss_of_power(seeds: range) -> None:
    for seed in seeds:
        try:
            ReplicaGroup(seed, on_disk=True).run()
        except (Violation, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_work_is_done_at_all() -> None:
    group = ReplicaGroup(5)
    group.run()
    assert len(group.confirmed) > 8 * 50
    assert len(group.masters) > 1


def test_nothing_known_to_be_confirmed_is_cut_even_if_too_many_disks_lost_pages(seeds: range) -> None:
    for seed in seeds:
        ReplicaGroup(seed, beyond=True).run()


@pytest.mark.parametrize(
    ("bug", "first_seed"),  # where the search begins: a seed near which it was found, to save time
    [
        ("skip_epoch_check", 0),
        ("confirm_connected_only", 0),
        ("no_union", 8),
        ("no_zeroing", 8),
        ("lease_from_reply", 125),
        ("cut_below_confirm", 0),
        ("ack_before_flush", 0),
    ],
)
def test_a_planted_mistake_is_found(bug: str, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEARCH_MAX):
        try:
            ReplicaGroup(
                seed,
                bugs=Bugs(**{bug: True}),
                beyond=bug == "cut_below_confirm",
                on_disk=bug == "ack_before_flush",
            ).run()
        except (Violation, AssertionError):
            return
    raise AssertionError(f"not found in {SEARCH_MAX} seeds")
