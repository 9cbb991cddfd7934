"""Groups that elect their master, with the controllers that elect, under every fault (ha.md 12.2)."""

from __future__ import annotations

import pytest
from sim.group_world import GroupWorld
from sim.planted import Bugs
from sim.world import Violation

# Each was found by the seed beside it (see docs/ha/elections.md for how many seeds it took): the search begins there.
PLANTED = [
    ("skip_epoch_check", 3),
    ("confirm_connected_only", 3),
]
SEARCH_MAX = 300  # seeds

# Seeds that once showed a mistake in the cores.
REGRESSIONS = [
    32,  # a voter that did not know the UUID of the leader ignored it for ever
    872,  # a proposal with a removed replica was never withdrawn
]


def run(seed: int, *, beyond: bool = False) -> GroupWorld:
    world = GroupWorld(seed, beyond=beyond)
    try:
        world.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


def test_nothing_confirmed_is_lost(seeds: range) -> None:
    for seed in seeds:
        run(seed)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_mistake_of_the_past_stays_corrected(seed: int) -> None:
    run(seed)


def test_work_is_done_at_all() -> None:
    worlds = [run(seed) for seed in range(1_000, 1_005)]
    assert sum(len(world.confirmed) for world in worlds) > 8 * 100
    assert sum(len(world.masters) for world in worlds) > 5
    assert sum(len(world.leaders) for world in worlds) > 5


def test_the_same_seed_makes_the_same_run() -> None:
    first, second = run(11), run(11)
    assert first.world.network.delivered == second.world.network.delivered
    assert (first.confirmed, first.masters, first.leaders) == (
        second.confirmed,
        second.masters,
        second.leaders,
    )


def test_nothing_known_to_be_confirmed_is_cut_even_if_too_many_disks_lost_pages(seeds: range) -> None:
    for seed in seeds:
        run(seed, beyond=True)


@pytest.mark.parametrize(("bug", "first_seed"), PLANTED)
def test_a_planted_mistake_is_found(bug: str, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEARCH_MAX):
        try:
            GroupWorld(seed, bugs=Bugs(**{bug: True}), beyond=bug == "cut_below_confirm").run()
        except (Violation, AssertionError):
            return
    raise AssertionError(f"not found in {SEARCH_MAX} seeds")
