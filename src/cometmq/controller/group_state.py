"""What the controller knows of one group of replicas, and how commands change it. Pure and deterministic.

The commands are the entries of the metadata log: every voter applies the same ones in the same order. A command whose
preconditions do not hold changes nothing and says so. Rules: docs/ha/elections.md.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    unclean: frozenset[int] = NOBODY  # may lack confirmed bytes until the master takes them in again
    min_in_sync: int = 1
    ack_replicas: int = 0  # k of the commit rule `quorum`; 0 is the rule `all`


@dataclass(slots=True)
class GroupState:
    view: GroupView = field(default_factory=GroupView)
    # Left the in-sync set while it was too small: they have every confirmed byte
    eligible: frozenset[int] = NOBODY
    stores: dict[int, str] = field(default_factory=dict)  # replica id -> id of its store
    was_full: bool = False  # the in-sync set was once large enough: something may be confirmed

    def configure(self, min_in_sync: int, ack_replicas: int = 0) -> bool:
        """How much it takes to confirm. The master obeys it with the view, hence a new version of the set."""
        view = self.view
        if min_in_sync < 1 or (view.epoch and ack_replicas != view.ack_replicas):
            return False  # what is confirmed was confirmed by the old rule
        if view.epoch and min_in_sync > max(view.min_in_sync, len(self.stores)):
            return False  # nothing could be confirmed any more
        enough = max(min_in_sync, ack_replicas)  # by `quorum` nothing is confirmed with fewer members than k
        if (enough, ack_replicas) != (view.min_in_sync, view.ack_replicas):
            self.view = view._replace(min_in_sync=enough, ack_replicas=ack_replicas)
            self._set_in_sync(view.sync_set)
        return True

    @property
    def min_in_sync(self) -> int:
        return self.view.min_in_sync

    @property
    def ack_replicas(self) -> int:
        return self.view.ack_replicas

    @property
    def is_quorum(self) -> bool:
        return self.view.ack_replicas > 0

    def register(self, replica: int, store: str, *, unclean: bool, corrupt: bool = False) -> bool:
        """A replica has started: it is master of nothing, and electable only if it has what it had."""
        known = self.stores.get(replica)
        wiped = known is not None and known != store
        self.stores[replica] = store
        if replica == self.view.master:
            self.depose(replica, self.view.epoch)
        if known is None and self.view.epoch == 0 and not self.view.sync_set:
            self._set_in_sync(frozenset((replica,)))
        elif wiped or corrupt or (unclean and not self._is_last_hope(replica)):
            self._doubt(replica)
        return True

    def _is_last_hope(self, replica: int) -> bool:
        """The only one left where one copy was said to be enough: better a possible loss than nothing."""
        return self.view.sync_set == {replica} and self.view.min_in_sync == 1 and not self.eligible

    def _doubt(self, replica: int) -> None:
        """It may lack confirmed bytes: not to be elected before a master has taken it in again."""
        view = self.view
        if not self.was_full:
            return  # nothing can have been confirmed
        self.view = view._replace(unclean=view.unclean | {replica})
        self.eligible -= {replica}
        # By `quorum` it stays a member: elections must go on counting it as one that may know nothing.
        self._set_in_sync(view.sync_set if self.is_quorum else view.sync_set - {replica})

    def alter_sync_set(self, master: int, epoch: int, set_version: int, members: Iterable[int]) -> bool:
        wanted = frozenset(members)
        view = self.view
        if (master, epoch, set_version) != (view.master, view.epoch, view.set_version):
            return False
        if master not in wanted:
            return False
        if not wanted <= self.stores.keys():
            # One of them was removed. The new version tells the master that it has to propose again.
            wanted = view.sync_set
        else:
            # The master vouches for who it takes in: they have caught up since they were unclean.
            self.view = view._replace(unclean=view.unclean - wanted)
        self._set_in_sync(wanted)
        return True

    def electable(self) -> frozenset[int]:
        """Those that have every confirmed byte; by `quorum`, those of whom enough together have them."""
        return (self.view.sync_set | self.eligible) - self.view.unclean

    def elect(self, new_master: int, old_epoch: int, dead: Iterable[int]) -> bool:
        """A new master. By `quorum` only after ``depose``, among replicas that have seen the epoch it began."""
        view = self.view
        if old_epoch != view.epoch or new_master not in self.electable():
            return False
        if self.is_quorum and view.master != NO_MASTER:
            return False
        gone = NOBODY if self.is_quorum else frozenset(dead) - {new_master}
        self._set_in_sync((view.sync_set - gone) | {new_master})
        self.view = self.view._replace(master=new_master, epoch=view.epoch + 1)
        return True

    def depose(self, master: int, epoch: int) -> bool:
        """Nobody is master until somebody is elected. The new epoch keeps replicas from serving the old master."""
        if master == NO_MASTER or (master, epoch) != (self.view.master, self.view.epoch):
            return False
        self.view = self.view._replace(master=NO_MASTER, epoch=epoch + 1)
        return True

    def force_elect(self, new_master: int) -> bool:
        """An operator accepts the loss of confirmed bytes; only when nobody clean can be elected."""
        if new_master not in self.stores:
            return False
        view = self.view
        self.eligible = NOBODY
        self.view = view._replace(
            master=new_master,
            epoch=view.epoch + 1,
            sync_set=frozenset((new_master,)),
            set_version=view.set_version + 1,
            forced_epoch=view.epoch + 1,
            unclean=view.unclean - {new_master},
        )
        return True

    def remove(self, replica: int) -> bool:
        """A member of a `quorum` must have left the set before: what others have is counted against its size."""
        view = self.view
        if replica == view.master or replica not in self.stores:
            return False
        if self.is_quorum and replica in view.sync_set:
            return False
        holders = view.sync_set | self.eligible  # of every confirmed byte
        if replica in holders and len(holders - {replica}) < view.min_in_sync:
            return False
        del self.stores[replica]
        self.view = view._replace(unclean=view.unclean - {replica})
        self._set_in_sync(view.sync_set - {replica})
        self.eligible -= {replica}
        return True

    def _set_in_sync(self, members: frozenset[int]) -> None:
        dropped = self.view.sync_set - members
        if len(members) >= self.view.min_in_sync:
            self.eligible = NOBODY
            self.was_full = True
        else:
            self.eligible = (self.eligible | dropped) - members - self.view.unclean
        self.view = self.view._replace(sync_set=members, set_version=self.view.set_version + 1)
