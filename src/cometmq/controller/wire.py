"""Codes and bodies of the requests between replicas, controllers and operators. Bodies are JSON.

Only 9107, what voters say to each other, is binary: see raft/codec.py.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from cometmq.controller.commands import GroupRecord
from cometmq.controller.group_state import GroupView
from cometmq.controller.replicas import GroupSettings, GroupSnapshot, ReplicaAddress, ReplicaStatus
from cometmq.protocol.command import RemotingCommand

LEADER_FIELD = "leaderAddr"


class ControllerCode(IntEnum):
    HEARTBEAT = 9101
    REGISTER = 9102
    ALTER_SYNC_SET = 9103
    RESIGN = 9104
    GET_GROUP_STATE = 9105
    ROLE_CHANGED = 9106  # pushed to replicas
    RAFT = 9107
    FORCE_ELECT = 9108
    REMOVE_REPLICA = 9109
    HA_STATUS = 9110
    HA_CHECKSUM = 9111  # served by replicas
    CHANGE_VOTERS = 9112
    SET_CONFIG = 9113
    TRANSFER_LEADERSHIP = 9114
    NOT_REGISTERED = 9197  # answer: the replica has to register (again)
    REFUSED = 9198  # answer: a precondition does not hold, nothing changed
    NOT_LEADER = 9199  # answer: ask ``leaderAddr``


class Body(msgspec.Struct, frozen=True, rename="camel"):
    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class HeartbeatBody(Body, frozen=True):
    group: str
    replica_id: int
    store_id: str
    status: ReplicaStatus
    leased_epoch: int = 0  # the last epoch in which it was granted a lease


class RegisterBody(Body, frozen=True):
    group: str
    replica_id: int
    store_id: str
    address: str
    ha_address: str
    caps: tuple[str, ...] = ()
    unclean: bool = False
    corrupt: bool = False
    settings: GroupSettings = GroupSettings()
    last_epoch: int = 0


class AlterSyncSetBody(Body, frozen=True):
    group: str
    master: int
    epoch: int
    set_version: int
    members: tuple[int, ...]


class ResignBody(Body, frozen=True):
    group: str
    master: int
    epoch: int
    preferred: int = 0


class GroupBody(Body, frozen=True):
    """Empty group: every group (GET_GROUP_STATE, HA_STATUS)."""

    group: str = ""


class ForceElectBody(Body, frozen=True):
    group: str
    replica_id: int
    accept_loss: str  # the name of the group once more: somebody has thought about it


class RemoveReplicaBody(Body, frozen=True):
    group: str
    replica_id: int


class SetConfigBody(Body, frozen=True):
    group: str
    min_in_sync: int | None = None
    ack_replicas: int | None = None
    preferred_master: int | None = None


class ChangeVotersBody(Body, frozen=True):
    """``add`` is ``id-host:port`` of a controller that is running and asks to join; ``remove`` an id."""

    add: str = ""
    remove: int = 0


class TransferBody(Body, frozen=True):
    """To which controller the leader hands over."""

    to: int


class RegisteredBody(Body, frozen=True):
    replica_id: int


class SnapshotBody(Body, frozen=True):
    """What a replica gets: the answer to its heartbeat, and the push."""

    group: str
    view: GroupView
    replicas: dict[int, ReplicaAddress]
    leader_address: str
    revision: int
    eligible: frozenset[int] = frozenset()
    preferred_master: int = 0
    reason: str = ""
    lease: bool = False  # granted to the sender of the heartbeat

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            self.view,
            self.replicas,
            self.leader_address,
            self.revision,
            self.eligible,
            self.preferred_master,
            self.reason,
        )


def snapshot_body(
    group: str, record: GroupRecord, leader_address: str, revision: int, *, lease: bool = False
) -> SnapshotBody:
    return SnapshotBody(
        group,
        record.state.view,
        record.addresses,
        leader_address,
        revision,
        record.state.eligible,
        record.preferred_master,
        record.reason,
        lease,
    )


def request(code: ControllerCode, body: Body, *, oneway: bool = False) -> RemotingCommand:
    return RemotingCommand.request(code, body=body.encode(), oneway=oneway)
