"""GroupGuard: what the leading controller hears of the replicas, whom it elects, and whom it tells. Loop thread only.

Rules are pure and elsewhere (elections.py); this is their driver: sessions in, decisions proposed, views pushed, events
logged. A controller that does not lead has no guard at work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from cometmq.controller import elections
from cometmq.controller.commands import Command, Depose, Elect, ForceElect, GroupRecord
from cometmq.controller.config import ControllerConfig
from cometmq.controller.elections import ElectionTimes, GroupWatch, Report
from cometmq.controller.group_state import NO_MASTER, GroupView
from cometmq.controller.metadata import Metadata, NotLeader
from cometmq.controller.replicas import ReplicaStatus
from cometmq.controller.wire import ControllerCode, HeartbeatBody, SnapshotBody, request, snapshot_body
from cometmq.errors import CometMQError, Timeout
from cometmq.net.connection import Connection

log = logging.getLogger(__name__)

LOOKS_PER_GRACE = 8  # how often it is looked at the sessions
LATE_PART = 3  # of the session timeout: being late by more than this part makes others look silent
# After these a master that was replaced may still hold a lease; see GroupGuard.may_lease.
EARLY_REASONS = frozenset(("connections closed", "silent to its replicas", "forced"))

Session = tuple[str, int]  # group, replica id


class GroupGuard:
    def __init__(self, config: ControllerConfig, metadata: Metadata) -> None:
        self._config = config
        self._times = config.session_times
        self._metadata = metadata
        self._watches: dict[str, GroupWatch] = {}
        self._connections: dict[Session, Connection] = {}
        self._reports: dict[Session, ReplicaStatus] = {}
        self._lease_from: dict[str, float] = {}
        self._leads_since = 0.0
        self._hold_until = 0.0
        self._deciding: dict[str, asyncio.Task[None]] = {}
        self._to_push: set[str] = set()
        self._seen: dict[str, GroupView] = {}
        self._stuck_since: dict[str, float] = {}
        self._reported_stuck: dict[str, int] = {}
        self._changes: dict[str, asyncio.Event] = {}
        self._look_task: asyncio.Task[None] | None = None

    # -- leadership -------------------------------------------------------------------------------------------------

    def leadership(self, leads: bool) -> None:
        self._stop_looking()
        self._watches.clear()
        self._lease_from.clear()
        self._stuck_since.clear()
        self._reported_stuck.clear()
        if not leads:
            log.info("controller leads no more")
            return
        self._leads_since = _now()
        self._seen = {group: record.state.view for group, record in self._all_records()}
        for group, view in self._seen.items():
            self._expect(group, view.master)
        log.info("controller leads groups=%s", len(self._seen))
        self._look_task = asyncio.create_task(self._look_forever(), name="controller-guard")

    def _expect(self, group: str, master: int) -> None:
        """Its session was with another controller: until it comes here it counts as closed just now (rule a)."""
        if master != NO_MASTER:
            self.watch(group).registered(master, _now())
            self.watch(group).closed(master, _now())

    async def close(self) -> None:
        tasks = [*self._deciding.values(), *((self._look_task,) if self._look_task else ())]
        self._stop_looking()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop_looking(self) -> None:
        if self._look_task is not None:
            self._look_task.cancel()
            self._look_task = None

    def _all_records(self) -> Iterable[tuple[str, GroupRecord]]:
        for group in list(self._metadata.groups()):
            record = self._metadata.record(group)
            if record is not None:
                yield group, record

    # -- sessions ---------------------------------------------------------------------------------------------------

    def heard(self, body: HeartbeatBody, connection: Connection) -> None:
        session = (body.group, body.replica_id)
        status = body.status
        self._reports[session] = status
        if self._connections.get(session) is not connection:
            self._connections[session] = connection
            connection.on_close.append(lambda closed: self._closed(session, closed))
        self.watch(body.group).heard(
            Report(
                body.replica_id,
                status.epoch,
                status.last_epoch,
                status.max_offset,
                status.master_silence_ms,
                status.stream_closed,
            ),
            _now(),
        )

    def _closed(self, session: Session, connection: Connection) -> None:
        if self._connections.get(session) is connection:
            del self._connections[session]
            if self._metadata.is_leader:
                self.watch(session[0]).closed(session[1], _now())

    def registered(self, group: str, replica: int) -> None:
        self.watch(group).registered(replica, _now())

    def forgotten(self, group: str, replica: int) -> None:
        self._reports.pop((group, replica), None)

    def watch(self, group: str) -> GroupWatch:
        watch = self._watches.get(group)
        if watch is None:
            times = ElectionTimes(self._times.timeout, self._times.disconnect_grace)
            watch = self._watches[group] = GroupWatch(times, max(self._leads_since, _now()))
        return watch

    def may_lease(self, group: str, view: GroupView, leased_epoch: int) -> bool:
        """Leases never overlap: the first one of an epoch waits until the last one of the old master has ended.

        That is so at once after the rules that wait longer than a lease, and after a planned switch.
        """
        start = max(self._leads_since + self._times.lease, self._lease_from.get(group, 0.0))
        return leased_epoch == view.epoch or _now() >= start

    def sessions(self, group: str) -> dict[str, dict[str, object]]:
        """For people."""
        alive = self.watch(group).alive(_now()) if self._metadata.is_leader else set()
        return {
            str(replica): {"alive": replica in alive, **status._asdict()}
            for (name, replica), status in sorted(self._reports.items())
            if name == group
        }

    def resignation(self, group: str, preferred: int) -> elections.Decision | None:
        """Rule d: who follows a master that wants to go, None if nobody can."""
        record = self._metadata.record(group)
        if record is None or group in self._deciding:
            return None
        return self.watch(group).resign(record.state, _now(), preferred or record.preferred_master)

    def may_force(self, group: str, replica: int) -> bool:
        record = self._metadata.record(group)
        return record is not None and self.watch(group).may_force(record.state, replica, _now())

    # -- decisions --------------------------------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        pause = self._times.disconnect_grace / LOOKS_PER_GRACE / 1000
        while True:
            before = _now()
            await asyncio.sleep(pause)
            self._mind_late_wake_up(_now() - before - pause * 1000)
            if _now() >= self._hold_until:
                for group, record in self._all_records():
                    self._look(group, record)

    def _mind_late_wake_up(self, late: float) -> None:
        """We were kept from running: heartbeats wait in our sockets, so nobody may be called silent yet."""
        if late > self._times.timeout / LATE_PART:
            self._hold_until = _now() + 2 * self._times.heartbeat
            log.warning("controller was kept from running for %d ms, decides nothing for a moment", late)

    def _look(self, group: str, record: GroupRecord) -> None:
        if group in self._deciding:
            return
        watch, state, now = self.watch(group), record.state, _now()
        decision = watch.decide(state, now, record.preferred_master)
        if decision is not None:
            self._stuck_since.pop(group, None)
            self.decide(group, decision)
            return
        if state.view.master == NO_MASTER or watch.death(state, now) is not None:
            self._stuck(group, record, now)
        else:
            self._stuck_since.pop(group, None)

    def decide(self, group: str, decision: elections.Decision) -> asyncio.Task[None]:
        """Propose it; one decision per group at a time."""
        task = asyncio.create_task(self._propose(group, decision), name=f"decide-{group}")
        self._deciding[group] = task
        task.add_done_callback(lambda _: self._deciding.pop(group, None))
        return task

    async def _propose(self, group: str, decision: elections.Decision) -> None:
        record = self._metadata.record(group)
        master = record.state.view.master if record is not None else NO_MASTER
        if master != NO_MASTER and decision.reason != "resigned":
            log.warning(
                "MASTER_DEAD group=%s master=%s epoch=%s reason=%s",
                group,
                master,
                decision[1],
                decision.reason,
            )
        if decision.reason in EARLY_REASONS:
            self._delay_lease(group)
        command: Command
        if isinstance(decision, elections.Elect):
            dead = tuple(sorted(decision.dead))
            command = Elect(decision.new_master, decision.old_epoch, decision.reason, dead)
        else:
            command = Depose(decision.master, decision.epoch, decision.reason)
        try:
            outcome = await self._metadata.propose(group, command)
        except (NotLeader, Timeout) as error:
            log.warning("group=%s election not decided: %s", group, error)
            return
        if decision.reason in EARLY_REASONS:
            self._delay_lease(group)
        if not outcome.accepted:
            log.info("group=%s election overtaken: %s", group, outcome.reason)

    def _delay_lease(self, group: str) -> None:
        self._lease_from[group] = _now() + self._times.lease

    async def force(self, group: str, replica: int, epoch: int) -> bool:
        """An operator, or enableElectUncleanMaster, accepts a loss."""
        self._delay_lease(group)
        outcome = await self._metadata.propose(group, ForceElect(replica, epoch))
        self._delay_lease(group)
        if outcome.accepted:
            log.error("FORCED group=%s master=%s epoch=%s", group, replica, epoch + 1)
            log.error("POSSIBLE_LOSS group=%s replica=%s reason=forced", group, replica)
        return outcome.accepted

    def _stuck(self, group: str, record: GroupRecord, now: float) -> None:
        """Nobody can be elected. Whoever could may not have been heard yet, so that is no event at once."""
        view = record.state.view
        if now - self._stuck_since.setdefault(group, now) < self._times.timeout:
            return
        if self._reported_stuck.get(group) != view.epoch:
            self._reported_stuck[group] = view.epoch
            log.error(
                "NO_ELIGIBLE_REPLICA group=%s epoch=%s master=%s sync_set=%s eligible=%s unclean=%s",
                group,
                view.epoch,
                view.master,
                sorted(view.sync_set),
                sorted(record.state.eligible),
                sorted(view.unclean),
            )
        if self._config.elect_unclean:
            self._force_best(group, record)

    def _force_best(self, group: str, record: GroupRecord) -> None:
        watch, now = self.watch(group), _now()
        allowed = [r for r in watch.alive(now) if watch.may_force(record.state, r, now)]
        if not allowed:
            return
        best = max(allowed, key=lambda r: (*self._reports[group, r][1:3], -r))
        task = asyncio.create_task(self._force_quietly(group, best, record.state.view.epoch))
        self._deciding[group] = task
        task.add_done_callback(lambda _: self._deciding.pop(group, None))

    async def _force_quietly(self, group: str, replica: int, epoch: int) -> None:
        try:
            await self.force(group, replica, epoch)
        except CometMQError as error:
            log.warning("group=%s forced election not decided: %s", group, error)

    # -- what replicas and the log are told -------------------------------------------------------------------------

    def changed(self, group: str) -> None:
        """Called while a command is applied; told afterwards, once for several changes."""
        if (event := self._changes.pop(group, None)) is not None:
            event.set()
        if not self._metadata.is_leader:
            return
        if not self._to_push:
            asyncio.get_running_loop().call_soon(self._push)
        self._to_push.add(group)

    async def next_change(self, group: str) -> None:
        await self._changes.setdefault(group, asyncio.Event()).wait()

    def _push(self) -> None:
        groups, self._to_push = self._to_push, set()
        if not self._metadata.is_leader:
            return
        for group in groups:
            record = self._metadata.record(group)
            if record is None:
                continue
            self._tell_log(group, record)
            for (name, _replica), connection in list(self._connections.items()):
                if name == group and not connection.closed:
                    connection.send(
                        request(ControllerCode.ROLE_CHANGED, self.body(group, record), oneway=True)
                    )

    def body(self, group: str, record: GroupRecord, *, lease: bool = False) -> SnapshotBody:
        return snapshot_body(
            group, record, self._metadata.leader_address, self._metadata.revision, lease=lease
        )

    def _tell_log(self, group: str, record: GroupRecord) -> None:
        before, view = self._seen.get(group, GroupView()), record.state.view
        self._seen[group] = view
        if view.epoch != before.epoch and view.master != NO_MASTER:
            log.warning(
                "ELECTED group=%s master=%s epoch=%s reason=%s", group, view.master, view.epoch, record.reason
            )
        if view.sync_set != before.sync_set:
            log.info(
                "SYNC_SET group=%s epoch=%s version=%s members=%s eligible=%s",
                group,
                view.epoch,
                view.set_version,
                sorted(view.sync_set),
                sorted(record.state.eligible),
            )


def _now() -> float:
    return time.monotonic() * 1000
