"""Run seeds of a simulated world: python -m sim WORLD FIRST LAST (with tests/ on the path). Exit code 1 on a violation.

WORLD is groups, beyond (more damage than the level survives) or voters.
"""

from __future__ import annotations

import sys
import time

from sim.group_world import GroupWorld
from sim.raft_cluster import RaftCluster


def run(world: str, seed: int) -> None:
    if world == "voters":
        RaftCluster(seed, size=3 if seed % 3 else 5).run()
    else:
        GroupWorld(seed, beyond=world == "beyond").run()


def main(world: str, first: int, last: int) -> int:
    began, violations = time.monotonic(), 0
    for seed in range(first, last):
        try:
            run(world, seed)
        except AssertionError as error:
            violations += 1
            print(f"{world} seed {seed}: {error}", flush=True)
    speed = (last - first) / max(time.monotonic() - began, 1e-9)
    print(f"{world}: seeds {first} to {last - 1}, {violations} violations, {speed:.1f} seeds/s", flush=True)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
