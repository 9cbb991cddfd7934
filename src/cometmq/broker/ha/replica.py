"""One replica of a group that elects its master: epochs, truncation, in-sync set, confirm offset.

Theory of operation. Sans-IO: the driver brings in frames of other replicas, views of the controller, appends and
time, and takes out what is to be sent. Bytes and epochs are kept by a ``ReplicaLog``, whose calls are durable in the
sense of each method when they return. A follower (``MasterStream``) shakes hands with the master that the controller
named, cuts its log where the two part, and then takes only what continues its log, in that epoch and session. A master
(``InSyncSet``) confirms what every member of the in-sync set has (by the rule ``quorum``: k of them), in the set it
knows and also in the one it has proposed; members leave and join only through the controller. A lease counts from the
moment the heartbeat was *sent*. It does not protect writes, epochs do; it bounds what only one may grant
(``may_grant``). The rules and the mistakes they close are in docs/ha/elections.md; tests/sim plants the mistakes and
finds them.
"""

from __future__ import annotations

import enum

from cometmq.broker.ha.frames import Ack, Data, Frame, Hello, Output, Status, Welcome
from cometmq.broker.ha.in_sync_set import InSyncSet
from cometmq.broker.ha.master_stream import MasterStream
from cometmq.broker.ha.replica_state import ReplicaLog, ReplicaRole, ReplicaState, ReplicaTimes
from cometmq.controller.group_state import NO_MASTER, GroupView

CLOCK_MARGIN = 1.25  # two clocks that go wrong by 10 % in opposite directions


class Standing(enum.Enum):
    """What a master may do now."""

    PROMOTING = enum.auto()  # confirms nothing of its own yet
    SERVING = enum.auto()
    NOLEASE = enum.auto()  # confirms, but grants nothing
    FENCED = enum.auto()  # appends nothing


