"""The log of one voter in memory: a snapshot and the entries after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from cometmq.controller.raft.messages import Entry, EntryKind, Snapshot, Voter


class RaftLog:
    def __init__(self, snapshot: Snapshot, entries: Iterable[Entry] = ()) -> None:
        self.snapshot = snapshot
        self._entries = list(entries)
        assert all(entry.index == snapshot.index + 1 + at for at, entry in enumerate(self._entries))
        self._voters = self._find_voters()  # asked for with every message

    @property
    def last_index(self) -> int:
        return self.snapshot.index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.snapshot.term

    def term_at(self, index: int) -> int | None:
        """None if the log does not reach there, or has forgotten it."""
        if index == self.snapshot.index:
            return self.snapshot.term
        entry = self.entry(index)
        return entry.term if entry is not None else None

    def entry(self, index: int) -> Entry | None:
        at = index - self.snapshot.index - 1
        return self._entries[at] if 0 <= at < len(self._entries) else None

    def between(self, first: int, end: int) -> list[Entry]:
        """Entries first <= index < end."""
        begin = self.snapshot.index + 1
        return self._entries[max(first - begin, 0) : max(end - begin, 0)]

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1
        self._entries.append(entry)
        if entry.kind is EntryKind.VOTERS:
            self._voters = (entry.index, entry.voters)

    def cut(self, index: int) -> None:
        """Forget entries from this index on."""
        del self._entries[max(index - self.snapshot.index - 1, 0) :]
        self._voters = self._find_voters()

    def compact(self, snapshot: Snapshot) -> None:
        """Forget entries that the snapshot covers; all of them if it is not of this log."""
        if self.term_at(snapshot.index) == snapshot.term:
            self._entries = self.between(snapshot.index + 1, self.last_index + 1)
        else:
            self._entries = []
        self.snapshot = snapshot
        self._voters = self._find_voters()

    def voters(self) -> tuple[int, tuple[Voter, ...]]:
        """Who votes now (the last such entry counts, committed or not), and the index that says so."""
        return self._voters

    def _find_voters(self) -> tuple[int, tuple[Voter, ...]]:
        for entry in reversed(self._entries):
            if entry.kind is EntryKind.VOTERS:
                return entry.index, entry.voters
        return self.snapshot.index, self.snapshot.voters

    def is_newer_than(self, last_term: int, last_index: int) -> bool:
        """This log has more than one that ends there."""
        return (self.last_term, self.last_index) > (last_term, last_index)
