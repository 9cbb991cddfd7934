"""Does a history keep the promises H1 to H14? Exit code 0 only if it does.

python -m ha.checker FILE... (with tests/ on the path). Each invariant is a function over the events of its operations,
in time order; all are linear in the number of events.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ha.history import NONE, Event, read_history

MS = 1_000_000  # nanoseconds
SAFE_LEVELS = frozenset(("insync", "insync+disk"))
COMMITS_LOST_MAX_NS = 100 * MS
LATE_MAX_NS = 2_000 * MS
# Milliseconds from the last good send before a fault to the next one: default and fast profile.
GAP_MAX_MS = {
    "planned switch": (200, 200),
    "kill master": (1_000, 500),
    "kill master and controller leader": (2_000, 1_000),
    "stop master": (3_000, 1_000),
    "stop master and controller leader": (3_000, 1_200),
    "kill follower": (1_000, 600),
    "stop follower": (2_500, 600),
}
FAST = "fast "  # prefix of a fault in the fast profile

Place = tuple[str, int, int]  # topic, queue, offset


class Violation(NamedTuple):
    invariant: str
    text: str


class Events:
    """The events by operation, and what several invariants need of them."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.by_op: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self.by_op[event.op].append(event)
        self.sends = self.by_op["send"]
        self.reads = [event for event in self.by_op["read"] if event.phase == "ok"]
        self.good_sends = [event for event in self.sends if event.phase == "ok"]
        self.first_place: dict[tuple[str, int, str], int] = {}  # (topic, queue, key) -> its lowest offset
        self.places: dict[str, set[Place]] = defaultdict(set)
        for read in self.reads:
            where = (read.topic, read.queue, read.key)
            self.first_place[where] = min(read.offset, self.first_place.get(where, read.offset))
            self.places[read.key].add((read.topic, read.queue, read.offset))

    def outages(self) -> list[tuple[int, int]]:
        """(begin, end) of each fault; one that did not end lasts for ever."""
        found: list[tuple[int, int]] = []
        begin = None
        for event in sorted(self.by_op["fault"] + self.by_op["recovered"], key=lambda event: event.t):
            if event.op == "fault":
                begin = event.t if begin is None else begin
            elif begin is not None:
                found.append((begin, event.t))
                begin = None
        return found if begin is None else [*found, (begin, sys.maxsize)]


def h1(events: Events) -> Iterator[str]:
    """What was acknowledged is read at the end, exactly there."""
    drained = {(e.topic, e.queue, e.offset): e.key for e in events.reads if e.final}
    for send in events.good_sends:
        if send.level in SAFE_LEVELS and not send.due:
            found = drained.get((send.topic, send.queue, send.offset))
            if found != send.key:
                yield f"{send.key} was acknowledged at {_place(send)}, where the final drain found {found}"


def h2(events: Events) -> Iterator[str]:
    """An offset holds one message, for every reader, at any time, on any replica."""
    known: dict[Place, str] = {}
    for read in events.reads:
        place = (read.topic, read.queue, read.offset)
        if known.setdefault(place, read.key) != read.key:
            yield f"{_place(read)} was {known[place]} and then {read.key} on replica {read.replica}"


def h3(events: Events) -> Iterator[str]:
    """A consumer goes up one by one."""
    last: dict[tuple[str, str, int], int] = {}
    for read in events.reads:
        where = (read.process, read.topic, read.queue)
        before = last.get(where)
        if before is not None and not read.seek and read.offset != before + 1:
            yield f"{read.process} read {_place(read)} after offset {before}"
        last[where] = read.offset


def h4(events: Events) -> Iterator[str]:
    """Nothing comes out that did not go in."""
    invoked: set[str] = set()
    outcome: dict[str, bool] = {}  # key -> may have been appended
    for event in (*events.sends, *events.by_op["half"]):
        invoked.add(event.key)
        if event.phase != "invoke":
            outcome[event.key] = outcome.get(event.key, False) or event.phase != "fail"
    for key in events.places:
        if key not in invoked:
            yield f"{key} was read but never sent"
        elif not outcome.get(key, True):
            yield f"{key} was read although its send failed"


