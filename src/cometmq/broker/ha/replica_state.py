"""What both sides of a replica share: its log, the group as the controller sees it, its epoch, what is confirmed.

``Replica`` (replica.py) is this state with the rules; ``MasterStream`` and ``InSyncSet`` work on it, the one while it
follows, the other while it is master. Sans-IO.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from cometmq.broker.ha.epochs import Epochs
from cometmq.broker.ha.frames import Data, Fence, Frame, Hello, Output, Send
from cometmq.controller.group_state import GroupView


class ReplicaRole(enum.Enum):
    JOINING = enum.auto()  # no stream from a master yet
    FOLLOWER = enum.auto()
    MASTER = enum.auto()
    FAILED = enum.auto()  # would have to cut confirmed bytes; somebody must look


class ReplicaLog(Protocol):
    """Where the bytes are. ``save_epochs`` and ``truncate`` are durable when they return, ``append`` is not."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    @property
    def epochs(self) -> Epochs: ...

    def read(self, offset: int, size_max: int) -> bytes | memoryview: ...

    def append(self, data: bytes | memoryview) -> None: ...

    def truncate(self, offset: int) -> None: ...

    def begin_anew(self, offset: int) -> None:
        """Keep what is there aside and go on with an empty log at this offset."""

    def save_epochs(self, epochs: Epochs) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaTimes:
    """Milliseconds."""

    ping: int = 100
    lease: int = 1_000
    silence: int = 1_500  # a stream that says nothing for this long is gone
    drop: int = 500  # a member without contact leaves the in-sync set
    catch_up: int = 2_000  # a member that did not reach our end for this long leaves it too


class ReplicaState:
    def __init__(
        self,
        me: int,
        log: ReplicaLog,
        *,
        now: float,
        confirm: int,
        acks_are_flushed: bool,
        times: ReplicaTimes,
    ) -> None:
        self.me = me
        self.log = log
        self.role = ReplicaRole.JOINING
        self.view = GroupView()
        self.epoch = log.epochs.last  # of the master we are or follow; never goes back
        self.confirm = min(confirm, log.max_offset)
        self.outputs: list[Output] = []
        self.acks_are_flushed = acks_are_flushed
        self.times = times
        self.now = now  # of the turn that is being taken

    @property
    def epoch_start(self) -> int:
        """Where the newest epoch of the log begins."""
        return self.log.epochs.entries[-1].start if self.log.epochs.entries else 0

    def send(self, to: int, frame: Frame) -> None:
        self.outputs.append(Send(to, frame))

    def fence(self, frame: Hello | Data) -> None:
        """Tell its sender that there is a later epoch than it knows."""
        self.send(frame.sender, Fence(self.me, frame.session, max(self.epoch, self.view.epoch)))
