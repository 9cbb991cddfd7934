"""When a master is dead and who follows it: what the leading controller makes of heartbeats. Pure.

Theory of operation. The leading controller keeps one ``GroupWatch`` per group, made anew whenever it becomes leader:
what an earlier leader has heard counts for nothing. The driver tells it of heartbeats (``heard``), of closed session
connections (``closed``) and of replicas that have registered (``registered``), asks ``decide`` every few milliseconds
and proposes what it says; a decision that the applied state has overtaken is refused there, so asking again does no
harm.

* By the rule ``all`` whoever is in the in-sync set, or left it while it was too small, has every confirmed byte: any
  of them may be elected at once.
* By the rule ``quorum`` what is confirmed is only known to k of n. The group is deposed first, which begins an epoch
  without a master; a replica that has seen this epoch takes nothing from the old master any more. Only what it reports
  *after that* is fresh. Of n - k + 1 fresh, clean reports the greatest (last epoch, end of log) is elected.

A heartbeat must be answered from a state that is known to be current (Raft read index, linearizable etcd read) at a
time after it arrived: the answer grants a lease, and a controller that does not know of its successor must grant none.
Times are milliseconds of any steady clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cometmq.controller.group_state import NO_MASTER, GroupState


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    session_timeout: int = 1_500  # at least 1.5 x the lease
    disconnect_grace: int = 200


class Report(NamedTuple):
    """The part of a session heartbeat that elections need."""

    replica: int
    epoch: int  # of the view that the replica acts on, whoever is master in it
    last_epoch: int  # of its log
    max_offset: int
    # Since the last frame of the master of that epoch, or since it learned of the epoch
    master_silence: int = 0
    stream_closed: bool = False  # its stream from the master of that epoch was closed and not opened again


class Elect(NamedTuple):
    new_master: int
    old_epoch: int
    dead: frozenset[int]
    reason: str


class Depose(NamedTuple):
    master: int
    epoch: int
    reason: str


Decision = Elect | Depose


class _Session:
    """What was heard of one replica since it registered, or since we lead."""

    __slots__ = ("closed_at", "heard_at", "report", "stream_closed_at")

    def __init__(self) -> None:
        self.report: Report | None = None
        self.heard_at = 0.0
        self.closed_at: float | None = None
        self.stream_closed_at: float | None = None

    def take(self, report: Report, now: float) -> None:
        same_epoch = self.report is not None and self.report.epoch == report.epoch
        if not report.stream_closed:
            self.stream_closed_at = None
        elif self.stream_closed_at is None or not same_epoch:
            self.stream_closed_at = now
        self.report, self.heard_at, self.closed_at = report, now, None


class GroupWatch:
    def __init__(self, times: ElectionTimes, now: float) -> None:
        self._times = times
        self._since = now  # nobody can be called silent for longer than we have listened
        self._sessions: dict[int, _Session] = {}
        self._wish = (0, 0)  # epoch, and whom the master that resigned before it would like to see

    # -- what the driver tells ------------------------------------------------------------------------------------

    def heard(self, report: Report, now: float) -> None:
        self._sessions.setdefault(report.replica, _Session()).take(report, now)

    def closed(self, replica: int, now: float) -> None:
        """Its session connection is closed, and it has not opened another one."""
        session = self._sessions.get(replica)
        if session is not None and session.closed_at is None:
            session.closed_at = now

    def registered(self, replica: int, now: float) -> None:
        """It has started again: what it reported before says nothing about now."""
        session = self._sessions[replica] = _Session()
        session.heard_at = now

    # -- what follows from it -------------------------------------------------------------------------------------

    def alive(self, now: float) -> set[int]:
        """Replicas with a live session."""
        return {
            replica
            for replica, session in self._sessions.items()
            if session.report is not None
            and session.closed_at is None
            and now - session.heard_at < self._times.session_timeout
        }

    def decide(self, state: GroupState, now: float, preferred: int = 0) -> Decision | None:
        """What is to be proposed now, if anything."""
        view = state.view
        if view.master == NO_MASTER:
            epoch, wished = self._wish
            return self._elect(state, now, wished if epoch == view.epoch else preferred, "no master")
        reason = self.death(state, now)
        if reason is None:
            return None
        if state.is_quorum:
            return Depose(view.master, view.epoch, reason)
        return self._elect(state, now, preferred, reason, without=view.master)

    def resign(self, state: GroupState, now: float, preferred: int = 0) -> Decision | None:
        """Rule d: the master, which has stopped to append and given up its lease, asks to be replaced."""
        view = state.view
        if view.master == NO_MASTER:
            return None
        if state.is_quorum:
            self._wish = (view.epoch + 1, preferred)
            return Depose(view.master, view.epoch, "resigned")
        decision = self._elect(state, now, preferred, "resigned", without=view.master)
        # It lives and stays in sync.
        return decision and decision._replace(dead=decision.dead - {view.master})

    def may_force(self, state: GroupState, replica: int, now: float) -> bool:
        """An operator may accept a loss only where nobody clean can be elected."""
        if replica not in state.stores or replica not in self.alive(now):
            return False
        if state.view.master != NO_MASTER and self.death(state, now) is None:
            return False
        return self._candidate(state, now, 0, NO_MASTER) is None

    def death(self, state: GroupState, now: float) -> str | None:
        """Why the master is to be called dead, None while it is not."""
        master = state.view.master
        if self._is_silent(master, now):
            return "no heartbeat"
        # Whoever may follow the master is a witness.
        witnesses = [self._sessions[r] for r in (state.electable() - {master}) & self.alive(now)]
        witnesses = [w for w in witnesses if w.report is not None and w.report.epoch == state.view.epoch]
        if self._is_gone(master, now) and any(self._is_older(w.stream_closed_at, now) for w in witnesses):
            return "connections closed"
        timeout = self._times.session_timeout
        if witnesses and all(w.report is not None and w.report.master_silence >= timeout for w in witnesses):
            return "silent to its replicas"
        return None

    # -- rules ----------------------------------------------------------------------------------------------------

    def _is_silent(self, replica: int, now: float) -> bool:
        session = self._sessions.get(replica)
        last = max(session.heard_at, self._since) if session is not None else self._since
        return now - last >= self._times.session_timeout

    def _is_gone(self, replica: int, now: float) -> bool:
        session = self._sessions.get(replica)
        return session is not None and self._is_older(session.closed_at, now)

    def _is_older(self, moment: float | None, now: float) -> bool:
        return moment is not None and now - moment >= self._times.disconnect_grace

    def _elect(
        self, state: GroupState, now: float, preferred: int, reason: str, without: int = NO_MASTER
    ) -> Elect | None:
        best = self._candidate(state, now, preferred, without)
        if best is None:
            return None
        members = state.view.sync_set
        dead = {m for m in members if m == without or self._is_silent(m, now) or self._is_gone(m, now)}
        return Elect(best, state.view.epoch, frozenset(dead) - {best}, reason)

    def _candidate(self, state: GroupState, now: float, preferred: int, without: int) -> int | None:
        living = (self.alive(now) & state.electable()) - {without}
        if state.is_quorum:
            fresh = [r for r in living if self._end(r)[0] == state.view.epoch]
            members = state.view.sync_set
            acks = min(state.view.ack_replicas, len(members))
            return self._best(fresh, preferred) if len(fresh) > len(members) - acks else None
        in_sync = living & state.view.sync_set
        if preferred in in_sync:
            return preferred
        return self._best(in_sync or living, preferred)

    def _best(self, some: Iterable[int], preferred: int) -> int | None:
        """The one with the most bytes of the latest epoch; among equals the preferred one, then the lowest id."""
        return max(some, key=lambda r: (*self._end(r)[1:], r == preferred, -r), default=None)

    def _end(self, replica: int) -> tuple[int, int, int]:
        report = self._sessions[replica].report
        assert report is not None
        return report.epoch, report.last_epoch, report.max_offset