def h5(events: Events) -> Iterator[str]:
    """What one thread sent to one queue stands there in its order."""
    last: dict[tuple[str, str, int], tuple[int, int, str]] = {}
    for send in events.good_sends:
        offset = events.first_place.get((send.topic, send.queue, send.key))
        if offset is None or send.seq == NONE or send.due:
            continue
        where = (send.process, send.topic, send.queue)
        seq, before, key = last.get(where, (NONE, NONE, ""))
        if send.seq > seq and offset <= before:
            yield f"{send.key} stands at {offset}, before {key} at {before} that was sent earlier"
        last[where] = max((seq, before, key), (send.seq, offset, send.key))


def h6(events: Events) -> Iterator[str]:
    """A message is there twice only if its client sent it twice."""
    invocations = Counter(event.key for event in events.sends if event.phase == "invoke")
    retried = {event.key for event in events.sends if event.retried}
    for key, places in events.places.items():
        if len(places) > 1 and invocations[key] < 2 and key not in retried:
            yield f"{key} stands at {sorted(places)} although it was sent once"


def h7(events: Events) -> Iterator[str]:
    """What is confirmed stays so, and nothing else is read."""
    highest: dict[str, int] = {}
    for event in events.by_op["confirm"]:
        before = highest.get(event.group, 0)
        if event.offset < before:
            yield f"the confirm offset of {event.group} went from {before} to {event.offset}"
        highest[event.group] = max(before, event.offset)
    for read in events.reads:
        if read.physical != NONE and read.confirm != NONE and read.physical >= read.confirm:
            yield f"{_place(read)} was read at {read.physical}, confirmed was {read.confirm}"


def h8(events: Events) -> Iterator[str]:
    """One master per epoch, epochs go up, and one at a time may grant."""
    masters: dict[tuple[str, int], int] = {}
    latest: dict[str, int] = {}
    for event in events.by_op["master"]:
        if masters.setdefault((event.group, event.epoch), event.replica) != event.replica:
            yield f"epoch {event.epoch} of {event.group} has a second master, {event.replica}"
        if event.epoch < latest.get(event.group, 0):
            yield f"epoch {event.epoch} of {event.group} began after epoch {latest[event.group]}"
        latest[event.group] = max(event.epoch, latest.get(event.group, 0))
    held: dict[str, tuple[int, int]] = {}
    for event in events.by_op["lease"]:
        replica, until = held.get(event.group, (event.replica, 0))
        if replica != event.replica and event.t < until:
            yield f"replica {event.replica} of {event.group} has the lease while {replica} has it"
        held[event.group] = (
            event.replica,
            max(until, event.until) if replica == event.replica else event.until,
        )


def h9(events: Events) -> Iterator[str]:
    """Healed replicas are equal."""
    first: dict[tuple[str, str], Event] = {}
    for event in events.by_op["checksum"]:
        other = first.setdefault((event.group, event.key), event)
        if other.value != event.value:
            yield f"{event.key} of {event.group} differs on replicas {other.replica} and {event.replica}"


def h10(events: Events) -> Iterator[str]:
    """Consumers go on where they were."""
    faults = [event.t for event in events.by_op["fault"]]
    positions: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    for event in events.by_op["commit"]:
        if event.phase == "ok":
            positions[event.group, event.topic, event.queue].append(event)
    for found in events.by_op["committed"]:
        failed_at = max((t for t in faults if t <= found.t), default=found.t)
        known = positions[found.group, found.topic, found.queue]
        sure = [e.offset for e in known if e.t <= failed_at - COMMITS_LOST_MAX_NS]
        if sure and found.offset < sure[-1]:
            yield f"{found.group} stands at {_place(found)}, but {sure[-1]} was committed"
        if found.end != NONE and found.offset > found.end:
            yield f"{found.group} stands at {_place(found)}, behind the end {found.end}"


def h11(events: Events) -> Iterator[str]:
    """A queue is locked by one client."""
    held: dict[tuple[str, str, int], tuple[str, int]] = {}
    locks = [event for event in events.by_op["lock"] if event.phase == "ok"]
    for event in sorted(locks + events.by_op["unlock"], key=lambda event: event.t):
        where = (event.group, event.topic, event.queue)
        owner, until = held.get(where, (event.process, 0))
        if event.op == "unlock":
            if owner == event.process:
                held.pop(where, None)
            continue
        if owner != event.process and event.t < until:
            yield f"{event.process} locks {event.topic} {event.queue} while {owner} holds it"
        held[where] = (event.process, event.until)


