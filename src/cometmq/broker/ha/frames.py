"""What replicas of a group say to each other, and what a replica asks its driver to do. Plain data."""

from __future__ import annotations

from typing import NamedTuple

from cometmq.broker.ha.epochs import Epochs


class Hello(NamedTuple):
    sender: int
    session: int
    epoch: int
    epochs: Epochs
    max_offset: int


class Welcome(NamedTuple):
    sender: int
    session: int
    epoch: int
    epochs: Epochs
    max_offset: int
    min_offset: int = 0


class Data(NamedTuple):
    sender: int
    session: int
    epoch: int
    offset: int
    confirm: int
    body: bytes | memoryview  # empty: a ping


class Ack(NamedTuple):
    sender: int
    session: int
    epoch: int
    offset: int
    flushed: int


class Fence(NamedTuple):
    sender: int
    session: int
    epoch: int


Frame = Hello | Welcome | Data | Ack | Fence


class AlterSyncSet(NamedTuple):
    master: int
    epoch: int
    set_version: int
    members: frozenset[int]


class Send(NamedTuple):
    to: int
    frame: Frame


class Close(NamedTuple):
    """Drop the connection of this follower; it has to shake hands again."""

    to: int


Output = Send | Close | AlterSyncSet


class Status(NamedTuple):
    """Where a replica stands, for the controller."""

    epoch: int  # of the view it acts on
    last_epoch: int  # of its log
    max_offset: int
    flushed_offset: int
    confirm_offset: int
    master_silence: int  # since the last frame of the master of that epoch, or since we know of it
    stream_closed: bool
