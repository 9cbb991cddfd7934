"""MasterStream: how a replica follows its master: handshake, cut where the logs part, data, acknowledgements.

Sans-IO.
"""

from __future__ import annotations

from cometmq.broker.ha.epochs import Epochs
from cometmq.broker.ha.frames import Ack, Data, Hello, Welcome
from cometmq.broker.ha.replica_state import ReplicaRole, ReplicaState


class MasterStream:
    def __init__(self, replica: ReplicaState, first_session: int) -> None:
        self.session = first_session  # of our latest greeting
        self.heard_at = replica.now  # or when we heard of the master
        self.closed = False  # its connection, since hands were last shaken
        self._replica = replica
        self._shaken = False
        self._hello_at = replica.now
        self._master_epochs = Epochs()

    def tick(self) -> None:
        if self._replica.now - self.heard_at > self._replica.times.silence:
            self._shaken = False
        if not self._shaken and self._replica.now >= self._hello_at:
            self.say_hello()

    def say_hello(self) -> None:
        replica = self._replica
        self.session += 1
        self._shaken = False
        self._hello_at = replica.now + replica.times.ping
        replica.send(
            replica.view.master,
            Hello(replica.me, self.session, replica.view.epoch, replica.log.epochs, replica.log.max_offset),
        )

    def forget(self) -> None:
        """Of an earlier master, or before we became it."""
        self._shaken = self.closed = False

    def doubt(self) -> None:
        """Nothing more is taken before hands are shaken again."""
        self._shaken = False

    def lost(self) -> None:
        """The connection was closed, or could not be opened."""
        self._shaken = False
        self.closed = True

    def on_welcome(self, welcome: Welcome) -> None:
        replica, log = self._replica, self._replica.log
        if replica.role is ReplicaRole.MASTER or self._shaken or welcome.session != self.session:
            return
        if not self._epoch_is_current(welcome.epoch):
            return
        point = log.epochs.consistent_point(log.max_offset, welcome.epochs, welcome.max_offset)
        if not self._may_cut_to(point or 0):
            replica.role = ReplicaRole.FAILED
            return
        if point is None or point < welcome.min_offset:
            point = welcome.min_offset  # nothing in common, or its begin is gone there: begin again
            if point or log.max_offset:
                log.begin_anew(point)
            replica.confirm = min(replica.confirm, point)
        elif point < log.max_offset:
            log.truncate(point)
            replica.confirm = min(replica.confirm, point)
        self._master_epochs = welcome.epochs
        log.save_epochs(welcome.epochs.up_to(point))
        replica.epoch = max(replica.epoch, welcome.epoch)
        replica.role = ReplicaRole.FOLLOWER
        self._shaken = True
        self.closed = False
        self.heard_at = replica.now
        self._acknowledge()

    def _may_cut_to(self, point: int) -> bool:
        """Confirmed bytes go only where an operator has accepted it, after our last epoch."""
        replica = self._replica
        return point >= replica.confirm or replica.view.forced_epoch > replica.log.epochs.last

    def _epoch_is_current(self, epoch: int) -> bool:
        """Frames of a master that was replaced are not taken, whatever they say."""
        return epoch >= self._replica.epoch and epoch >= self._replica.view.epoch

    def on_data(self, data: Data) -> None:
        replica, log = self._replica, self._replica.log
        if not self._epoch_is_current(data.epoch):
            replica.fence(data)
            return
        if replica.role is not ReplicaRole.FOLLOWER or not self._shaken or data.session != self.session:
            return
        if data.epoch != replica.epoch:
            return
        self.heard_at = replica.now
        if data.offset != log.max_offset:
            if data.offset > log.max_offset:
                self.say_hello()  # something is missing in between
            return
        if data.body:
            self._know_epochs_at_end()  # before its first byte
            log.append(data.body)
            self._know_epochs_at_end()
        replica.confirm = max(replica.confirm, min(data.confirm, log.max_offset))
        self._acknowledge()

    def _know_epochs_at_end(self) -> None:
        """A log that has reached the begin of an epoch knows it: only then may it count for that epoch."""
        log = self._replica.log
        known = self._master_epochs.up_to(log.max_offset)
        if known != log.epochs:
            log.save_epochs(known)

    def flushed(self) -> None:
        """More of our log is on disk."""
        if self._shaken and self._replica.acks_are_flushed:
            self._acknowledge()

    def _acknowledge(self) -> None:
        replica, log = self._replica, self._replica.log
        replica.send(
            replica.view.master,
            Ack(replica.me, self.session, replica.epoch, log.max_offset, log.flushed_offset),
        )