def h12(events: Events) -> Iterator[str]:
    """A delayed message comes, not early, and not late without a reason."""
    arrived: dict[str, int] = {}
    for read in events.reads:
        arrived.setdefault(read.key, read.t)
    outages = events.outages()
    for send in events.good_sends:
        if not send.due or send.level not in SAFE_LEVELS:
            continue
        at = arrived.get(send.key)
        latest = max(
            (end for begin, end in outages if begin <= send.due + LATE_MAX_NS and end >= send.due), default=0
        )
        if at is None:
            yield f"the delayed {send.key} never came"
        elif at < send.due:
            yield f"the delayed {send.key} came {(send.due - at) // MS} ms early"
        elif at > max(send.due, latest) + LATE_MAX_NS:
            yield f"the delayed {send.key} came {(at - max(send.due, latest)) // MS} ms late"


def h13(events: Events) -> Iterator[str]:
    """Transactions end as they were decided, or are asked about again."""
    decided = {e.key: e.value for e in events.by_op["decide"] if e.phase == "ok" and e.value != "unknown"}
    attempted = {e.key for e in events.by_op["decide"] if e.value != "unknown"}
    checked: dict[str, int] = {event.key: event.t for event in events.by_op["check"]}
    last_fault = max((event.t for event in events.by_op["fault"]), default=None)
    for half in events.by_op["half"]:
        decision = decided.get(half.key)
        if half.phase != "ok":
            continue
        if decision == "commit" and half.key not in events.places:
            yield f"the committed {half.key} was never read"
        elif decision == "rollback" and half.key in events.places:
            yield f"{half.key} was rolled back and read"
        elif half.key not in attempted and last_fault is not None and checked.get(half.key, 0) <= last_fault:
            yield f"the undecided {half.key} was not asked about after the failover"


def h14(events: Events) -> Iterator[str]:
    """Sends go on in time."""
    faults = [event for event in events.by_op["fault"] if event.value.removeprefix(FAST) in GAP_MAX_MS]
    times = sorted(event.t for event in events.good_sends)
    position = 0
    for fault in faults:
        while position < len(times) and times[position] <= fault.t:
            position += 1
        limit = GAP_MAX_MS[fault.value.removeprefix(FAST)][fault.value.startswith(FAST)]
        worst = _worst_gap(times, position, fault.t + 2 * limit * MS)
        if position and (worst is None or worst > limit * MS):
            yield f"{fault.value}: no send for {'ever' if worst is None else f'{worst // MS} ms'}, allowed {limit} ms"


def _worst_gap(times: list[int], position: int, end: int) -> int | None:
    """The longest gap from the last send before ``position`` until ``end``; None if nothing was sent after it."""
    if position == 0 or position >= len(times):
        return None
    worst = times[position] - times[position - 1]
    while position + 1 < len(times) and times[position] < end:
        worst = max(worst, times[position + 1] - times[position])
        position += 1
    return worst


def _place(event: Event) -> str:
    return f"{event.topic} {event.queue} {event.offset}"


INVARIANTS: dict[str, Callable[[Events], Iterator[str]]] = {
    f"H{number}": check
    for number, check in enumerate((h1, h2, h3, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14), 1)
}


def check(history: Iterable[Event], invariants: Iterable[str] = tuple(INVARIANTS)) -> list[Violation]:
    events = Events(history)
    return [Violation(name, text) for name in invariants for text in INVARIANTS[name](events)]


def summary(history: Iterable[Event]) -> str:
    events = Events(history)
    twice = sum(len(places) > 1 for places in events.places.values())
    return (
        f"{len(events.good_sends)} sends acknowledged, {len(events.reads)} reads, {twice} messages twice, "
        f"{len({(e.group, e.epoch) for e in events.by_op['master']})} epochs, {len(events.by_op['fault'])} faults"
    )


def main(paths: list[str]) -> int:
    history = list(read_history(Path(path) for path in paths))
    violations = check(history)
    for violation in violations:
        print(f"{violation.invariant}: {violation.text}")
    print(summary(history))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
