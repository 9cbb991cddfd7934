"""Which master wrote which part of the log: a list of (epoch, first offset), and where two logs part. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Epoch(NamedTuple):
    epoch: int
    start: int  # physical offset of its first byte


class Epochs:
    """Immutable; epochs and starts both go up (starts not strictly: a master may have written nothing)."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        self.entries = tuple(entries)
        assert all(
            a.epoch < b.epoch and a.start <= b.start
            for a, b in zip(self.entries, self.entries[1:], strict=False)
        )

    @property
    def last(self) -> int:
        return self.entries[-1].epoch if self.entries else 0

    def with_epoch(self, epoch: int, start: int) -> Epochs:
        return Epochs((*self.entries, Epoch(epoch, start)))

    def up_to(self, offset: int) -> Epochs:
        """What a log that ends at ``offset`` knows: epochs that began there or before."""
        if not self.entries or self.entries[-1].start <= offset:
            return self  # nearly always
        return Epochs(entry for entry in self.entries if entry.start <= offset)

    def next_start(self, offset: int) -> int | None:
        """Where the first epoch begins that starts after ``offset``."""
        if not self.entries or self.entries[-1].start <= offset:
            return None
        return next((entry.start for entry in self.entries if entry.start > offset), None)

    def end_of(self, epoch: int, max_offset: int) -> int:
        """Where an epoch of this list ends."""
        following = (entry.start for entry in self.entries if entry.epoch > epoch)
        return min(next(following, max_offset), max_offset)

    def consistent_point(self, max_offset: int, other: Epochs, other_max: int) -> int | None:
        """Up to where this log (ending at ``max_offset``) and another agree; None if nowhere."""
        theirs = set(other.entries)
        for entry in reversed(self.entries):
            if entry in theirs:
                return min(self.end_of(entry.epoch, max_offset), other.end_of(entry.epoch, other_max))
        return None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Epochs) and self.entries == other.entries)

    def __hash__(self) -> int:
        return hash(self.entries)
