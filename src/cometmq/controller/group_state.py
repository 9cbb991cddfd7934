"""What the controller knows of one group of replicas, and how commands change it. Pure and deterministic.

The commands are the entries of the metadata log: every voter applies the same ones in the same order. A command whose
preconditions do not hold changes nothing and says so. Rules: ha.md 5, 6.2 and 8.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NO_MASTER = 0
NOBODY: frozenset[int] = frozenset()


class GroupView(NamedTuple):
    """The part that replicas act on."""

    master: int = NO_MASTER
    epoch: int = 0
    sync_set: frozenset[int] = NOBODY
    set_version: int = 0
    forced_epoch: int = 0  # the last epoch that an operator began although bytes may be lost


@dataclass(slots=True)
class GroupState:
    min_in_sync: int = 1
    view: GroupView = field(default_factory=GroupView)
    eligible: frozenset[int] = (
        NOBODY  # left the in-sync set while it was too small: they have every confirmed byte
    )
    stores: dict[int, str] = field(default_factory=dict)  # replica id -> id of its store
    unclean: set[int] = field(default_factory=set)
    was_full: bool = False  # the in-sync set was once large enough: something may be confirmed

    def register(self, replica: int, store: str, *, unclean: bool) -> bool:
        """A replica has started. One whose disk is new or may lack bytes is not to be elected before it caught up."""
        known = self.stores.get(replica)
        doubtful = unclean or (known is not None and known != store)
        self.stores[replica] = store
        if known is None and self.view.epoch == 0 and not self.view.sync_set:
            self._set_in_sync(frozenset((replica,)))
            return True
        if not doubtful or (self.view.sync_set == {replica} and not self.was_full):
            return True
        self.unclean.add(replica)
        self.eligible -= {replica}
        if replica in self.view.sync_set and len(self.view.sync_set) > 1:
            self._set_in_sync(self.view.sync_set - {replica})
        elif replica in self.view.sync_set and (self.eligible or self.min_in_sync > 1):
            self._set_in_sync(NOBODY)
        return True

    def alter_sync_set(self, master: int, epoch: int, set_version: int, members: Iterable[int]) -> bool:
        wanted = frozenset(members)
        view = self.view
        if (master, epoch, set_version) != (view.master, view.epoch, view.set_version):
            return False
        if master not in wanted or not wanted <= self.stores.keys():
            return False
        # The master vouches for who it takes in: they have caught up since they were unclean.
        self.unclean -= wanted
        self._set_in_sync(wanted)
        return True

    def elect(self, new_master: int, old_epoch: int, dead: Iterable[int]) -> bool:
        """A new master out of those that have every confirmed byte."""
        view = self.view
        candidates = view.sync_set or self.eligible
        if old_epoch != view.epoch or new_master not in candidates or new_master in self.unclean:
            return False
        members = (view.sync_set - frozenset(dead)) | {new_master}
        self._set_in_sync(members)
        self.view = self.view._replace(master=new_master, epoch=view.epoch + 1)
        return True

    def depose(self, master: int, epoch: int) -> bool:
        """Nobody is master until somebody can be elected."""
        if (master, epoch) != (self.view.master, self.view.epoch):
            return False
        self.view = self.view._replace(master=NO_MASTER)
        return True

    def force_elect(self, new_master: int) -> bool:
        """An operator accepts the loss of confirmed bytes; only when nobody clean can be elected."""
        if new_master not in self.stores:
            return False
        self.unclean.discard(new_master)
        self.eligible = NOBODY
        epoch = self.view.epoch + 1
        self.view = GroupView(new_master, epoch, frozenset((new_master,)), self.view.set_version + 1, epoch)
        return True

    def remove(self, replica: int) -> bool:
        if replica == self.view.master or replica not in self.stores:
            return False
        del self.stores[replica]
        self.eligible -= {replica}
        if replica in self.view.sync_set:
            self._set_in_sync(self.view.sync_set - {replica})
        return True

    def candidate(self, alive: Mapping[int, tuple[int, int]]) -> int | None:
        """Whom to elect among the living: the greatest (last epoch, end of log), else the lowest id."""
        allowed = [
            replica
            for replica in (self.view.sync_set or self.eligible)
            if replica in alive and replica not in self.unclean
        ]
        return max(allowed, key=lambda replica: (*alive[replica], -replica), default=None)

    def _set_in_sync(self, members: frozenset[int]) -> None:
        dropped = self.view.sync_set - members
        if len(members) >= self.min_in_sync:
            self.eligible = NOBODY
            self.was_full = True
        else:
            self.eligible = (self.eligible | dropped) - members - self.unclean
        self.view = self.view._replace(sync_set=members, set_version=self.view.set_version + 1)
