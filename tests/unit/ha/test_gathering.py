"""What is sent to followers together: everything of a turn, and of some moments where nobody waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cometmq.broker.ha import gathering
from cometmq.broker.ha.gathering import GATHER_S, Gathering


class Loop:
    """A loop with a clock that goes where the test says."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[[], None]) -> None:
        self._calls.append((self.now_s, call))

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._calls.append((self.now_s + delay_s, call))

    def run_to(self, end_s: float) -> None:
        for call in sorted(self._calls, key=lambda call: call[0]):
            if call[0] <= end_s:
                self._calls.remove(call)
                self.now_s = call[0]
                call[1]()
        self.now_s = end_s


def sendings(monkeypatch: pytest.MonkeyPatch, *, awaited: bool, times_ms: list[float]) -> list[float]:
    """When it sends (ms), if the log grows three times in the same turn at each of these times."""
    loop = Loop()
    began_s = loop.now_s
    sent: list[float] = []
    monkeypatch.setattr(gathering, "get_running_loop", lambda: loop)
    sender = Gathering(lambda: sent.append(round((loop.now_s - began_s) * 1000, 3)), lambda: awaited)
    for time_ms in times_ms:
        loop.run_to(began_s + time_ms / 1000)
        for _ in range(3):
            sender.grew()
        loop.run_to(loop.now_s)
    loop.run_to(began_s + 1)
    return sent


def test_a_turn_is_sent_at_once_where_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sendings(monkeypatch, awaited=True, times_ms=[0, 0.1, 0.2]) == [0, 0.1, 0.2]


def test_the_first_is_sent_at_once_and_what_follows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together_ms = 0.1 + GATHER_S * 1000
    assert sendings(monkeypatch, awaited=False, times_ms=[0, 0.1, 0.2, 0.3]) == [0, together_ms]


def test_what_comes_seldom_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sendings(monkeypatch, awaited=False, times_ms=[0, 10, 20]) == [0, 10, 20]
