"""What /proc tells of a process: CPU time, of it or of all below it, and the rest of its stat line. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that ended."""
    try:
        return sum(int(field) for field in stat_fields(pid)[11:15]) / TICKS_PER_S
    except OSError:
        return 0.0


def tree_cpu_s(root: int) -> float:
    """CPU time of a process and of everything below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(stat_fields(int(entry.name))[1])
            except OSError:
                continue
    return sum(cpu_s(pid) for pid in parents if _is_below(pid, root, parents))


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (0, 1, root):
        pid = parents.get(pid, 0)
    return pid == root
