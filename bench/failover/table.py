"""What was measured, as a table for people: medians and 99th percentiles beside the bars and beside Java's DLedger."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

# Milliseconds allowed at the 99th percentile: default settings, fast profile.
TARGETS = {
    "planned switch": (200, 200),
    "kill master": (1_000, 500),
    "kill master and controller leader": (2_000, 1_000),
    "stop master": (3_000, 1_000),
    "stop master and controller leader": (3_000, 1_200),
    "kill follower": (1_000, 600),
    "stop follower": (2_500, 600),
}
PROFILES = ("default", "fast")
JAVA = (
    "RocketMQ 4.9.7 DLedger, three brokers, default settings, route poll 1 s: 6.0, 7.7 and 6.7 s in three leader\n"
    "kills."
)
HEADINGS = (
    "event",
    "profile",
    "runs",
    "median ms",
    "p99 ms",
    "worst ms",
    "bar ms",
    "reached",
    "failed sends",
)

Found = dict[str, dict[str, dict[str, Any]]]  # profile -> event -> gaps and errors


def percentile(gaps: list[float], part: float) -> float:
    """The smallest figure that so many are not above; of few runs that is the worst."""
    ordered = sorted(gaps)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def row(profile: str, event: str, figures: dict[str, Any]) -> list[str]:
    gaps = figures["gaps"]
    bar = TARGETS[event][PROFILES.index(profile)]
    p99 = percentile(gaps, 0.99)
    return [
        event, profile, str(len(gaps)), f"{percentile(gaps, 0.5):.0f}", f"{p99:.0f}", f"{max(gaps):.0f}",
        f"{bar}", "yes" if p99 <= bar else "**no**", str(figures["errors"]),
    ]  # fmt: skip


def rows(found: Found) -> list[list[str]]:
    return [
        row(profile, event, found[profile][event])
        for event in TARGETS
        for profile in PROFILES
        if event in found.get(profile, {})
    ]


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(found: Found) -> str:
    return "\n".join([line(list(HEADINGS)), "|" + "---|" * len(HEADINGS), *map(line, rows(found))])


def read(path: Path) -> Found:
    return json.loads(path.read_text()) if path.exists() else {}


def add(found: Found, more: Found) -> Found:
    """Figures of another run of the same measurement."""
    for profile, events in more.items():
        known = found.setdefault(profile, {})
        for event, figures in events.items():
            before = known.setdefault(event, {"gaps": [], "errors": 0})
            before["gaps"] = sorted(before["gaps"] + figures["gaps"])
            before["errors"] += figures["errors"]
    return found


def page(found: Found, machine: str) -> str:
    return f"""# How long nobody can send

Milliseconds from the last good send before a fault to the next one; three brokers and a NameServer, each a process on
one machine, Python client with four sends of 1 KiB at a time, level insync. Measured by `python -m bench.failover`,
{time.strftime("%Y-%m-%d")}, {machine}.

{table(found)}

"kill" is kill -9, "stop" is SIGSTOP: the process keeps its connections and says nothing, as after a loss of power or
in a partition. Failed sends: attempts that ended with an error. Where a process is stopped the bench gives up a send
after 250 ms (fast: 150 ms) to notice the new master; elsewhere sends wait, and none should fail.
Profile fast: the short timeouts of `cometmq.testing.group_processes.FAST_PROFILE`.

For comparison: {JAVA}
"""
