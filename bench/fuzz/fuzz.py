"""The loop: take a seed, spoil it, decode it; count, time, watch memory, and say what to do about a failure."""

from __future__ import annotations

import faulthandler
import random
import resource
import time
from pathlib import Path
from typing import Any

from bench.fuzz.guarded import GuardedMemory
from bench.fuzz.mutations import CHANGES, REWRITES
from bench.fuzz.targets import INPUT_SIZE_MAX, Target
from cometmq.errors import ProtocolError

ROUND_SIZE = 64  # mutations of one seed before the next is taken
HANG_SECONDS = 60  # a round that takes longer is a hang
MEMORY_GROWTH_MAX = 32 * 1024 * 1024  # bytes between the end of the warm-up and the end of the run
WARM_UP_SHARE = 0.1


class Failure(Exception):
    """A decoder did something it must not do."""


def rss_size() -> int:
    """Memory of this process in bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Fuzzer:
    def __init__(self, found: list[Target], seed: int, other: list[Target] | None = None) -> None:
        self._rng = random.Random(seed)
        self._memory = GuardedMemory(INPUT_SIZE_MAX)
        self._targets = found
        self._others = {target.name: target for target in other or [] if target.compared}
        self._shares = [target.share for target in found]
        self.counts = {target.name: 0 for target in found}
        self.refused = {target.name: 0 for target in found}
        self.seconds = {target.name: 0.0 for target in found}

    @property
    def guarded(self) -> bool:
        return self._memory.guarded

    def run(self, count: int) -> None:
        """Decode this many mutated inputs (rounded up to whole rounds)."""
        done = 0
        while done < count:
            (target,) = self._rng.choices(self._targets, self._shares)
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            begin = time.perf_counter()
            self._round(target)
            self.seconds[target.name] += time.perf_counter() - begin
            done += ROUND_SIZE
        faulthandler.cancel_dump_traceback_later()

    def _round(self, target: Target) -> None:
        """Spoil one seed in many ways. Changes in place are cheap, so three of four are of that kind."""
        rng = self._rng
        data = target.seeds[int(rng.random() * len(target.seeds))]
        view = self._memory.place(data)
        for number in range(ROUND_SIZE):
            if number & 3 == 3 or not data:
                rewrite = REWRITES[int(rng.random() * len(REWRITES))]
                spoiled = rewrite(rng, data, target.seeds)[:INPUT_SIZE_MAX]
                self._decode(target, self._memory.place(spoiled))
                view = self._memory.place(data)
            else:
                CHANGES[int(rng.random() * len(CHANGES))](rng, view)
                self._decode(target, view)
                if number & 7 == 0:  # let a few changes gather before starting afresh
                    view[:] = data
        self.counts[target.name] += ROUND_SIZE

    def _decode(self, target: Target, view: memoryview) -> None:
        try:
            result: Any = target.decode(view)
        except ProtocolError as error:
            self.refused[target.name] += 1
            result = str(error)
        except Exception as error:
            raise Failure(
                f"{target.name} raised {type(error).__name__}: {error}\n"
                f"again with: python -m bench.fuzz --only {target.name} --input {bytes(view).hex()}"
            ) from error
        if self._others and target.name in self._others:
            self._compare(target.name, view, result)

    def _compare(self, name: str, view: memoryview, result: Any) -> None:
        try:
            other: Any = self._others[name].decode(view)
        except ProtocolError as error:
            other = str(error)
        if not same(result, other):
            raise Failure(f"the twins differ in {name} for {bytes(view).hex()}:\n{result!r}\n{other!r}")


def same(one: Any, other: Any) -> bool:
    """Messages compare by identity, so lists of them are compared field by field."""
    if isinstance(one, list) and isinstance(other, list):
        return list(map(_plain, one)) == list(map(_plain, other))
    return _plain(one) == _plain(other)


def _plain(value: Any) -> Any:
    names = getattr(value, "__struct_fields__", None)
    if names:
        return [getattr(value, name) for name in names]
    return tuple(value) if isinstance(value, tuple) else value


def run(found: list[Target], count: int, seed: int, other: list[Target] | None = None) -> int:
    """Fuzz and report; the exit code."""
    fuzzer = Fuzzer(found, seed, other)
    warm_up = int(count * WARM_UP_SHARE)
    begin = time.perf_counter()
    fuzzer.run(warm_up)
    memory_before = rss_size()
    fuzzer.run(count - warm_up)
    seconds = time.perf_counter() - begin
    growth = rss_size() - memory_before
    total = sum(fuzzer.counts.values())
    for name, number in fuzzer.counts.items():
        if number:
            rate = number / fuzzer.seconds[name]
            print(
                f"  {name:13} {number:>10,} inputs  {rate:>9,.0f}/s  {fuzzer.refused[name] / number:4.0%} refused"
            )
    print(
        f"{total:,} mutations in {seconds:.1f} s, {total / seconds:,.0f} a second, "
        f"guard page {'on' if fuzzer.guarded else 'off'}; "
        f"memory {memory_before / 2**20:.1f} MiB after warm-up, {(memory_before + growth) / 2**20:.1f} MiB at the end"
    )
    if growth > MEMORY_GROWTH_MAX:
        print(f"memory grew by {growth / 2**20:.1f} MiB, more than {MEMORY_GROWTH_MAX / 2**20:.0f} MiB")
        return 1
    return 0
