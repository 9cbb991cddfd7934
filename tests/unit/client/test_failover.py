"""Looking for the next master: often enough not to prolong a failover, seldom enough for many clients."""

from __future__ import annotations

from itertools import accumulate, pairwise

from cometmq.client import failover


def looks(until_s: float) -> list[float]:
    """When a send that finds no master looks for one."""
    pauses, paused_s = [0.0], 0.0
    while paused_s < until_s:
        pauses.append(failover.pause_s(paused_s))
        paused_s += pauses[-1]
    return list(accumulate(pauses))


def test_new_master_is_found_within_a_quarter_of_the_time_it_was_away() -> None:
    at = looks(5.0)
    for before, after in pairwise(at):
        assert after - before <= max(0.05, before / 4) + 1e-9


def test_looks_become_rare() -> None:
    assert len(looks(1.0)) <= 13
    assert len(looks(10.0)) <= 13 + 9 * 4 + 1
