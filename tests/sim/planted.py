"""Mistakes on purpose: each leaves out one rule, and the simulator must find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cometmq.broker.ha.frames import Ack, Data
from cometmq.broker.ha.in_sync_set import FollowerStream, InSyncSet
from cometmq.broker.ha.master_stream import MasterStream
from cometmq.broker.ha.replica import Replica
from cometmq.controller.group_state import GroupView


@dataclass
class Bugs:
    # of replicas
    skip_epoch_check: bool = False
    confirm_connected_only: bool = False
    no_union: bool = False
    lease_from_reply: bool = False
    cut_below_confirm: bool = False
    quorum_of_the_union: bool = False
    no_quarantine: bool = False
    # of their disks
    no_zeroing: bool = False
    ack_before_flush: bool = False
    bad_record_is_torn: bool = False
    # of voters
    vote_without_sync: bool = False
    ack_without_sync: bool = False
    wiped_disk_keeps_uuid: bool = False
    cuts_bad_raft_log: bool = False
    ignores_unknown_uuids: bool = False
    # of the controller
    elects_without_fence: bool = False
    void_proposals_stay: bool = False
    unclean_leaves_quorum: bool = False


class BuggyReplica(Replica):
    """The machine with one of its rules left out."""

    def __init__(self, *arguments: Any, bugs: Bugs, first_session: int, **settings: Any) -> None:
        super().__init__(*arguments, first_session=first_session, **settings)
        self.bugs = bugs
        self.in_sync = BuggyInSyncSet(self)
        self.from_master = BuggyMasterStream(self, first_session)

    def on_view(self, view: GroupView, sent: float | None, now: float) -> None:
        if self.bugs.skip_epoch_check and view.epoch < self.view.epoch and view.master != self.me:
            self.view, self.epoch = GroupView(), view.epoch  # news of the past are news
        super().on_view(view, sent, now)

    def _lease_start(self, sent: float) -> float:
        return self.now if self.bugs.lease_from_reply else sent

    def may_grant(self, now: float) -> bool:
        return self.has_lease(now) if self.bugs.no_quarantine else super().may_grant(now)


class BuggyMasterStream(MasterStream):
    _replica: BuggyReplica

    def _epoch_is_current(self, epoch: int) -> bool:
        return self._replica.bugs.skip_epoch_check or super()._epoch_is_current(epoch)

    def on_data(self, data: Data) -> None:
        skip = self._replica.bugs.skip_epoch_check
        super().on_data(data._replace(epoch=self._replica.epoch) if skip else data)

    def _may_cut_to(self, point: int) -> bool:
        return self._replica.bugs.cut_below_confirm or super()._may_cut_to(point)


class BuggyInSyncSet(InSyncSet):
    _replica: BuggyReplica

    def _ack_counts(self, ack: Ack, stream: FollowerStream) -> bool:
        same_session = ack.session == stream.session
        return super()._ack_counts(ack, stream) or (self._replica.bugs.skip_epoch_check and same_session)

    def _counted_sets(self) -> list[frozenset[int]]:
        bugs, known = self._replica.bugs, self._replica.view.sync_set
        if bugs.confirm_connected_only:
            live = {follower for follower, stream in self.streams.items() if self._is_live(stream)}
            return [known & {self._replica.me, *live}]
        if bugs.no_union:
            return [known]
        if bugs.quorum_of_the_union:
            return [known.union(*super()._counted_sets())]
        return super()._counted_sets()
