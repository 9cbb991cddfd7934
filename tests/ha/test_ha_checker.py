"""The checker of histories accepts a good one and rejects a bad one for each of its fourteen invariants."""

from __future__ import annotations

from pathlib import Path

import pytest
from ha.checker import INVARIANTS, MS, check, main
from ha.history import Event, History, read_history

SECOND = 1_000 * MS


def message(
    number: int, *, at_ms: int, queue: int = 0, offset: int | None = None, process: str = "p1"
) -> list[Event]:
    """A message that was sent, acknowledged, consumed and found at the end."""
    key, t = f"k{number}", at_ms * MS
    offset = number if offset is None else offset
    place = {"topic": "T", "queue": queue, "key": key}
    return [
        Event(t, process, "send", "invoke", seq=number, **place),
        Event(t + MS, process, "send", "ok", seq=number, offset=offset, level="insync", **place),
        Event(
            t + 2 * MS, "c1", "read", offset=offset, replica=1, physical=100 * offset, confirm=10_000, **place
        ),
        Event(90 * SECOND + offset, "drain", "read", offset=offset, replica=2, final=True, **place),
    ]


def good_history() -> list[Event]:
    events = [event for number in range(20) for event in message(number, at_ms=100 * number)]
    t = 950 * MS  # a master is killed between two sends
    events += [
        Event(MS, "b1", "master", group="g", epoch=1, replica=1),
        Event(MS, "b1", "lease", group="g", replica=1, until=t),
        Event(5 * MS, "b1", "confirm", group="g", offset=500),
        Event(700 * MS, "c1", "commit", group="cg", topic="T", queue=0, offset=5),
        Event(900 * MS, "c1", "commit", group="cg", topic="T", queue=0, offset=7),
        Event(500 * MS, "c1", "lock", group="cg", topic="T", queue=0, until=1_000 * MS),
        Event(t, "kit", "fault", value="kill master"),
        Event(t + MS, "b2", "master", group="g", epoch=2, replica=2),
        Event(t + 2 * MS, "b2", "lease", group="g", replica=2, until=80 * SECOND),
        Event(t + 3 * MS, "b2", "confirm", group="g", offset=900),
        Event(t + 4 * MS, "kit", "recovered"),
        Event(t + 10 * MS, "c1", "committed", group="cg", topic="T", queue=0, offset=6, end=20),
        Event(t + 100 * MS, "c2", "lock", group="cg", topic="T", queue=0, until=2_000 * MS),
        Event(t + 101 * MS, "c2", "unlock", group="cg", topic="T", queue=0),
        Event(t + 102 * MS, "c1", "lock", group="cg", topic="T", queue=0, until=3_000 * MS),
    ]
    events += [
        Event(95 * SECOND, f"b{n}", "checksum", group="g", replica=n, key="commitlog", value="x")
        for n in (1, 2)
    ]
    events += delayed("d1", came_ms=4_500) + transactions()
    return events


def delayed(key: str, *, came_ms: int) -> list[Event]:
    """Due at 4 s."""
    return [
        Event(2_500 * MS, "p2", "send", "invoke", topic="D", key=key, seq=1),
        Event(
            2_501 * MS,
            "p2",
            "send",
            topic="D",
            queue=0,
            offset=0,
            key=key,
            seq=1,
            level="insync",
            due=4_000 * MS,
        ),
        Event(came_ms * MS, "c3", "read", topic="D", queue=0, offset=0, key=key, replica=1),
    ]


def transactions() -> list[Event]:
    return [
        *(Event(300 * MS, "p3", "half", key=key) for key in ("t1", "t2", "t3")),
        Event(301 * MS, "p3", "decide", key="t1", value="commit"),
        Event(302 * MS, "p3", "decide", key="t2", value="rollback"),
        Event(303 * MS, "p3", "decide", key="t3", value="unknown"),
        Event(2_000 * MS, "p3", "check", key="t3"),
        Event(400 * MS, "c4", "read", topic="X", queue=0, offset=0, key="t1", replica=1),
    ]


def in_order(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.t)


def without(op: str, **fields: object) -> list[Event]:
    def matches(event: Event) -> bool:
        return event.op == op and all(getattr(event, name) == value for name, value in fields.items())

    kept = [event for event in good_history() if not matches(event)]
    assert len(kept) < len(good_history())
    return kept


