"""The requests of replicas and operators (9101 to 9105, 9108 to 9113): check, propose, answer. Loop thread only.

Everything that changes something, and every answer that somebody acts on, comes from the leader; others answer 9199
and say who leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from cometmq.controller.commands import (
    AlterSyncSet,
    Command,
    GroupRecord,
    Outcome,
    Register,
    RemoveReplica,
    SetConfig,
)
from cometmq.controller.config import parse_peers
from cometmq.controller.group_state import NO_MASTER
from cometmq.controller.guard import GroupGuard
from cometmq.controller.metadata import Metadata, NotLeader
from cometmq.controller.raft_metadata import RaftMetadata
from cometmq.controller.wire import (
    LEADER_FIELD,
    AlterSyncSetBody,
    ChangeVotersBody,
    ControllerCode,
    ForceElectBody,
    GroupBody,
    HeartbeatBody,
    RegisterBody,
    RegisteredBody,
    RemoveReplicaBody,
    ResignBody,
    SetConfigBody,
    TransferBody,
)
from cometmq.errors import ConfigError, Timeout
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Handler
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)

HANDED_OVER_SECONDS = 2.0

Asked = TypeVar("Asked")
Serve = Callable[[Connection, RemotingCommand], Awaitable[RemotingCommand]]


class Refused(Exception):
    """A precondition does not hold; the text goes into the answer."""

    def __init__(self, why: str, code: ControllerCode = ControllerCode.REFUSED, group: str = "") -> None:
        super().__init__(why)
        self.code = code
        self.group = group


class ControllerRequests:
    def __init__(self, metadata: Metadata, guard: GroupGuard) -> None:
        self._metadata = metadata
        self._guard = guard

    def handlers(self) -> dict[int, Handler]:
        served: dict[ControllerCode, Serve] = {
            ControllerCode.HEARTBEAT: self._heartbeat,
            ControllerCode.REGISTER: self._register,
            ControllerCode.ALTER_SYNC_SET: self._alter_sync_set,
            ControllerCode.RESIGN: self._resign,
            ControllerCode.GET_GROUP_STATE: self._get_group_state,
            ControllerCode.FORCE_ELECT: self._force_elect,
            ControllerCode.REMOVE_REPLICA: self._remove_replica,
            ControllerCode.CHANGE_VOTERS: self._change_voters,
            ControllerCode.SET_CONFIG: self._set_config,
            ControllerCode.TRANSFER_LEADERSHIP: self._transfer,
        }
        guarded: dict[int, Handler] = {code: self._as_leader(serve) for code, serve in served.items()}
        return {**guarded, ControllerCode.HA_STATUS: self._ha_status}

    def _as_leader(self, serve: Serve) -> Handler:
        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            try:
                if not self._metadata.is_leader:
                    raise NotLeader(self._metadata.leader_address)
                return await serve(connection, command)
            except NotLeader as error:
                return _not_leader(command, str(error), error.leader_address)
            except Timeout as error:  # asked again, its preconditions tell whether it was decided
                return _not_leader(command, str(error), "")
            except Refused as error:
                return self._refusal(command, error)
            except msgspec.MsgspecError as error:
                return command.response(ResponseCode.SYSTEM_ERROR, f"The request cannot be read: {error}.")

        return handler

    def _refusal(self, command: RemotingCommand, error: Refused) -> RemotingCommand:
        """With the state as it is, so that nobody goes on asking for what cannot be."""
        record = self._metadata.record(error.group)
        body = self._guard.body(error.group, record).encode() if record is not None else b""
        return command.response(error.code, str(error), body=body)

    def _record(self, group: str) -> GroupRecord:
        record = self._metadata.record(group)
        if record is None:
            raise Refused(f"The group {group} is not known.", ControllerCode.NOT_REGISTERED)
        return record

    async def _decide(self, group: str, command: Command) -> Outcome:
        outcome = await self._metadata.propose(group, command)
        if not outcome.accepted:
            raise Refused(outcome.reason, group=group)
        return outcome

    def _state_answer(self, command: RemotingCommand, group: str) -> RemotingCommand:
        return command.response(body=self._guard.body(group, self._record(group)).encode())

    # -- replicas ---------------------------------------------------------------------------------------------------

    async def _heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, HeartbeatBody)
        self._check_known(body)
        self._guard.heard(body, connection)
        lease = False
        if self._record(body.group).state.view.master == body.replica_id:
            # Only who is leader *now* may promise anything, and only what is decided now.
            await self._metadata.confirm_leadership()
            view = self._record(body.group).state.view
            lease = view.master == body.replica_id and self._guard.may_lease(
                body.group, view, body.leased_epoch
            )
        record = self._record(body.group)
        return command.response(body=self._guard.body(body.group, record, lease=lease).encode())

    def _check_known(self, body: HeartbeatBody) -> None:
        record = self._record(body.group)
        if body.replica_id in record.removed:
            raise Refused(f"Replica {body.replica_id} was removed from {body.group}.")
        known = record.state.stores.get(body.replica_id)
        if known is None:
            raise Refused(
                f"Replica {body.replica_id} is not registered.", ControllerCode.NOT_REGISTERED, body.group
            )
        if known != body.store_id:
            raise Refused(f"Replica {body.replica_id} of {body.group} has another store now.")

    async def _register(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, RegisterBody)
        settings = body.settings
        outcome = await self._decide(
            body.group,
            Register(
                body.replica_id,
                body.store_id,
                body.address,
                body.ha_address,
                body.caps,
                body.unclean,
                body.corrupt,
                settings.min_in_sync,
                settings.ack_replicas,
                settings.preferred_master,
                body.last_epoch,
            ),
        )
        replica = outcome.replica_id
        self._guard.registered(body.group, replica)
        self._tell_of_registration(body, replica)
        return command.response(body=RegisteredBody(replica).encode())

    def _tell_of_registration(self, body: RegisterBody, replica: int) -> None:
        state = self._record(body.group).state
        log.info(
            "REGISTERED group=%s replica=%s address=%s unclean=%s corrupt=%s",
            body.group,
            replica,
            body.address,
            body.unclean,
            body.corrupt,
        )
        if (
            body.unclean
            and state.view.sync_set == {replica}
            and replica in state.electable()
            and state.was_full
        ):
            log.error("POSSIBLE_LOSS group=%s replica=%s reason=last one, and unclean", body.group, replica)

    async def _alter_sync_set(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, AlterSyncSetBody)
        await self._decide(
            body.group, AlterSyncSet(body.master, body.epoch, body.set_version, tuple(sorted(body.members)))
        )
        return self._state_answer(command, body.group)

    async def _resign(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, ResignBody)
        state = self._record(body.group).state
        if (body.master, body.epoch) != (state.view.master, state.view.epoch):
            raise Refused("It is not the master of the present epoch.", group=body.group)
        decision = self._guard.resignation(body.group, body.preferred)
        if decision is None:
            raise Refused("No replica in sync is there to follow it.", group=body.group)
        await self._guard.decide(body.group, decision)
        async with asyncio.timeout(HANDED_OVER_SECONDS):
            while self._record(body.group).state.view.master in (NO_MASTER, body.master):
                await self._guard.next_change(body.group)
        return self._state_answer(command, body.group)

    async def _get_group_state(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        await self._metadata.confirm_leadership()
        group = _read(command, GroupBody).group
        if group:
            return self._state_answer(command, group)
        found = {name: self._guard.body(name, self._record(name)) for name in self._metadata.groups()}
        return command.response(body=msgspec.json.encode(found))

    # -- operators --------------------------------------------------------------------------------------------------

    async def _force_elect(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, ForceElectBody)
        record = self._record(body.group)
        if body.accept_loss != body.group:
            raise Refused("A forced election loses messages; repeat the name of the group to accept that.")
        if not self._guard.may_force(body.group, body.replica_id):
            raise Refused(
                "A replica that has every confirmed byte is there, or the one to force is not.",
                group=body.group,
            )
        if not await self._guard.force(body.group, body.replica_id, record.state.view.epoch):
            raise Refused("The group has changed in between; look again.", group=body.group)
        return self._state_answer(command, body.group)

    async def _remove_replica(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, RemoveReplicaBody)
        await self._decide(body.group, RemoveReplica(body.replica_id))
        self._guard.forgotten(body.group, body.replica_id)
        log.warning("REMOVED group=%s replica=%s", body.group, body.replica_id)
        return self._state_answer(command, body.group)

    async def _set_config(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, SetConfigBody)
        self._record(body.group)
        await self._decide(body.group, SetConfig(body.min_in_sync, body.ack_replicas, body.preferred_master))
        return self._state_answer(command, body.group)

    async def _change_voters(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        body = _read(command, ChangeVotersBody)
        if not isinstance(self._metadata, RaftMetadata):
            raise Refused("The voters of this controller are those of etcd.")
        try:
            added = parse_peers(body.add)
        except ConfigError as error:
            raise Refused(str(error)) from error
        for number, address in added.items():
            await self._metadata.add_voter(number, address)
        if body.remove and not await self._metadata.remove_voter(body.remove):
            raise Refused(f"Voter {body.remove} is none, or another change is under way.")
        return command.response(body=msgspec.json.encode(self._metadata.status()))

    async def _transfer(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Hand the leadership of the controllers over; answered when it has begun."""
        body = _read(command, TransferBody)
        if not isinstance(self._metadata, RaftMetadata) or not self._metadata.transfer(body.to):
            raise Refused(f"Controller {body.to} leads already, or is no voter.")
        return command.response(body=msgspec.json.encode(self._metadata.status()))

    def _ha_status(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """What this controller knows, leader or not."""
        wanted = _read(command, GroupBody).group if command.body else ""
        groups = {}
        for name in self._metadata.groups():
            record = self._metadata.record(name)
            if record is not None and wanted in ("", name):
                groups[name] = {
                    "group": self._guard.body(name, record),
                    "sessions": self._guard.sessions(name),
                }
        status = {"controller": self._metadata.status(), "groups": groups}
        return command.response(body=msgspec.json.encode(status))


def _not_leader(command: RemotingCommand, why: str, leader_address: str) -> RemotingCommand:
    answer = command.response(ControllerCode.NOT_LEADER, why)
    answer.ext_fields = {LEADER_FIELD: leader_address}
    return answer


def _read(command: RemotingCommand, kind: type[Asked]) -> Asked:
    return msgspec.json.decode(command.body, type=kind)
