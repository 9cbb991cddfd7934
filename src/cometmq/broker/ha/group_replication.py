"""Replication of a broker whose group elects its master (controller mode); counterpart of ``Replication``.

It opens the replica's files before the store, makes the ``Member`` once the store is open, starts a controller if this
broker has a vote, and keeps trying until the controllers know us. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.broker.ha.acknowledgements import Acknowledgements
from cometmq.broker.ha.full_disk import LOOK_MS, FullDisk
from cometmq.broker.ha.guard import GroupGuard
from cometmq.broker.ha.member import Member
from cometmq.broker.ha.member_files import MemberFiles, refuse_dledger_store
from cometmq.broker.ha.meta_items import Item, MetaItems
from cometmq.broker.ha.meta_stream import MetaStream
from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.provisional_offsets import ProvisionalOffsets
from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.broker.ha.roles import BrokerRoles
from cometmq.broker.ha.server import HaServer
from cometmq.clock import boot_ms
from cometmq.controller.config import ControllerConfig, parse_id
from cometmq.controller.controller import Controller, open_controller
from cometmq.controller.replicas import GroupSettings
from cometmq.controller.session import ControllerSession, GroupSnapshot, ReplicaIdentity
from cometmq.errors import CometMQError
from cometmq.store.model import PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

DRAIN_LIMIT_MS = 2_000  # for the last sends before a planned switch
SWITCH_LIMIT_MS = 3_000
LEAVE_LIMIT_S = 2.0  # an orderly stop waits so long for a successor
POLL_S = 0.005


class GroupReplication:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        root = Path(config.store_path_root_dir)
        self.roles = BrokerRoles(broker)
        self.controller_config = ControllerConfig.from_properties(
            config.as_properties(),
            directory=str(root / "ha" / "controller"),
            bind_address=config.bind_address,
        )
        self.replica_id = config.broker_id or parse_id(config.controller_self_id)
        self.controller: Controller | None = None
        self.files: MemberFiles | None = None
        self._member: Member | None = None
        self._meta: MetaStream | None = None
        self.provisional = ProvisionalOffsets()
        self.guard = GroupGuard(broker, self)
        self._held: tuple[int, list[Item]] | None = None  # offsets, and what must be confirmed before they go
        self._joining: asyncio.Task[None] | None = None
        self.server = HaServer(
            config, broker.store, Acknowledgements(config), replica_link=lambda: PeerLink(self.member.peers)
        )

    @property
    def member(self) -> Member:
        assert self._member is not None, "the store is not open"
        return self._member

    @property
    def meta(self) -> MetaStream:
        assert self._meta is not None, "the store is not open"
        return self._meta

    # -- what Durability and the send path ask --------------------------------------------------------------------

    def must_wait(self, result: PutResult) -> bool:
        return self.member.must_wait(result)

    def wait(self, result: PutResult, callback: Callable[[PutStatus], None]) -> None:
        self.member.wait(result, callback)

    def hint(self) -> dict[str, str]:
        return self.member.hint()

    @property
    def master_epoch(self) -> int:
        return self.roles.epoch

    # -- life -----------------------------------------------------------------------------------------------------

    def before_store(self) -> int:
        """Raises ConfigError; how much of the log may be in the queues."""
        config = self._broker.config
        root = Path(config.store_path_root_dir)
        refuse_dledger_store(root, Path(config.store_path_commit_log))
        self.files = MemberFiles.open(root, config.broker_name, self.replica_id, config.ha_boot_id)
        self.replica_id = self.files.identity.replica_id
        config.broker_id = self.replica_id
        return self.files.gate

    def after_store(self) -> None:
        assert self.files is not None
        broker = self._broker
        damaged = broker.recovery is not None and broker.recovery.damaged
        self._member = Member(
            broker.config, broker.store, self.files, self.roles, self._log_was_cut, damaged=damaged
        )
        self._member.on_confirm = self._confirmed
        self._meta = self._member.meta = MetaStream(self._member, MetaItems(broker))
        broker.offsets.changed = set()
        broker.locks.track()

    async def listen(self, host: str, port: int) -> None:
        await self.server.listen(host, port, self._broker.net_config)

    def start(self) -> None:
        self._broker.periodic.every(self._meta_interval_ms, self._publish_offsets)
        full_disk = FullDisk(self._broker.store, lambda: self.member, self.hand_over)
        self._broker.periodic.every(LOOK_MS, full_disk.look)
        self._loop = asyncio.get_running_loop()
        self._joining = self._loop.create_task(self._join(), name="ha-join")

    def _meta_interval_ms(self) -> int:
        """Half of what is promised: what is found has to be confirmed and to travel within that time, too."""
        return max(self._broker.config.ha_meta_interval_ms // 2, 1)

    async def _join(self) -> None:
        try:
            if self.controller_config.self_id:
                self.controller = open_controller(self.controller_config, self._voter_failed)
                await asyncio.get_running_loop().run_in_executor(None, self.controller.start)
            await self.member.start(self._session, self._identity())
            await self.member.register()
        except (CometMQError, OSError) as error:
            log.critical("event=NOT_REGISTERED this replica does not take part: %s", error)
            self.roles.failed(error)
            return
        self._registered(self.member.session.replica_id if self.member.session is not None else 0)

    def _voter_failed(self, error: BaseException) -> None:
        """Called by the thread of the controller: a disk that failed it is not to be trusted with messages either."""
        self._loop.call_soon_threadsafe(self.roles.failed, error)

    def _registered(self, replica_id: int) -> None:
        assert self.files is not None
        if self.replica_id != replica_id:
            self.replica_id = self._broker.config.broker_id = self.member.core.me = replica_id
            self.files.identity = replace(self.files.identity, replica_id=replica_id)
            self.files.identity.save(self.files.directory / "identity")
            self._broker.registration.role_changed()
        log.info("event=REGISTERED group=%s replica=%d", self.files.identity.group, replica_id)

    def _session(self, identity: ReplicaIdentity) -> ControllerSession:
        member = self.member
        return ControllerSession(
            self.controller_config.peers.values(),
            identity,
            member.status,
            lambda snapshot: self._told(snapshot, None),
            self.controller_config.session_times,
            on_answer=self._told,
        )

    def _told(self, snapshot: GroupSnapshot, sent: int | None) -> None:
        """The controllers have said how things are."""
        self.member.on_answer(snapshot, sent)
        self.member.peers.look_at_early()

    def _identity(self) -> ReplicaIdentity:
        assert self.files is not None
        config = self._broker.config
        preferred = parse_id(config.preferred_leader_id)
        quorum = config.ha_ack_replicas if config.ha_commit_rule == "quorum" else 0
        settings = GroupSettings(config.min_in_sync_replicas, quorum, preferred)
        return ReplicaIdentity(
            config.broker_name,
            self.replica_id,
            self.files.identity.store_id,
            self._broker.address,
            self._broker.ha_address,
            settings=settings,
        )

    async def stop(self) -> None:
        """The store is still open; ``closed`` follows when it is not."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        if self._member is not None:
            await self._member.stop()
        await self.server.stop()
        if self.controller is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.controller.stop)

    def closed(self) -> None:
        if self._member is not None:
            self._member.closed()

    # -- metadata -------------------------------------------------------------------------------------------------

    def topics_changed(self, names: list[str]) -> None:
        if self._meta is not None and self.member.is_master:
            self._meta.publish([self._meta.items.topics(names)])

    def groups_changed(self) -> None:
        if self._meta is not None and self.member.is_master:
            self._meta.publish([self._meta.items.groups()])

    def _publish_offsets(self) -> None:
        """Offsets go to the followers once everything is confirmed that was written before they were looked at."""
        if not self.member.is_master:
            self._held = None
            self._broker.offsets.changed = set()
            self.meta.offer(self.provisional)
            return
        if self.provisional:
            self.provisional.merge_into(self._broker.offsets)
        items = self.meta.items
        self.meta.publish(items.locks() + items.changed_access())
        if self._held is None:
            self._held = (self.member.log.max_offset, items.offsets())
        self._publish_held()

    def _publish_held(self) -> None:
        if self._held is None or self.member.core.confirm < self._held[0]:
            return
        found, self._held = self._held[1], None
        if self.member.is_master:
            self.meta.publish(found)
            self.meta.items.published(found)

    def _confirmed(self) -> None:
        """More is confirmed: for slaves of 4.9, and for what has waited for it."""
        self.server.pump()
        self._publish_held()

    # -- planned switch -------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """An orderly stop of the master: another one in sync takes over first."""
        core = self.member.core
        if core.role is not ReplicaRole.MASTER or not core.view.sync_set - {core.me}:
            return
        try:
            problem = await asyncio.wait_for(self.hand_over(), LEAVE_LIMIT_S)
        except TimeoutError:
            problem = f"it took longer than {LEAVE_LIMIT_S:g} s"
        if problem:
            log.warning("event=NOT_HANDED_OVER stopping as master: %s", problem)

    async def hand_over(self, preferred: int = 0) -> str | None:
        """Let another replica be master: nothing new is taken, the rest is confirmed, then somebody is elected.

        Answers when the other one is master, or why it is not.
        """
        member, core = self.member, self.member.core
        if core.role is not ReplicaRole.MASTER or member.session is None:
            return f"this broker is not the master of its group; the master is {member.master_address or 'unknown'}"
        if preferred and (problem := self._why_not(preferred)):
            return problem
        epoch = core.epoch
        log.warning("event=HANDING_OVER epoch=%d preferred=%d", epoch, preferred)
        core.resign()
        try:
            if not await _until(lambda: core.drained or core.role is not ReplicaRole.MASTER, DRAIN_LIMIT_MS):
                return "sends were not confirmed in time"
            self._publish_offsets()
            await self.meta.replicated(DRAIN_LIMIT_MS)
            if not await member.session.resign(epoch, preferred):
                return "no replica could take over"
            if not await _until(lambda: core.role is not ReplicaRole.MASTER, SWITCH_LIMIT_MS):
                return "the controllers have not told the outcome yet"
            return None
        finally:
            if core.role is ReplicaRole.MASTER and core.epoch == epoch:
                core.stay()

    def _why_not(self, replica_id: int) -> str | None:
        """Why this replica cannot be the next master."""
        core = self.member.core
        if replica_id == core.me:
            return f"replica {replica_id} is the master already"
        if replica_id not in core.view.sync_set:
            others = ", ".join(map(str, sorted(core.view.sync_set - {core.me})))
            return f"replica {replica_id} is not in sync; in sync beside the master: {others or 'none'}"
        return None

    def _log_was_cut(self) -> None:
        """Offsets beyond the ends of queues would make consumers and delay levels skip what comes there."""
        self._broker.offsets_follow_queues()

    # -- for people -----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """For administrators and metrics."""
        member, core, view = self.member, self.member.core, self.member.core.view
        now = boot_ms()
        standing = core.standing(now)
        followers = {
            str(number): {
                "acknowledgedOffset": stream.acked,
                "lagBytes": member.log.max_offset - max(stream.acked, 0),
                "lagMs": 0 if stream.acked >= member.log.max_offset else int(now - stream.caught_up_at),
                "silenceMs": int(now - stream.heard_at),
            }
            for number, stream in core.in_sync.streams.items()
        }
        return {
            "group": self._broker.config.broker_name,
            "replicaId": self.replica_id,
            "address": self._broker.address,
            "role": core.role.name,
            "standing": standing.name if standing is not None else None,
            "master": view.master,
            "masterAddress": member.master_address,
            "epoch": view.epoch,
            "syncSet": sorted(view.sync_set),
            "unclean": sorted(view.unclean),  # may lack confirmed bytes, and are not elected
            "setVersion": view.set_version,
            "minInSync": view.min_in_sync,
            "ackReplicas": view.ack_replicas,
            "eligible": sorted(member.snapshot.eligible) if member.snapshot is not None else [],
            "lease": core.has_lease(now),
            "leaseUntil": int(core.lease_until) if core.has_lease(now) else 0,
            "minOffset": member.log.min_offset,
            "maxOffset": member.log.max_offset,
            "flushedOffset": member.log.flushed_offset,
            "confirmOffset": core.confirm,
            "dispatchedOffset": self._broker.store.dispatched_offset,
            "elections": member.elections,
            "waitingSends": len(member.waits),
            "forwarded": self.guard.forwarded,
            "followers": followers,
            "controllers": list(self.controller_config.peers.values()),
            "refusal": member.session.refusal if member.session is not None else "",
            "controllerLeader": member.session.leader_address if member.session is not None else "",
        }


async def _until(condition: Callable[[], bool], limit_ms: int) -> bool:
    deadline = boot_ms() + limit_ms
    while not condition():
        if boot_ms() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True
