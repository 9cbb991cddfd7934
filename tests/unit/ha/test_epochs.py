"""Where two logs part."""

from __future__ import annotations

import pytest

from cometmq.broker.ha.epochs import Epoch, Epochs


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return Epochs(Epoch(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("own", "own_max", "other", "other_max", "point"),
    [
        (epochs((1, 0)), 50, epochs((1, 0)), 80, 50),  # behind
        (epochs((1, 0)), 90, epochs((1, 0), (2, 80)), 100, 80),  # an old master with a tail of its own
        (epochs((1, 0), (2, 70)), 75, epochs((1, 0), (3, 80)), 100, 70),  # we had another epoch 2
        (epochs((1, 0), (2, 80)), 80, epochs((1, 0), (2, 80)), 80, 80),  # an empty epoch
        (epochs((1, 0)), 50, epochs((2, 60)), 80, None),  # nothing in common
        (epochs(), 0, epochs((1, 0)), 80, None),
    ],
)
def test_logs_agree_up_to(
    own: Epochs, own_max: int, other: Epochs, other_max: int, point: int | None
) -> None:
    assert own.consistent_point(own_max, other, other_max) == point


def test_a_shorter_log_knows_fewer_epochs() -> None:
    known = epochs((1, 0), (2, 80), (4, 120))
    assert known.up_to(100) == epochs((1, 0), (2, 80))
    assert known.up_to(120).last == 4
    assert known.next_start(0) == 80
    assert known.next_start(120) is None
