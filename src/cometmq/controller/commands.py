"""The commands of the metadata log, how they are written, and how each changes the state of its group.

Pure and deterministic: every controller applies the same commands in the same order, or runs them in a transaction
on the group's key (etcd). A command whose preconditions do not hold changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from cometmq.controller.group_state import GroupState
from cometmq.controller.replicas import ReplicaAddress

THREE_REPLICAS = 3  # from here on two of them must have a byte before it is confirmed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command. Refused means: a precondition did not hold, nothing changed."""

    accepted: bool
    reason: str = ""  # why not
    replica_id: int = 0  # of a registration


@dataclass(slots=True)
class GroupRecord:
    """One group as it is kept: the state that the rules are about, and what replicas and operators want to know."""

    state: GroupState = field(default_factory=GroupState)
    addresses: dict[int, ReplicaAddress] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)  # ids that are never given again
    preferred_master: int = 0
    min_in_sync: int = 0  # as it was asked for; 0: by the number of replicas
    reason: str = ""  # why the present master was elected, or why there is none


class Register(msgspec.Struct, frozen=True, tag="register"):
    """A replica has started. Id 0: give it one."""

    replica_id: int
    store_id: str
    address: str
    ha_address: str
    caps: tuple[str, ...] = ()
    unclean: bool = False
    corrupt: bool = False
    min_in_sync: int = 0  # 0: by the number of replicas; counts for a new group only, as the next two
    ack_replicas: int = 0
    preferred_master: int = 0
    last_epoch: int = 0  # of its log


class AlterSyncSet(msgspec.Struct, frozen=True, tag="alterSyncSet"):
    master: int
    epoch: int
    set_version: int
    members: tuple[int, ...]


class Elect(msgspec.Struct, frozen=True, tag="elect"):
    """``dead`` leave the in-sync set; a planned switch has none."""

    new_master: int
    old_epoch: int
    reason: str
    dead: tuple[int, ...] = ()


class Depose(msgspec.Struct, frozen=True, tag="depose"):
    """The master is gone and nobody can follow it yet."""

    master: int
    epoch: int
    reason: str


class ForceElect(msgspec.Struct, frozen=True, tag="forceElect"):
    replica_id: int
    old_epoch: int


class RemoveReplica(msgspec.Struct, frozen=True, tag="removeReplica"):
    replica_id: int


class SetConfig(msgspec.Struct, frozen=True, tag="setConfig"):
    """None: as it is."""

    min_in_sync: int | None = None
    ack_replicas: int | None = None  # 0 is the commit rule `all`
    preferred_master: int | None = None


Command = Register | AlterSyncSet | Elect | Depose | ForceElect | RemoveReplica | SetConfig

_COMMANDS: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_RECORDS = msgspec.json.Decoder(GroupRecord)


def encode_command(command: Command) -> bytes:
    return msgspec.json.encode(command)


def decode_command(data: bytes) -> Command:
    return _COMMANDS.decode(data)