class Replica(ReplicaState):
    def __init__(
        self,
        me: int,
        log: ReplicaLog,
        *,
        now: float,
        confirm: int = 0,
        acks_are_flushed: bool = False,
        times: ReplicaTimes | None = None,
        first_session: int = 0,
    ) -> None:
        """``first_session`` must be greater than any session of an earlier start of this replica."""
        super().__init__(
            me,
            log,
            now=now,
            confirm=confirm,
            acks_are_flushed=acks_are_flushed,
            times=times or ReplicaTimes(),
        )
        self.in_sync = InSyncSet(self)
        self.from_master = MasterStream(self, first_session)
        self.lease_until = float("-inf")
        self.resigning = False
        self._fenced = False  # somebody knows a later epoch than ours

    # -- what the driver brings -----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        self.now = now
        if self.role is ReplicaRole.FAILED:
            return
        if self.role is ReplicaRole.MASTER:
            self.in_sync.tick()
        elif self._follows:
            self.from_master.tick()

    def on_view(self, view: GroupView, sent: float | None, now: float) -> None:
        """The controller says how things are; ``sent`` when it answers our heartbeat of that time."""
        self.now = now
        known = self.view
        outdated = (view.epoch, view.set_version) < (known.epoch, known.set_version)
        if self.role is ReplicaRole.FAILED or outdated:
            return
        changed = (view.master, view.epoch) != (known.master, known.epoch)
        self.view = view
        self.in_sync.settle_proposal()
        if view.master == self.me and view.epoch > self.epoch:
            self._promote(view.epoch)
        elif view.master != self.me and (changed or self.role is ReplicaRole.MASTER):
            self._begin_following()
        if self.role is ReplicaRole.MASTER and view.epoch == self.epoch:
            if sent is not None:
                self.lease_until = max(self.lease_until, self._lease_start(sent) + self.times.lease)
            self.in_sync.close_doubtful_streams()
            self.in_sync.advance_confirm()

    def receive(self, frame: Frame, now: float) -> None:
        self.now = now
        if self.role is ReplicaRole.FAILED:
            return
        if isinstance(frame, Hello):
            if self.role is ReplicaRole.MASTER:
                self.in_sync.on_hello(frame)
            elif frame.epoch < self.epoch:
                self.fence(frame)
        elif isinstance(frame, Ack):
            if self.role is ReplicaRole.MASTER:
                self.in_sync.on_ack(frame)
        elif isinstance(frame, Welcome):
            self.from_master.on_welcome(frame)
        elif isinstance(frame, Data):
            self.from_master.on_data(frame)
        elif frame.epoch > self.epoch:
            self.from_master.doubt()  # somebody knows a later master; the controller will tell us
            self._fenced = True

    def append(self, data: bytes, now: float) -> int | None:
        """Write as master; the end offset to wait for, None if it must not be written here now."""
        self.now = now
        if not self.may_append(now):
            return None
        self.log.append(data)
        self.grown(now)
        return self.log.max_offset

    def grown(self, now: float) -> None:
        """The driver has written to the log, after ``may_append``: send it on."""
        self.now = now
        if self.role is ReplicaRole.MASTER:
            self.in_sync.pump()
            self.in_sync.advance_confirm()

    def flushed(self, now: float) -> None:
        """More of the log is on disk."""
        self.now = now
        if self.role is ReplicaRole.MASTER:
            self.in_sync.advance_confirm()
        else:
            self.from_master.flushed()

    def stream_lost(self, peer: int, now: float) -> None:
        """The connection to this replica was closed, or could not be opened."""
        self.now = now
        if self.role is ReplicaRole.MASTER:
            self.in_sync.streams.pop(peer, None)
        elif peer == self.view.master:
            self.from_master.lost()

    def resign(self) -> None:
        """Append nothing and grant nothing from now on; ask to be replaced once ``drained``."""
        self.resigning = self.role is ReplicaRole.MASTER

    def stay(self) -> None:
        """Nobody could replace us."""
        self.resigning = False

    # -- what the driver asks -------------------------------------------------------------------------------------

    def take(self) -> list[Output]:
        outputs, self.outputs = self.outputs, []
        return outputs

    def may_append(self, now: float) -> bool:
        return self.standing(now) not in (None, Standing.FENCED) and not self.resigning

    def has_lease(self, now: float) -> bool:
        """Nobody else was elected when this lease began; enough to answer at level `leader`."""
        return self.role is ReplicaRole.MASTER and now < self.lease_until and not self.resigning

    def may_grant(self, now: float) -> bool:
        """Locks and changes by administrators: not while the master before us may still believe in its lease."""
        return self.has_lease(now) and now - self.in_sync.led_since >= self.times.lease * CLOCK_MARGIN

    def standing(self, now: float) -> Standing | None:
        """None if this is no master."""
        if self.role is not ReplicaRole.MASTER:
            return None
        enough = len(self.view.sync_set) >= self.view.min_in_sync and self.view.epoch == self.epoch
        if self._fenced or not enough or not (self.has_lease(now) or self.in_sync.enough_live(now)):
            return Standing.FENCED
        if self.confirm < self.epoch_start:
            return Standing.PROMOTING
        return Standing.SERVING if self.has_lease(now) else Standing.NOLEASE

    def status(self, now: float) -> Status:
        follows = self.role is not ReplicaRole.MASTER and self._follows
        return Status(
            self.view.epoch,
            self.log.epochs.last,
            self.log.max_offset,
            self.log.flushed_offset,
            self.confirm,
            int(now - self.from_master.heard_at) if follows else 0,
            follows and self.from_master.closed,
        )

    @property
    def drained(self) -> bool:
        return self.confirm == self.log.max_offset

    @property
    def confirm_to_keep(self) -> int:
        """What a file may say is confirmed: after a loss of power a log that ends before it is called corrupt."""
        return min(self.confirm, self.log.flushed_offset)

    # -- roles ----------------------------------------------------------------------------------------------------

    @property
    def _follows(self) -> bool:
        """Is somebody else master?"""
        return self.view.master not in (NO_MASTER, self.me)

    def _lease_start(self, sent: float) -> float:
        return sent

    def _promote(self, epoch: int) -> None:
        self.log.save_epochs(self.log.epochs.with_epoch(epoch, self.log.max_offset))
        self.epoch = epoch
        self._begin_role(ReplicaRole.MASTER)
        self.lease_until = float("-inf")
        self.in_sync.led_since = self.now

    def _begin_following(self) -> None:
        self._begin_role(ReplicaRole.JOINING)
        self.from_master.heard_at = self.now
        if self.view.master != NO_MASTER:
            self.from_master.say_hello()

    def _begin_role(self, role: ReplicaRole) -> None:
        self.role = role
        self.in_sync.forget()
        self.from_master.forget()
        self.resigning = self._fenced = False
