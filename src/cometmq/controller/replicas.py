"""What replicas tell the controller about themselves, and what it tells them. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cometmq.controller.group_state import GroupView


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a group confirms; the first replica that registers brings them, an operator changes them."""

    min_in_sync: int = 0  # 0: one while there are two replicas or fewer, else two
    ack_replicas: int = 0  # k of the commit rule `quorum`; 0 is the rule `all`
    preferred_master: int = 0


class ReplicaAddress(NamedTuple):
    """Where one replica is reached, and what it can do."""

    address: str = ""
    ha_address: str = ""
    caps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Who a replica is. ``replica_id`` 0: the controller gives it one when it registers."""

    group: str
    replica_id: int
    store_id: str
    address: str  # where clients connect to
    ha_address: str  # where other replicas connect to
    caps: tuple[str, ...] = ("ha2",)
    settings: GroupSettings = field(default_factory=GroupSettings)


class ReplicaStatus(NamedTuple):
    """Where a replica stands; part of each heartbeat."""

    epoch: int = 0  # the highest it knows
    last_epoch: int = 0  # of its log
    max_offset: int = 0
    flushed_offset: int = 0
    confirm_offset: int = 0
    master_silence_ms: int = 0  # since the last frame of the master; 0 when it is the master
    stream_closed: bool = False  # its stream from the master was closed and not opened again


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group as one replica has to see it. ``revision`` grows with every change: an older one is never handed out."""

    view: GroupView
    replicas: dict[int, ReplicaAddress] = field(default_factory=dict)
    leader_address: str = ""
    revision: int = 0
    eligible: frozenset[int] = frozenset()
    preferred_master: int = 0
    reason: str = ""  # why the present master was elected, or why there is none
