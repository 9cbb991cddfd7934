"""The metadata Raft under every fault, and the mistakes that the simulator must find."""

from __future__ import annotations

import pytest
from sim.planted import Bugs
from sim.raft_cluster import RaftCluster
from sim.world import Violation

SEARCH_MAX = 400  # seeds; each planted mistake is found well before


def test_voters_keep_their_promises(seeds: range) -> None:
    for seed in seeds:
        cluster = RaftCluster(seed, size=3 if seed % 3 else 5)
        try:
            cluster.run()
        except (Violation, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_work_is_done_at_all() -> None:
    cluster = RaftCluster(3)
    cluster.run()
    assert len(cluster.committed) > 50
    assert len(cluster.leaders) > 1


def test_the_same_seed_makes_the_same_run() -> None:
    runs = []
    for _ in range(2):
        cluster = RaftCluster(11)
        cluster.run()
        runs.append((cluster.world.network.delivered, sorted(cluster.committed.items()), cluster.leaders))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("bug", "first_seed"),  # a seed that finds it soon
    [("vote_without_sync", 16), ("ack_without_sync", 0), ("wiped_disk_keeps_uuid", 23)],
)
def test_a_planted_mistake_is_found(bug: str, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEARCH_MAX):
        try:
            RaftCluster(seed, size=3 if seed % 3 else 5, bugs=Bugs(**{bug: True})).run()
        except (Violation, AssertionError):
            return
    raise AssertionError(f"not found in {SEARCH_MAX} seeds")
