"""Run seeds of a simulated world: python -m sim WORLD FIRST END (with tests/ on the path). Exit code 1 on a violation.

WORLD is groups, beyond (more damage than the level survives) or voters. The fingerprint is one of everything that
happened: the same seeds with the same cores print the same, however they are run (scripts/compile_simulator.py).
"""

from __future__ import annotations

import sys
import time
import zlib

from sim.group_world import GroupWorld
from sim.raft_cluster import RaftCluster


def run(kind: str, seed: int) -> RaftCluster | GroupWorld:
    if kind == "voters":
        world: RaftCluster | GroupWorld = RaftCluster(seed, size=3 if seed % 3 else 5)
    else:
        world = GroupWorld(seed, beyond=kind == "beyond")
    world.run()
    return world


def fingerprint(world: RaftCluster | GroupWorld) -> bytes:
    """Chance is asked for every message: whatever goes another way leaves it in another state."""
    what = [world.world.random.getrandbits(64), world.world.network.delivered, world.leaders]
    if isinstance(world, GroupWorld):
        what += [world.masters, bytes(world.confirmed)]
    return repr(what).encode()


def main(kind: str, first: int, end: int) -> int:
    began, violations, happened = time.process_time(), 0, 0
    for seed in range(first, end):
        try:
            happened = zlib.crc32(fingerprint(run(kind, seed)), happened)
        except AssertionError as error:
            violations += 1
            print(f"{kind} seed {seed}: {error}", flush=True)
    cost_ms = (time.process_time() - began) * 1000 / max(end - first, 1)
    print(
        f"{kind}: seeds {first} to {end - 1}, {violations} violations, {cost_ms:.1f} ms of CPU each, "
        f"fingerprint {happened:08x}",
        flush=True,
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
