"""A simulated broker process: the replica machine, its disk, its clock, its session with the controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.planted import BuggyReplica
from sim.replica_disk import SimLog, record
from sim.world import Violation

from cometmq.broker.ha.frames import Close, Send
from cometmq.broker.ha.replica_state import ReplicaRole, ReplicaTimes
from cometmq.controller.elections import Report

if TYPE_CHECKING:
    from sim.group_world import GroupWorld

TICK = 20  # milliseconds
TIMES = ReplicaTimes(ping=40, lease=200, silence=300, drop=100, catch_up=400)
HEARTBEAT = 50
ANSWER_MAX = 120  # a controller that has not answered for so long is given up for the next one
FLUSH_EVERY = 150
KEEP_CONFIRM_EVERY = 200
CUT_CRASH = 0.05  # chance of a crash at each step of a cut
SESSION_BITS = 32


class Crashed(Exception):
    """The process ended in the middle of what it did."""


class SimBroker:
    def __init__(self, group: GroupWorld, me: int) -> None:
        self.group = group
        self.world = group.world
        self.me = me
        self.store = f"store{me}.0"
        self.log = self._new_log()
        self.rate = 1 + (self.world.random.random() - 0.5) * 0.2  # clocks go wrong by up to 10 %
        self.machine: BuggyReplica | None = None
        self.generation = 0
        self.registered = -1  # the start that a controller knows of
        self.paused_until = 0.0
        self.confirm_kept = 0  # in a file
        self.lost_power = False
        self.unclean = self.corrupt = False
        self.removed = False
        self._controller = 0
        self._heartbeat_at = self._flush_at = self._keep_at = self._answered_at = 0.0
        self._checked: tuple[int, ReplicaRole, int] | None = None

    def _new_log(self) -> SimLog:
        log = SimLog(zeroing=not self.group.bugs.no_zeroing)
        log.on_cut = self._check_cut
        log.crash_point = self._crash_point
        return log

    def clock(self) -> float:
        return self.world.now * self.rate

    @property
    def awake(self) -> bool:
        return self.machine is not None and self.world.now >= self.paused_until

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.generation += 1
        try:
            self._recover()
        except Crashed:
            self.crash()
            self.group.restart_later(self)
            return
        on_disk = self.group.on_disk
        self.machine = BuggyReplica(
            self.me, self.log, now=self.clock(), confirm=self.confirm_kept, times=TIMES,
            first_session=self.generation << SESSION_BITS,
            acks_are_flushed=on_disk and not self.group.bugs.ack_before_flush, bugs=self.group.bugs,
        )  # fmt: skip
        self._checked = None
        self._answered_at = self.world.now
        self.world.network.attach(self.me, self.receive)
        self._tick(self.generation)

    def _recover(self) -> None:
        unnoticed = self.group.beyond and self.world.chance(0.7)
        sure = 0 if unnoticed else self.confirm_kept
        corrupt = self.log.recover(sure_end=sure, same_boot=not self.lost_power)
        if not unnoticed and not self.group.bugs.bad_record_is_torn:
            self.corrupt = self.corrupt or corrupt
        if not unnoticed and not self.group.on_disk:
            self.unclean = self.unclean or self.lost_power
        self.lost_power = False
        if corrupt:
            self.confirm_kept = min(self.confirm_kept, self.log.max_offset)

    def crash(self, *, power_loss: bool = False) -> None:
        if self.machine is not None and self.world.chance(0.5):
            self.confirm_kept = self.machine.confirm_to_keep
        self.machine = None
        self.generation += 1
        self.world.network.detach(self.me)
        if power_loss:
            self.log.lose_power(self.world)
            self.lost_power = True

    def wipe(self) -> None:
        """The disk is gone; what comes back has another store."""
        self.log = self._new_log()
        self.store = f"store{self.me}.{self.generation}"
        self.confirm_kept = 0
        self.unclean = self.corrupt = self.lost_power = False

    def _crash_point(self) -> None:
        if self.group.faults and self.world.random.random() < CUT_CRASH:
            raise Crashed

    def _tick(self, generation: int) -> None:
        if generation != self.generation or self.machine is None:
            return
        if self.world.now >= self.paused_until:
            self._guarded(self._work_of_a_tick)
        self.world.after(TICK, self._tick, generation)

    def _work_of_a_tick(self) -> None:
        machine, now = self.machine, self.world.now
        assert machine is not None
        machine.tick(self.clock())
        if now >= self._flush_at:
            self._flush_at = now + self.world.random.uniform(1, 2 * FLUSH_EVERY)
            self.log.flush()
            machine.flushed(self.clock())
        if now >= self._keep_at:
            self._keep_at = now + KEEP_CONFIRM_EVERY
            self.confirm_kept = machine.confirm_to_keep
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT
            self._talk_to_controller(machine)

    def _guarded(self, work: Any, *arguments: Any) -> None:
        """Run something of this process that may crash."""
        try:
            work(*arguments)
            self.work()
        except Crashed:
            self.group.crash(self)

    # -- controllers ----------------------------------------------------------------------------------------------

    def _talk_to_controller(self, machine: BuggyReplica) -> None:
        if self.world.now - self._answered_at > ANSWER_MAX:
            self._controller += 1
            self._answered_at = self.world.now
        if self.registered != self.generation:
            self._ask("register", self.store, self.unclean, self.corrupt)
            return
        status = machine.status(self.clock())
        report = Report(
            self.me, status.epoch, status.last_epoch, status.max_offset, status.master_silence, status.stream_closed
        )  # fmt: skip
        self._ask("heartbeat", report, self.clock())
        if machine.resigning and machine.drained:
            self._ask("resign", machine.epoch)

    def _ask(self, kind: str, *arguments: Any) -> None:
        to = self.group.controller_address(self._controller)
        self.world.network.send(self.me, to, (kind, self.me, self.generation, *arguments))

    def _on_answer(self, kind: str, generation: int, *rest: Any) -> None:
        machine = self.machine
        if machine is None or generation != self.generation:
            return
        if kind == "redirect":
            self._controller = rest[0] if rest[0] is not None else self._controller + 1
            return
        self._answered_at = self.world.now
        if kind == "registered":
            self.registered = generation
            self.unclean = self.corrupt = False  # the controller remembers
        elif kind == "view" and self.registered == generation:
            machine.on_view(rest[0], rest[1], self.clock())
        elif kind == "removed":
            self.crash()

    # -- other replicas -------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        if self.machine is None:
            return
        if self.world.now < self.paused_until:  # the socket keeps it until we are woken
            self.world.after(
                self.paused_until - self.world.now + 0.1, self._receive_late, message, self.generation
            )
        elif isinstance(message[0], str):
            self._guarded(self._on_answer, *message)
        else:
            self._guarded(self.machine.receive, message, self.clock())

    def _receive_late(self, message: Any, generation: int) -> None:
        if generation == self.generation:
            self.receive(message)

    def lose_stream(self, peer: int, generation: int) -> None:
        if generation == self.generation and self.awake and self.machine is not None:
            self.machine.stream_lost(peer, self.clock())
            self.work()

    def send(self, number: int) -> None:
        """A client sends a message here."""
        if self.awake and self.machine is not None and self.machine.append(record(number), self.clock()):
            self.work()

    def work(self) -> None:
        machine = self.machine
        if machine is None:
            return
        if machine.outputs:
            for output in machine.take():
                if isinstance(output, Send):
                    self.world.network.send(self.me, output.to, output.frame)
                elif isinstance(output, Close):
                    self.group.close_stream(output.to, self)
                elif self.registered == self.generation:
                    self._ask("alter", tuple(output))
        seen = (machine.confirm, machine.role, machine.epoch)
        if seen != self._checked:
            self._checked = seen
            self.group.check(self, machine)

    def _check_cut(self, offset: int) -> None:
        machine = self.machine
        assert machine is not None
        if offset < machine.confirm and machine.view.forced_epoch <= machine.log.epochs.last:
            raise Violation(
                f"replica {self.me} cuts to {offset}, but knows {machine.confirm} to be confirmed"
            )
        self.confirm_kept = min(self.confirm_kept, offset)
