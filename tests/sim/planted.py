"""Mistakes on purpose (ha.md 12.2): each leaves out one rule, and the simulator must find it."""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.broker.ha.replica import Ack, Data, Replica, Stream
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

    bugs = Bugs()

    def _epoch_is_current(self, epoch: int) -> bool:
        return self.bugs.skip_epoch_check or super()._epoch_is_current(epoch)

    def _ack_counts(self, ack: Ack, stream: Stream) -> bool:
        same_session = ack.session == stream.session
        return super()._ack_counts(ack, stream) or (self.bugs.skip_epoch_check and same_session)

    def _on_data(self, data: Data) -> None:
        super()._on_data(data._replace(epoch=self.epoch) if self.bugs.skip_epoch_check else data)

    def on_view(self, view: GroupView, sent: float | None, now: float) -> None:
        if self.bugs.skip_epoch_check and view.epoch < self.view.epoch and view.master != self.me:
            self.view, self.epoch = GroupView(), view.epoch  # news of the past are news
        super().on_view(view, sent, now)

    def _counted_sets(self) -> list[frozenset[int]]:
        known = self.view.sync_set
        if self.bugs.confirm_connected_only:
            return [
                known & {self.me, *(m for m, s in self.streams.items() if self._is_live(s, self._times.drop))}
            ]
        if self.bugs.no_union:
            return [known]
        if self.bugs.quorum_of_the_union:
            return [known.union(*super()._counted_sets())]
        return super()._counted_sets()

    def _lease_start(self, sent: float) -> float:
        return self._now if self.bugs.lease_from_reply else sent

    def _may_cut_to(self, point: int) -> bool:
        return self.bugs.cut_below_confirm or super()._may_cut_to(point)

    def may_grant(self, now: float) -> bool:
        return self.has_lease(now) if self.bugs.no_quarantine else super().may_grant(now)