def encode_record(record: GroupRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> GroupRecord:
    return _RECORDS.decode(data)


def apply(record: GroupRecord, command: Command) -> Outcome:
    """Change ``record`` as the command says, or leave it as it is and say why."""
    state = record.state
    if isinstance(command, Register):
        return _register(record, command)
    if isinstance(command, AlterSyncSet):
        done = state.alter_sync_set(command.master, command.epoch, command.set_version, command.members)
        return _outcome(done, "master, epoch or version of the set are not the present ones")
    if isinstance(command, Elect):
        done = state.elect(command.new_master, command.old_epoch, command.dead)
        return _explained(
            record, done, command.reason, "the epoch is over, or the replica may not be elected"
        )
    if isinstance(command, Depose):
        done = state.depose(command.master, command.epoch)
        return _explained(record, done, command.reason, "it is not the master of the present epoch")
    if isinstance(command, ForceElect):
        done = command.old_epoch == state.view.epoch and state.force_elect(command.replica_id)
        return _explained(record, done, "forced", "the epoch is over, or the replica is not registered")
    if isinstance(command, RemoveReplica):
        return _remove(record, command.replica_id)
    return _set_config(record, command)


def _outcome(done: bool, why_not: str) -> Outcome:
    return Outcome(True) if done else Outcome(False, why_not)


def _explained(record: GroupRecord, done: bool, why: str, why_not: str) -> Outcome:
    if done:
        record.reason = why
    return _outcome(done, why_not)


def _register(record: GroupRecord, command: Register) -> Outcome:
    state = record.state
    replica = command.replica_id or _id_of_store(state, command.store_id) or _next_id(record)
    if replica in record.removed:
        return Outcome(False, f"replica {replica} was removed from this group; an id is never used again")
    is_first = not state.stores
    if is_first:
        record.min_in_sync, record.preferred_master = command.min_in_sync, command.preferred_master
        state.configure(command.min_in_sync or 1, command.ack_replicas)
    state.register(replica, command.store_id, unclean=command.unclean, corrupt=command.corrupt)
    if is_first and command.last_epoch > state.view.epoch:
        # Logs that are older than this group (its controllers are new): epochs never go back.
        state.view = state.view._replace(epoch=command.last_epoch)
    record.addresses[replica] = ReplicaAddress(command.address, command.ha_address, command.caps)
    _follow_size(record)
    return Outcome(True, replica_id=replica)


def _id_of_store(state: GroupState, store: str) -> int:
    return next((replica for replica, known in state.stores.items() if known == store), 0)


def _next_id(record: GroupRecord) -> int:
    return max((*record.state.stores, *record.removed), default=0) + 1


def _follow_size(record: GroupRecord) -> None:
    """Nobody asked for a number: one copy is enough for two replicas, not for three."""
    state = record.state
    wanted = 2 if len(state.stores) >= THREE_REPLICAS else 1
    if not record.min_in_sync and not state.is_quorum and state.view.min_in_sync != wanted:
        state.configure(wanted)


def can_shrink(state: GroupState) -> bool:
    """Would there be enough replicas left for anything to be confirmed?"""
    return len(state.stores) > state.min_in_sync


def _remove(record: GroupRecord, replica: int) -> Outcome:
    if not can_shrink(record.state) or not record.state.remove(replica):
        return Outcome(False, _why_not_removed(record.state, replica))
    record.addresses.pop(replica, None)
    record.removed.add(replica)
    _follow_size(record)
    return Outcome(True)


def _why_not_removed(state: GroupState, replica: int) -> str:
    if replica not in state.stores:
        return f"There is no replica {replica}; there are {', '.join(map(str, sorted(state.stores)))}."
    if replica == state.view.master:
        return f"Replica {replica} is the master; switch to another one first."
    if not can_shrink(state):
        return f"Fewer replicas than minInSyncReplicas={state.min_in_sync} would be left; lower it or add one first."
    if state.is_quorum and replica in state.view.sync_set:
        return f"Replica {replica} is in sync and counts for the quorum; stop it and wait until it has left the set."
    return f"Without replica {replica} fewer than {state.min_in_sync} would have every confirmed message."


def _set_config(record: GroupRecord, command: SetConfig) -> Outcome:
    view = record.state.view
    wanted = record.min_in_sync if command.min_in_sync is None else command.min_in_sync
    acks = view.ack_replicas if command.ack_replicas is None else command.ack_replicas
    if (command.min_in_sync, command.ack_replicas) != (None, None):
        if not record.state.configure(wanted or 1, acks):
            return Outcome(
                False, "the commit rule cannot become this while the group has confirmed by another"
            )
        record.min_in_sync = wanted
        _follow_size(record)
    if command.preferred_master is not None:
        record.preferred_master = command.preferred_master
    return Outcome(True)
