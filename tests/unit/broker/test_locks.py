"""Queue locks of ordered consumption."""

from __future__ import annotations

import time

import pytest

from cometmq.broker.locks import LOCK_LIVE_MS_MAX, LOCK_LIVE_PROPERTY, QueueLocks, lock_live_ms
from cometmq.clock import now_ms, steady
from cometmq.errors import ConfigError


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def test_lock_is_granted_once_refused_to_others_and_free_after_a_minute() -> None:
    clock = ManualClock()
    locks = QueueLocks(now_ms=clock)
    assert locks.lock("g", "c1", ["q0", "q1"]) == ["q0", "q1"]
    assert locks.lock("g", "c2", ["q0", "q2"]) == ["q2"]
    clock.now += LOCK_LIVE_MS_MAX
    assert locks.lock("g", "c2", ["q0"]) == []
    clock.now += 1
    assert locks.lock("g", "c2", ["q0"]) == ["q0"]
    assert locks.owner("g", "q0") == "c2"


def test_renewal_keeps_a_lock() -> None:
    clock = ManualClock()
    locks = QueueLocks(now_ms=clock)
    locks.lock("g", "c1", ["q0"])
    for _ in range(5):
        clock.now += LOCK_LIVE_MS_MAX - 1
        assert locks.lock("g", "c1", ["q0"]) == ["q0"]
    assert locks.lock("g", "c2", ["q0"]) == []


def test_a_lock_does_not_end_because_somebody_sets_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    locks = QueueLocks(now_ms=steady(now_ms))
    locks.lock("g", "c1", ["q0"])
    later_ns = time.time_ns() + 3_600_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    assert locks.lock("g", "c2", ["q0"]) == []


def test_only_the_owner_can_unlock() -> None:
    locks = QueueLocks()
    locks.lock("g", "c1", ["q0"])
    locks.unlock("g", "c2", ["q0", "never locked"])
    assert locks.lock("g", "c2", ["q0"]) == []
    locks.unlock("g", "c1", ["q0"])
    assert locks.lock("g", "c2", ["q0"]) == ["q0"]


def test_groups_do_not_see_each_other() -> None:
    locks = QueueLocks()
    locks.lock("g1", "c1", ["q0"])
    assert locks.lock("g2", "c2", ["q0"]) == ["q0"]


def test_expired_locks_are_forgotten() -> None:
    clock = ManualClock()
    locks = QueueLocks(now_ms=clock)
    locks.lock("g1", "c1", range(10))
    clock.now += 30_000
    locks.lock("g2", "c1", range(3))
    clock.now += 30_001
    assert locks.drop_expired() == 10
    assert locks.owner("g1", 0) is None
    assert locks.owner("g2", 0) == "c1"


def test_lock_lives_as_long_as_the_system_property_says() -> None:
    assert lock_live_ms({}) == LOCK_LIVE_MS_MAX
    assert lock_live_ms({LOCK_LIVE_PROPERTY: "1500"}) == 1500
    for wrong in ("", "soon", "-1"):
        with pytest.raises(ConfigError, match="lockMaxLiveTime"):
            lock_live_ms({LOCK_LIVE_PROPERTY: wrong})
