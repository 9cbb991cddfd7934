"""One replica of a group that elects its master: epochs, truncation, in-sync set, confirm offset.

Theory of operation. Sans-IO: the driver brings in frames of other replicas, views of the controller, appends and
time, and takes out what is to be sent. Bytes and epochs are kept by a ``ReplicaLog``, whose calls are durable in the
sense of each method when they return. A follower shakes hands with the master that the controller named, cuts its
log where the two part, and then takes only what continues its log, in that epoch and session. A master confirms what
every member of the in-sync set has (by the rule ``quorum``: k of them), in the set it knows and also in the one it has
proposed; members leave and join only through the controller. A lease counts from the moment the heartbeat was *sent*.
It does not protect writes, epochs do; it bounds what only one may grant (``may_grant``).
The rules and the mistakes they close are in ha.md 4 to 8; tests/sim plants the mistakes and finds them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from cometmq.broker.ha.epochs import Epochs
from cometmq.broker.ha.frames import (
    Ack,
    AlterSyncSet,
    Close,
    Data,
    Fence,
    Frame,
    Hello,
    Output,
    Send,
    Status,
    Welcome,
)
from cometmq.controller.group_state import NO_MASTER, GroupView

__all__ = [
    "Ack",
    "AlterSyncSet",
    "Close",
    "Data",
    "Fence",
    "Frame",
    "Hello",
    "Output",
    "Replica",
    "ReplicaLog",
    "ReplicaRole",
    "ReplicaTimes",
    "Send",
    "Standing",
    "Status",
    "Stream",
    "Welcome",
]

CLOCK_MARGIN = 1.25  # two clocks that go wrong by 10 % in opposite directions
DATA_SIZE_MAX = 1 << 20
WINDOW_SIZE_MAX = 8 << 20  # bytes on their way to one follower


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


class Standing(enum.Enum):
    """What a master may do now (ha.md 4)."""

    PROMOTING = enum.auto()  # confirms nothing of its own yet
    SERVING = enum.auto()
    NOLEASE = enum.auto()  # confirms, but grants nothing
    FENCED = enum.auto()  # appends nothing


class Stream:
    """The master's view of one follower, since its handshake in this epoch."""

    __slots__ = (
        "acked",
        "caught_up_at",
        "flushed",
        "heard_at",
        "next_offset",
        "sent_at",
        "session",
        "target",
        "version",
    )

    def __init__(self, session: int, version: int, now: float) -> None:
        self.session = session
        self.version = version  # of the in-sync set when hands were shaken
        self.acked = -1  # nothing before the first acknowledgement
        self.flushed = -1
        self.next_offset = -1
        self.heard_at = self.sent_at = self.caught_up_at = now
        self.target = 0  # our end when it was last looked at; reaching it counts as caught up


