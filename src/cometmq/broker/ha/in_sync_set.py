"""InSyncSet: how far the followers of a master have come, who of them is in sync, and what is confirmed thereby.

A master confirms what every member of the in-sync set has (by the rule ``quorum``: k of them), in the set it knows
and also in the one it has proposed; members leave and join only through the controller. Sans-IO.
"""

from __future__ import annotations

from cometmq.broker.ha.frames import Ack, AlterSyncSet, Close, Data, Hello, Welcome
from cometmq.broker.ha.replica_state import ReplicaState

DATA_SIZE_MAX = 1 << 20
WINDOW_SIZE_MAX = 8 << 20  # bytes on their way to one follower


class FollowerStream:
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


class InSyncSet:
    def __init__(self, replica: ReplicaState) -> None:
        self.streams: dict[int, FollowerStream] = {}
        self.proposed: AlterSyncSet | None = None
        self.led_since = replica.now
        self._replica = replica
        self._sessions: dict[int, int] = {}  # follower -> its latest session in our epoch

    def forget(self) -> None:
        """Another epoch begins, in whatever role."""
        self.streams = {}
        self._sessions = {}
        self.proposed = None

    def tick(self) -> None:
        replica = self._replica
        for follower, stream in self.streams.items():
            if stream.acked >= 0 and replica.now - stream.sent_at >= replica.times.ping:
                self._send_data(follower, stream, b"")
        if self.proposed is not None:
            replica.outputs.append(self.proposed)  # its answer may have been lost
        elif replica.view.epoch == replica.epoch:
            self._propose()

    # -- streams --------------------------------------------------------------------------------------------------

    def on_hello(self, hello: Hello) -> None:
        replica, log = self._replica, self._replica.log
        if hello.epoch > replica.epoch:
            return  # we were replaced and will hear of it
        if hello.session <= self._sessions.get(hello.sender, -1):
            return  # an old one that was on its way
        self._sessions[hello.sender] = hello.session
        stream = FollowerStream(hello.session, replica.view.set_version, replica.now)
        if (before := self.streams.get(hello.sender)) is not None:
            # Shaking hands again and again is no progress: a full disk lets a follower do nothing else.
            stream.caught_up_at, stream.target = before.caught_up_at, before.target
        self.streams[hello.sender] = stream
        replica.send(
            hello.sender,
            Welcome(replica.me, hello.session, replica.epoch, log.epochs, log.max_offset, log.min_offset),
        )

    def on_ack(self, ack: Ack) -> None:
        stream = self.streams.get(ack.sender)
        if stream is None or not self._ack_counts(ack, stream):
            return
        log_end, now = self._replica.log.max_offset, self._replica.now
        if ack.offset > log_end:
            del self.streams[ack.sender]  # cannot be true
            return
        stream.heard_at = now
        stream.acked = max(stream.acked, ack.offset)
        stream.flushed = max(stream.flushed, ack.flushed)
        stream.next_offset = max(stream.next_offset, ack.offset)
        if stream.acked >= stream.target:
            stream.caught_up_at = now
            stream.target = log_end
        self.advance_confirm()
        self._pump(ack.sender, stream)

    def _ack_counts(self, ack: Ack, stream: FollowerStream) -> bool:
        return ack.epoch == self._replica.epoch and ack.session == stream.session

    def pump(self) -> None:
        """Send on what the log has grown by."""
        for follower, stream in self.streams.items():
            self._pump(follower, stream)

    def _pump(self, follower: int, stream: FollowerStream) -> None:
        """Send what is there; a frame holds bytes of one epoch."""
        log = self._replica.log
        while (
            0 <= stream.next_offset < log.max_offset and stream.next_offset - stream.acked < WINDOW_SIZE_MAX
        ):
            size = DATA_SIZE_MAX
            border = log.epochs.next_start(stream.next_offset)
            if border is not None:
                size = min(size, border - stream.next_offset)
            body = log.read(stream.next_offset, size)
            if not body:
                return
            self._send_data(follower, stream, body)
            stream.next_offset += len(body)

    def _send_data(self, follower: int, stream: FollowerStream, body: bytes | memoryview) -> None:
        replica = self._replica
        stream.sent_at = replica.now
        replica.send(
            follower,
            Data(replica.me, stream.session, replica.epoch, stream.next_offset, replica.confirm, body),
        )

    def close_doubtful_streams(self) -> None:
        """What a replica acknowledged before it lost power counts for nothing: it has to shake hands again."""
        view = self._replica.view
        for member in view.unclean & self.streams.keys():
            if self.streams[member].version < view.set_version:
                del self.streams[member]
                self._replica.outputs.append(Close(member))

    def enough_live(self, now: float) -> bool:
        """Without a lease: as long as those answer whom it takes to confirm anything."""
        view, silence = self._replica.view, self._replica.times.silence
        others = view.sync_set - {self._replica.me}
        live = [m for m in others if m in self.streams and now - self.streams[m].heard_at < silence]
        return len(live) >= (view.ack_replicas - 1 if view.ack_replicas else len(others))

    # -- the set --------------------------------------------------------------------------------------------------

    def _propose(self) -> None:
        replica, known = self._replica, self._replica.view.sync_set
        wanted = frozenset(
            {replica.me}
            | {member for member in known if self._stays(member)}
            | {follower for follower in self.streams if self._may_join(follower)}
        )
        vouches = wanted & replica.view.unclean  # whoever is proposed is said to have caught up
        if (wanted != known or vouches) and self._is_safe(wanted, vouches):
            self.proposed = AlterSyncSet(replica.me, replica.epoch, replica.view.set_version, wanted)
            replica.outputs.append(self.proposed)

    def settle_proposal(self) -> None:
        """A view has come."""
        if self.proposed is not None and self._replica.view.set_version > self.proposed.set_version:
            self.proposed = None  # applied, or it never will be

    def _is_safe(self, wanted: frozenset[int], vouches: frozenset[int]) -> bool:
        """By `quorum` what is confirmed must be confirmed in the new set too before it counts."""
        if not all(self._may_join(member) for member in vouches):
            return False
        view = self._replica.view
        quorum = view.ack_replicas
        if not quorum:
            return True
        grows = wanted >= view.sync_set
        return (len(wanted) >= quorum or grows) and self._acknowledged_in(wanted) >= self._settled

    @property
    def _settled(self) -> int:
        """A new master does not know how much was confirmed before it: perhaps all that it began with."""
        return max(self._replica.confirm, self._replica.epoch_start)

    def _may_join(self, follower: int) -> bool:
        stream = self.streams.get(follower)
        if stream is None or not self._is_live(stream) or not self._keeps_up(stream):
            return False
        return self._acknowledged(follower) >= self._settled

    def _stays(self, member: int) -> bool:
        now, times = self._replica.now, self._replica.times
        stream = self.streams.get(member)
        if stream is None:
            return now - self.led_since < times.drop  # it may not have found us yet
        # One that has just shaken hands has not acknowledged.
        return now - stream.heard_at < times.drop and self._keeps_up(stream)

    def _keeps_up(self, stream: FollowerStream) -> bool:
        return self._replica.now - stream.caught_up_at < self._replica.times.catch_up

    def _is_live(self, stream: FollowerStream) -> bool:
        return stream.acked >= 0 and self._replica.now - stream.heard_at < self._replica.times.drop

    # -- what is confirmed ----------------------------------------------------------------------------------------

    def advance_confirm(self) -> None:
        replica, view = self._replica, self._replica.view
        if view.epoch != replica.epoch or len(view.sync_set) < view.min_in_sync:
            return
        confirmed = min(self._acknowledged_in(members) for members in self._counted_sets())
        if view.ack_replicas and confirmed < replica.epoch_start:
            return  # bytes of earlier masters count only together with one of ours (the epoch record)
        replica.confirm = max(replica.confirm, confirmed)

    def _counted_sets(self) -> list[frozenset[int]]:
        """In which sets a byte must be confirmed: the proposed one may be in force without our knowing."""
        known = self._replica.view.sync_set
        return [known, self.proposed.members] if self.proposed is not None else [known]

    def _acknowledged_in(self, members: frozenset[int]) -> int:
        """What as many members of this set have as it takes."""
        acknowledged = sorted((self._acknowledged(member) for member in members), reverse=True)
        quorum = self._replica.view.ack_replicas or len(acknowledged)
        return acknowledged[min(quorum, len(acknowledged)) - 1] if acknowledged else -1

    def _acknowledged(self, member: int) -> int:
        replica = self._replica
        if member == replica.me:
            return replica.log.flushed_offset if replica.acks_are_flushed else replica.log.max_offset
        stream = self.streams.get(member)
        if stream is None:
            return -1
        return min(stream.acked, stream.flushed) if replica.acks_are_flushed else stream.acked