def bad_histories() -> dict[str, list[Event]]:
    t, good = 60 * SECOND, good_history()
    place = {"topic": "T", "queue": 0}
    return {
        "H1": without("read", final=True, key="k3"),
        "H2": [*good, Event(t, "c9", "read", offset=3, key="k4", replica=3, **place)],
        "H3": without("read", process="c1", key="k3"),
        "H4": [
            *good,
            Event(t, "p1", "send", "invoke", topic="T", key="refused", seq=99),
            Event(t + 1, "p1", "send", "fail", topic="T", key="refused", seq=99),
            Event(t + 2, "c9", "read", offset=20, key="refused", replica=1, **place),
        ],
        "H5": [
            *good,
            *message(30, at_ms=60_000, queue=1, offset=1, process="p5"),
            *message(31, at_ms=60_100, queue=1, offset=0, process="p5"),
        ],
        "H6": [*good, Event(t, "c9", "read", offset=20, key="k3", replica=1, **place)],
        "H7": [*good, Event(t, "b2", "confirm", group="g", offset=899)],
        "H8": [*good, Event(t, "b3", "lease", group="g", replica=3, until=t + SECOND)],
        "H9": [*good, Event(95 * SECOND, "b3", "checksum", group="g", replica=3, key="commitlog", value="y")],
        "H10": [*good, Event(t, "c1", "committed", group="cg", offset=4, end=20, **place)],
        "H11": [*good, Event(2_500 * MS, "c2", "lock", group="cg", until=9_000 * MS, **place)],
        "H12": [e for e in good if e.topic != "D"] + delayed("d1", came_ms=3_999),
        "H13": [*good, Event(t, "c4", "read", topic="X", queue=0, offset=1, key="t2", replica=1)],
        "H14": [e for e in good if not (e.op == "send" and 900 * MS < e.t < 1_850 * MS)],
    }


def test_a_good_history_passes() -> None:
    assert check(in_order(good_history())) == []


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_a_history_that_breaks_an_invariant_is_rejected(invariant: str) -> None:
    broken = {violation.invariant for violation in check(in_order(bad_histories()[invariant]))}
    assert invariant in broken


@pytest.mark.parametrize(
    ("invariant", "extra"),
    [
        (
            "H7",
            Event(
                50 * SECOND, "c9", "read", topic="T", queue=0, offset=3, key="k3", physical=300, confirm=300
            ),
        ),
        ("H8", Event(50 * SECOND, "b3", "master", group="g", epoch=2, replica=3)),
        ("H8", Event(50 * SECOND, "b1", "master", group="g", epoch=1, replica=1)),
        ("H10", Event(50 * SECOND, "c1", "committed", group="cg", topic="T", queue=0, offset=21, end=20)),
        ("H13", Event(50 * SECOND, "kit", "fault", value="kill of a follower")),
        ("H14", Event(50 * SECOND, "kit", "fault", value="kill master")),
    ],
)
def test_other_ways_to_break_one(invariant: str, extra: Event) -> None:
    assert invariant in {violation.invariant for violation in check(in_order([*good_history(), extra]))}


@pytest.mark.parametrize("value", ["kill master", "fast kill master"])
def test_a_send_gap_is_measured_against_its_profile(value: str) -> None:
    events = [
        *(
            Event(n * 10 * MS, "p", "send", topic="T", queue=0, offset=n, key=f"k{n}", seq=n)
            for n in range(11)
        ),
        Event(105 * MS, "kit", "fault", value=value),
        *(
            Event(
                (790 + n) * MS, "p", "send", topic="T", queue=0, offset=10 + n, key=f"k{10 + n}", seq=10 + n
            )
            for n in range(1, 5)
        ),
    ]
    assert bool(check(in_order(events), ["H14"])) == value.startswith("fast")


def test_a_retried_send_may_stand_twice() -> None:
    events = good_history()
    events.append(Event(SECOND, "p1", "send", "invoke", topic="T", key="k19", seq=19))
    events.append(Event(70 * SECOND, "c1", "read", topic="T", queue=0, offset=20, key="k19", replica=1))
    assert check(in_order(events)) == []


def test_a_delayed_message_may_be_late_after_an_outage() -> None:
    events = [e for e in good_history() if e.topic != "D"] + delayed("d1", came_ms=9_000)
    assert {violation.invariant for violation in check(in_order(events))} == {"H12"}
    events += [Event(3_000 * MS, "kit", "fault", value="all down"), Event(8_000 * MS, "kit", "recovered")]
    events.append(Event(8_001 * MS, "p3", "check", key="t3"))
    assert check(in_order(events)) == []


def test_files_are_read_in_time_order_and_the_exit_code_says_it(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    with History(paths[0]) as one, History(paths[1]) as two:
        one.add("c1", "read", t=30, topic="T", queue=0, offset=1, key="b", replica=1)
        two.add("p", "send", "invoke", t=10, topic="T", key="a")
        two.add("p", "send", "invoke", t=20, topic="T", key="b")
    with paths[0].open("ab") as cut:
        cut.write(b'{"t":40,"pro')  # killed while it wrote
    assert [event.t for event in read_history(paths)] == [10, 20, 30]
    assert main([str(path) for path in paths]) == 0
    with History(paths[1]) as two:
        two.add("c2", "read", topic="T", queue=0, offset=1, key="a", replica=2)
    assert main([str(path) for path in paths]) == 1


def test_a_long_history_is_checked_in_reasonable_time() -> None:
    events = [event for number in range(5_000) for event in message(number, at_ms=number)]
    reads_above = [e for e in check(in_order(events)) if e.invariant != "H7"]
    assert reads_above == []