class Replica:
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
        self.me = me
        self.log = log
        self.role = ReplicaRole.JOINING
        self.view = GroupView()
        self.epoch = log.epochs.last  # of the master we are or follow; never goes back
        self.confirm = min(confirm, log.max_offset)
        self.lease_until = float("-inf")
        self.streams: dict[int, Stream] = {}
        self.proposed: AlterSyncSet | None = None
        self.outputs: list[Output] = []
        self.resigning = False
        self._fenced = False  # somebody knows a later epoch than ours
        self._acks_are_flushed = acks_are_flushed
        self._times = times or ReplicaTimes()
        self._now = now
        self._session = first_session  # of our own stream as a follower
        self._shaken = False
        self._stream_closed = False
        self._sessions: dict[int, int] = {}  # follower -> its latest session in our epoch
        self._master_epochs = Epochs()
        self._heard_master_at = self._hello_at = self._promoted_at = now

    # -- what the driver calls ------------------------------------------------------------------------------------

    def take(self) -> list[Output]:
        outputs, self.outputs = self.outputs, []
        return outputs

    def tick(self, now: float) -> None:
        self._now = now
        if self.role is ReplicaRole.FAILED:
            return
        if self.role is ReplicaRole.MASTER:
            self._tick_master()
        elif self.view.master not in (NO_MASTER, self.me):
            self._tick_follower()

    def on_view(self, view: GroupView, sent: float | None, now: float) -> None:
        """The controller says how things are; ``sent`` when it answers our heartbeat of that time."""
        self._now = now
        if self.role is ReplicaRole.FAILED or (view.epoch, view.set_version) < (
            self.view.epoch,
            self.view.set_version,
        ):
            return
        changed = (view.master, view.epoch) != (self.view.master, self.view.epoch)
        self.view = view
        if self.proposed is not None and view.set_version > self.proposed.set_version:
            self.proposed = None  # applied, or it never will be
        if view.master == self.me and view.epoch > self.epoch:
            self._promote(view.epoch)
        elif view.master != self.me and (changed or self.role is ReplicaRole.MASTER):
            self._begin_following()
        if self.role is ReplicaRole.MASTER and view.epoch == self.epoch:
            if sent is not None:
                self.lease_until = max(self.lease_until, self._lease_start(sent) + self._times.lease)
            self._close_doubtful_streams()
            self._advance_confirm()

    def append(self, data: bytes, now: float) -> int | None:
        """Write as master; the end offset to wait for, None if it must not be written here now."""
        self._now = now
        if not self.may_append(now):
            return None
        self.log.append(data)
        self.grown(now)
        return self.log.max_offset

    def grown(self, now: float) -> None:
        """The driver has written to the log, after ``may_append``: send it on."""
        self._now = now
        if self.role is ReplicaRole.MASTER:
            for follower, stream in self.streams.items():
                self._pump(follower, stream)
            self._advance_confirm()

    def may_append(self, now: float) -> bool:
        return self.standing(now) not in (None, Standing.FENCED) and not self.resigning

    def has_lease(self, now: float) -> bool:
        """Nobody else was elected when this lease began; enough to answer at level `leader`."""
        return self.role is ReplicaRole.MASTER and now < self.lease_until and not self.resigning

    def may_grant(self, now: float) -> bool:
        """Locks and changes by administrators: not while the master before us may still believe in its lease."""
        return self.has_lease(now) and now - self._promoted_at >= self._times.lease * CLOCK_MARGIN

    def standing(self, now: float) -> Standing | None:
        """None if this is no master."""
        if self.role is not ReplicaRole.MASTER:
            return None
        enough = len(self.view.sync_set) >= self.view.min_in_sync and self.view.epoch == self.epoch
        if self._fenced or not enough or not (self.has_lease(now) or self._enough_streams_live(now)):
            return Standing.FENCED
        if self.confirm < self.epoch_start:
            return Standing.PROMOTING
        return Standing.SERVING if self.has_lease(now) else Standing.NOLEASE

    def status(self, now: float) -> Status:
        follows = self.role is not ReplicaRole.MASTER and self.view.master not in (NO_MASTER, self.me)
        return Status(
            self.view.epoch,
            self.log.epochs.last,
            self.log.max_offset,
            self.log.flushed_offset,
            self.confirm,
            int(now - self._heard_master_at) if follows else 0,
            follows and self._stream_closed,
        )

    def resign(self) -> None:
        """Append nothing and grant nothing from now on; ask to be replaced once ``drained``."""
        self.resigning = self.role is ReplicaRole.MASTER

    def stay(self) -> None:
        """Nobody could replace us."""
        self.resigning = False

    @property
    def drained(self) -> bool:
        return self.confirm == self.log.max_offset

    def stream_lost(self, peer: int, now: float) -> None:
        """The connection to this replica was closed, or could not be opened."""
        self._now = now
        if self.role is ReplicaRole.MASTER:
            self.streams.pop(peer, None)
        elif peer == self.view.master:
            self._shaken = False
            self._stream_closed = True

    @property
    def confirm_to_keep(self) -> int:
        """What a file may say is confirmed: after a loss of power a log that ends before it is called corrupt."""
        return min(self.confirm, self.log.flushed_offset)

    @property
    def session(self) -> int:
        """Of our latest greeting."""
        return self._session

    @property
    def epoch_start(self) -> int:
        """Where the newest epoch of the log begins."""
        return self.log.epochs.entries[-1].start if self.log.epochs.entries else 0

    def flushed(self, now: float) -> None:
        """More of the log is on disk."""
        self._now = now
        if self.role is ReplicaRole.MASTER:
            self._advance_confirm()
        elif self._shaken and self._acks_are_flushed:
            self._ack()

    def receive(self, frame: Frame, now: float) -> None:
        self._now = now
        if self.role is ReplicaRole.FAILED:
            return
        if isinstance(frame, Hello):
            self._on_hello(frame)
        elif isinstance(frame, Welcome):
            self._on_welcome(frame)
        elif isinstance(frame, Data):
            self._on_data(frame)
        elif isinstance(frame, Ack):
            self._on_ack(frame)
        elif frame.epoch > self.epoch:
            self._shaken = False  # somebody knows a later master; the controller will tell us
            self._fenced = True

    # -- roles ----------------------------------------------------------------------------------------------------

    def _lease_start(self, sent: float) -> float:
        return sent

    def _promote(self, epoch: int) -> None:
        self.log.save_epochs(self.log.epochs.with_epoch(epoch, self.log.max_offset))
        self.epoch = epoch
        self.role = ReplicaRole.MASTER
        self._forget_streams()
        self.lease_until = float("-inf")
        self._promoted_at = self._now

    def _begin_following(self) -> None:
        self.role = ReplicaRole.JOINING
        self._forget_streams()
        self._heard_master_at = self._now
        if self.view.master != NO_MASTER:
            self._say_hello()

    def _forget_streams(self) -> None:
        self.streams = {}
        self._sessions = {}
        self.proposed = None
        self.resigning = self._fenced = self._shaken = self._stream_closed = False

    # -- follower -------------------------------------------------------------------------------------------------

    def _tick_follower(self) -> None:
        if self._now - self._heard_master_at > self._times.silence:
            self._shaken = False
        if not self._shaken and self._now >= self._hello_at:
            self._say_hello()

    def _say_hello(self) -> None:
        self._session += 1
        self._shaken = False
        self._hello_at = self._now + self._times.ping
        self._send(
            self.view.master,
            Hello(self.me, self._session, self.view.epoch, self.log.epochs, self.log.max_offset),
        )

    def _on_welcome(self, welcome: Welcome) -> None:
        if self.role is ReplicaRole.MASTER or self._shaken or welcome.session != self._session:
            return
        if not self._epoch_is_current(welcome.epoch):
            return
        point = self.log.epochs.consistent_point(self.log.max_offset, welcome.epochs, welcome.max_offset)
        if not self._may_cut_to(point or 0):
            self.role = ReplicaRole.FAILED
            return
        if point is None or point < welcome.min_offset:
            point = welcome.min_offset  # nothing in common, or its begin is gone there: begin again
            if point or self.log.max_offset:
                self.log.begin_anew(point)
            self.confirm = min(self.confirm, point)
        elif point < self.log.max_offset:
            self.log.truncate(point)
            self.confirm = min(self.confirm, point)
        self._master_epochs = welcome.epochs
        self.log.save_epochs(welcome.epochs.up_to(point))
        self.epoch = max(self.epoch, welcome.epoch)
        self._shaken = True
        self._stream_closed = False
        self.role = ReplicaRole.FOLLOWER
        self._heard_master_at = self._now
        self._ack()

    def _may_cut_to(self, point: int) -> bool:
        """Confirmed bytes go only where an operator has accepted it, after our last epoch."""
        return point >= self.confirm or self.view.forced_epoch > self.log.epochs.last

    def _epoch_is_current(self, epoch: int) -> bool:
        """Frames of a master that was replaced are not taken, whatever they say."""
        return epoch >= self.epoch and epoch >= self.view.epoch

    def _on_data(self, data: Data) -> None:
        if not self._epoch_is_current(data.epoch):
            self._fence(data)
            return
        if self.role is not ReplicaRole.FOLLOWER or not self._shaken or data.session != self._session:
            return
        if data.epoch != self.epoch:
            return
        self._heard_master_at = self._now
        if data.offset != self.log.max_offset:
            if data.offset > self.log.max_offset:
                self._say_hello()  # something is missing in between
            return
        if data.body:
            known = self._master_epochs.up_to(data.offset)
            if known != self.log.epochs:
                self.log.save_epochs(known)  # before its first byte
            self.log.append(data.body)
            self._know_epochs_at_end()
        self.confirm = max(self.confirm, min(data.confirm, self.log.max_offset))
        self._ack()

    def _fence(self, frame: Hello | Data) -> None:
        self._send(frame.sender, Fence(self.me, frame.session, max(self.epoch, self.view.epoch)))

    def _know_epochs_at_end(self) -> None:
        """A log that has reached the begin of an epoch knows it: only then may it count for that epoch."""
        known = self._master_epochs.up_to(self.log.max_offset)
        if known != self.log.epochs:
            self.log.save_epochs(known)

    def _ack(self) -> None:
        self._send(
            self.view.master,
            Ack(self.me, self._session, self.epoch, self.log.max_offset, self.log.flushed_offset),
        )

    # -- master ---------------------------------------------------------------------------------------------------

    def _on_hello(self, hello: Hello) -> None:
        if self.role is not ReplicaRole.MASTER:
            if hello.epoch < self.epoch:
                self._fence(hello)
            return
        if hello.epoch > self.epoch:
            return  # we were replaced and will hear of it
        if hello.session <= self._sessions.get(hello.sender, -1):
            return  # an old one that was on its way
        self._sessions[hello.sender] = hello.session
        self.streams[hello.sender] = Stream(hello.session, self.view.set_version, self._now)
        self._send(
            hello.sender,
            Welcome(
                self.me,
                hello.session,
                self.epoch,
                self.log.epochs,
                self.log.max_offset,
                self.log.min_offset,
            ),
        )

    def _on_ack(self, ack: Ack) -> None:
        stream = self.streams.get(ack.sender)
        if self.role is not ReplicaRole.MASTER or stream is None or not self._ack_counts(ack, stream):
            return
        if ack.offset > self.log.max_offset:
            del self.streams[ack.sender]  # cannot be true
            return
        stream.heard_at = self._now
        stream.acked = max(stream.acked, ack.offset)
        stream.flushed = max(stream.flushed, ack.flushed)
        stream.next_offset = max(stream.next_offset, ack.offset)
        if stream.acked >= stream.target:
            stream.caught_up_at = self._now
            stream.target = self.log.max_offset
        self._advance_confirm()
        self._pump(ack.sender, stream)

    def _ack_counts(self, ack: Ack, stream: Stream) -> bool:
        return ack.epoch == self.epoch and ack.session == stream.session

    def _pump(self, follower: int, stream: Stream) -> None:
        """Send what is there; a frame holds bytes of one epoch."""
        while (
            0 <= stream.next_offset < self.log.max_offset
            and stream.next_offset - stream.acked < WINDOW_SIZE_MAX
        ):
            size = DATA_SIZE_MAX
            border = self.log.epochs.next_start(stream.next_offset)
            if border is not None:
                size = min(size, border - stream.next_offset)
            body = self.log.read(stream.next_offset, size)
            if not body:
                return
            self._send_data(follower, stream, body)
            stream.next_offset += len(body)

    def _send_data(self, follower: int, stream: Stream, body: bytes | memoryview) -> None:
        stream.sent_at = self._now
        self._send(
            follower, Data(self.me, stream.session, self.epoch, stream.next_offset, self.confirm, body)
        )

    def _tick_master(self) -> None:
        for follower, stream in self.streams.items():
            if stream.acked >= 0 and self._now - stream.sent_at >= self._times.ping:
                self._send_data(follower, stream, b"")
        if self.proposed is not None:
            self.outputs.append(self.proposed)  # its answer may have been lost
        elif self.view.epoch == self.epoch:
            self._propose_sync_set()

    def _close_doubtful_streams(self) -> None:
        """What a replica acknowledged before it lost power counts for nothing: it has to shake hands again."""
        for member in self.view.unclean & self.streams.keys():
            if self.streams[member].version < self.view.set_version:
                del self.streams[member]
                self.outputs.append(Close(member))

    def _propose_sync_set(self) -> None:
        known = self.view.sync_set
        wanted = frozenset(
            {self.me}
            | {member for member in known if self._stays(member)}
            | {follower for follower in self.streams if self._may_join(follower)}
        )
        vouches = wanted & self.view.unclean  # whoever is proposed is said to have caught up
        if (wanted != known or vouches) and self._is_safe_set(wanted, vouches):
            self.proposed = AlterSyncSet(self.me, self.epoch, self.view.set_version, wanted)
            self.outputs.append(self.proposed)

    def _is_safe_set(self, wanted: frozenset[int], vouches: frozenset[int]) -> bool:
        """By `quorum` what is confirmed must be confirmed in the new set too before it counts."""
        if not all(self._may_join(member) for member in vouches):
            return False
        quorum = self.view.ack_replicas
        if not quorum:
            return True
        grows = wanted >= self.view.sync_set
        # A new master does not know how much was confirmed before it: perhaps all that it began with.
        settled = max(self.confirm, self.epoch_start)
        return (len(wanted) >= quorum or grows) and self._acknowledged_in(wanted) >= settled

    def _may_join(self, follower: int) -> bool:
        stream = self.streams.get(follower)
        if stream is None or not self._is_live(stream, self._times.drop):
            return False
        return self._acknowledged(follower) >= max(self.confirm, self.epoch_start)

    def _stays(self, member: int) -> bool:
        stream = self.streams.get(member)
        if stream is None:
            return self._now - self._promoted_at < self._times.drop  # it may not have found us yet
        heard = (
            self._now - stream.heard_at < self._times.drop
        )  # one that has just shaken hands has not acknowledged
        return heard and self._now - stream.caught_up_at < self._times.catch_up

    def _is_live(self, stream: Stream, limit: float) -> bool:
        return stream.acked >= 0 and self._now - stream.heard_at < limit

    def _enough_streams_live(self, now: float) -> bool:
        """Without a lease: as long as those answer whom it takes to confirm anything."""
        others = self.view.sync_set - {self.me}
        live = [
            m for m in others if m in self.streams and now - self.streams[m].heard_at < self._times.silence
        ]
        return len(live) >= (self.view.ack_replicas - 1 if self.view.ack_replicas else len(others))

    def _counted_sets(self) -> list[frozenset[int]]:
        """In which sets a byte must be confirmed: the proposed one may be in force without our knowing."""
        known = self.view.sync_set
        return [known, self.proposed.members] if self.proposed is not None else [known]

    def _acknowledged(self, member: int) -> int:
        if member == self.me:
            return self.log.flushed_offset if self._acks_are_flushed else self.log.max_offset
        stream = self.streams.get(member)
        if stream is None:
            return -1
        return min(stream.acked, stream.flushed) if self._acks_are_flushed else stream.acked

    def _acknowledged_in(self, members: frozenset[int]) -> int:
        """What as many members of this set have as it takes."""
        acknowledged = sorted((self._acknowledged(member) for member in members), reverse=True)
        quorum = self.view.ack_replicas or len(acknowledged)
        return acknowledged[min(quorum, len(acknowledged)) - 1] if acknowledged else -1

    def _advance_confirm(self) -> None:
        if self.view.epoch != self.epoch or len(self.view.sync_set) < self.view.min_in_sync:
            return
        confirmed = min(self._acknowledged_in(members) for members in self._counted_sets())
        if self.view.ack_replicas and confirmed < self.epoch_start:
            return  # bytes of earlier masters count only together with one of ours (the epoch record)
        self.confirm = max(self.confirm, confirmed)

    def _send(self, to: int, frame: Frame) -> None:
        self.outputs.append(Send(to, frame))
