"""The demo's own arithmetic: users who wait, percentiles, bars, the count."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import io
import math
from collections import Counter

import pytest

from cometmq.demo.load import Crowd, Load, percentile
from cometmq.demo.plan import QUICK, Plan
from cometmq.demo.screen import Screen, bar
from cometmq.demo.tally import count_steps


@pytest.mark.parametrize("name", ["load", "screen", "tally"])
def test_examples_in_docstrings_hold(name: str) -> None:
    module = importlib.import_module(f"cometmq.demo.{name}")
    failed, tried = doctest.testmod(module)
    assert tried
    assert not failed


def test_users_who_wait_too_long_go_away() -> None:
    async def main() -> Load:
        load = Load()
        never = asyncio.Event()

        async def register(user: str) -> None:
            if user == "user-2":
                await never.wait()

        await Crowd(patience_s=0.05).wave(register, 1000, 0.004, load)
        return load

    load = asyncio.run(main())
    assert (load.came, load.gave_up, load.waiting) == (4, 1, 0)
    assert load.answered == ["user-1", "user-3", "user-4"]
    assert len(load.latencies_ms) == 3


def test_tick_tells_what_is_new() -> None:
    load = Load(came=3, gave_up=1, answered=["a"], latencies_ms=[5.0])
    assert load.tick() == (3, [5.0], 1, 1)
    load.came, load.answered, load.latencies_ms = 4, ["a", "b"], [5.0, 7.0]
    assert load.tick() == (1, [7.0], 0, 1)


def test_percentile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(percentile([], 0.5))


def test_bar_never_leaves_its_width() -> None:
    for value in range(0, 300, 7):
        assert len(bar(value, 100, 10)) == 10
        assert len(bar(value, 100, 10, blocks=True)) == 10


def test_lost_and_repeated_steps_are_counted() -> None:
    events = {
        "register": Counter({"a": 1, "b": 1, "c": 1}),
        "sms": Counter({"a": 2, "b": 1, "late": 1}),
        "push": Counter({"a": 1, "b": 1}),
    }
    counts = {count.step: count for count in count_steps(["a", "b"], events)}
    assert (counts["sms"].lost, counts["sms"].twice) == (0, 1)
    assert (counts["push"].lost, counts["push"].users) == (0, 2)
    assert counts["coupon"].lost == 2


def test_surge_is_between_what_both_services_can_do() -> None:
    for plan in (Plan(), QUICK):
        assert plan.workers / 0.2 < plan.surge_users_per_s < plan.workers / 0.055
        assert plan.kill_after_s + plan.down_s < plan.surge_s


def test_plain_output_has_no_escapes() -> None:
    out = io.StringIO()
    screen = Screen(out, fancy=False)
    screen.title("title")
    screen.event("death")
    screen.table(("step", "users"), [("sms", 3)])
    assert "\x1b" not in out.getvalue()
    assert "  step   users\n  sms        3\n" in out.getvalue()
    fancy = Screen(out, fancy=True)
    assert fancy.paint("x", "red") == "\x1b[31mx\x1b[0m"
