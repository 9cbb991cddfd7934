"""Replicas of a group in a simulated world: their logs on disks that lose pages, a controller, clients, faults.

The controller is one process that never fails (its Raft has a simulation of its own), but the network to it does.
Held all the time: what was confirmed at an offset is never anything else there (H1, H2, H7); a new master has every
confirmed byte; one master per epoch, leases do not overlap (H8); nobody cuts bytes it knows to be confirmed. At the
end, healed: a master, sends succeed, equal logs up to the confirm offset (H9).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.world import Violation, World

from cometmq.broker.ha.epochs import Epochs
from cometmq.broker.ha.replica import (
    Ack,
    AlterSyncSet,
    Data,
    Heartbeat,
    Replica,
    ReplicaRole,
    ReplicaTimes,
    Send,
    Stream,
)
from cometmq.controller.group_state import NO_MASTER, GroupState, GroupView

RECORD_SIZE = 8  # bytes; a record is its key
BLANK = bytes(RECORD_SIZE)
PAGE_SIZE = 32
TICK = 10
TIMES = ReplicaTimes(heartbeat=40, ping=20, lease=200, silence=300, drop=100, catch_up=400)
SESSION_TIMEOUT = 300  # 1.5 x lease
FLUSH_EVERY = 150
CONTROLLER = "controller"
QUIET = 500


@dataclass
class Bugs:
    """Mistakes on purpose (ha.md 12.2); the simulator must find each."""

    skip_epoch_check: bool = False
    confirm_connected_only: bool = False
    no_union: bool = False
    no_zeroing: bool = False
    lease_from_reply: bool = False
    cut_below_confirm: bool = False
    ack_before_flush: bool = False


class BuggyReplica(Replica):
    """The machine with one of its rules left out."""

    bugs = Bugs()

    def _epoch_is_current(self, epoch: int) -> bool:
        return self.bugs.skip_epoch_check or super()._epoch_is_current(epoch)

    def _ack_counts(self, ack: Ack, stream: Stream) -> bool:
        same_session = ack.session == stream.session
        return super()._ack_counts(ack, stream) or (self.bugs.skip_epoch_check and same_session)

    def _on_data(self, data: Data) -> None:
        super()._on_data(data._replace(epoch=self.epoch) if self.bugs.skip_epoch_check else data)

    def on_view(self, view: GroupView, sent: float | None, now: float) -> None:
        if self.bugs.skip_epoch_check and view.epoch < self.view.epoch and view.master != self.me:
            self.view, self.epoch = GroupView(), view.epoch  # news of the past are news
        super().on_view(view, sent, now)

    def _counted_members(self) -> frozenset[int]:
        if self.bugs.confirm_connected_only:
            live = {m for m, s in self.streams.items() if self._is_live(s, TIMES.drop)}
            return frozenset(self.view.sync_set & live)
        return self.view.sync_set if self.bugs.no_union else super()._counted_members()

    def _lease_start(self, sent: float) -> float:
        return self._now if self.bugs.lease_from_reply else sent

    def _may_cut_to(self, point: int) -> bool:
        return self.bugs.cut_below_confirm or super()._may_cut_to(point)


@dataclass
class SimLog:
    """A log on a disk: bytes that were written, of which some pages are synced. Zero is blank."""

    cells: bytearray = field(default_factory=bytearray)  # what the page cache holds
    synced: bytearray = field(default_factory=bytearray)  # what the disk holds
    epochs: Epochs = field(default_factory=Epochs)
    min_offset: int = 0
    max_offset: int = 0
    flushed_offset: int = 0
    zeroing: bool = True
    owner: SimReplica | None = None

    def read(self, offset: int, size_max: int) -> bytes:
        return bytes(self.cells[offset : min(offset + size_max, self.max_offset)])

    def append(self, data: bytes) -> None:
        self.cells[self.max_offset : self.max_offset + len(data)] = data
        self.max_offset += len(data)

    def truncate(self, offset: int) -> None:
        assert self.owner is not None
        self.owner.check_cut(offset)
        self.max_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        if self.zeroing:
            self.cells[offset:] = b""
            self.synced[offset:] = b""

    def begin_anew(self, offset: int) -> None:
        self.truncate(offset)

    def save_epochs(self, epochs: Epochs) -> None:
        self.epochs = epochs

    def flush(self) -> None:
        self.synced = bytearray(self.cells)
        self.flushed_offset = self.max_offset

    def lose_power(self, world: World) -> None:
        """Any subset of the pages that were not synced is lost."""
        kept = bytearray(self.cells)
        for start in range(0, len(kept), PAGE_SIZE):
            page = slice(start, start + PAGE_SIZE)
            if kept[page] != self.synced[page] and world.chance(0.5):
                old = bytes(self.synced[page])
                kept[page] = old + bytes(len(kept[page]) - len(old))
        self.cells = kept

    def recover(self) -> None:
        """The log ends before the first blank record."""
        end = 0
        while len(self.cells) >= end + RECORD_SIZE and self.cells[end : end + RECORD_SIZE] != BLANK:
            end += RECORD_SIZE
        if self.zeroing:
            self.cells[end:] = b""
        self.max_offset = self.flushed_offset = end
        self.synced = bytearray(self.cells)
        self.epochs = self.epochs.up_to(end)


class SimReplica:
    """A broker process: the machine, its log, its clock."""

    def __init__(self, group: ReplicaGroup, me: int) -> None:
        self.group = group
        self.world = group.world
        self.me = me
        self.log = SimLog(zeroing=not group.bugs.no_zeroing, owner=self)
        self.rate = 1 + (self.world.random.random() - 0.5) * 0.2
        self.machine: BuggyReplica | None = None
        self.confirm_kept = 0
        self.unclean = False
        self.generation = 0
        self.paused_until = 0.0

    def clock(self) -> float:
        return self.world.now * self.rate

    @property
    def awake(self) -> bool:
        return self.machine is not None and self.world.now >= self.paused_until

    def start(self) -> None:
        self.generation += 1
        self.log.recover()
        self.machine = BuggyReplica(
            self.me, self.log, now=self.clock(), min_in_sync=self.group.min_in_sync,
            confirm=self.confirm_kept, times=TIMES, first_session=self.generation << 32,
            acks_are_flushed=self.group.on_disk and not self.group.bugs.ack_before_flush,
        )  # fmt: skip
        self.machine.bugs = self.group.bugs
        self.world.network.attach(self.me, self.receive)
        self._register(self.generation)
        self._tick(self.generation)
        self._flush_later(self.generation)

    def crash(self, power_loss: bool) -> None:
        if self.machine is None:
            return
        if self.world.chance(0.5):
            self.confirm_kept = self.machine.confirm
        self.machine = None
        self.generation += 1
        self.world.network.detach(self.me)
        if power_loss:
            self.log.lose_power(self.world)
            # Beyond the promises: a machine that does not notice that it lost power.
            self.unclean = not (self.group.beyond and self.world.chance(0.7)) and not self.group.on_disk

    def _register(self, generation: int) -> None:
        """Until the controller has heard of this start, nothing else is said to it."""
        if generation == self.generation and not self.registered:
            self.world.network.send(self.me, CONTROLLER, ("register", self.me, self.unclean, generation))
            self.world.after(50, lambda: self._register(generation))

    @property
    def registered(self) -> bool:
        return self._registered == self.generation

    _registered = -1

    def _tick(self, generation: int) -> None:
        if generation != self.generation:
            return
        if self.awake and self.machine is not None:
            self.machine.tick(self.clock())
            self.work()
        self.world.after(TICK, lambda: self._tick(generation))

    def _flush_later(self, generation: int) -> None:
        def flush() -> None:
            if generation == self.generation:
                self.log.flush()
                if self.awake and self.machine is not None:
                    self.machine.flushed(self.clock())
                    self.work()
                self._flush_later(generation)

        self.world.after(self.world.random.uniform(1, 2 * FLUSH_EVERY), flush)

    def receive(self, message: object) -> None:
        if self.machine is None:
            return
        if not self.awake:
            generation = self.generation
            self.world.after(
                self.paused_until - self.world.now + 0.1,
                lambda: self.receive(message) if generation == self.generation else None,
            )
            return
        if isinstance(message, tuple) and message[0] == "registered":
            self._registered = max(self._registered, message[1])
        elif isinstance(message, tuple) and message[0] == "view":
            _, view, sent, generation = message
            if self.registered and (generation is None or generation == self.generation):
                self.machine.on_view(view, sent, self.clock())
        else:
            self.machine.receive(message, self.clock())
        self.work()

    def work(self) -> None:
        machine = self.machine
        if machine is None:
            return
        for output in machine.take():
            if isinstance(output, Send):
                self.world.network.send(self.me, output.to, output.frame)
            elif self.registered:
                self.world.network.send(self.me, CONTROLLER, (output, self.generation))
        self.group.check(self, machine)

    def check_cut(self, offset: int) -> None:
        assert self.machine is not None
        if offset < self.machine.confirm:
            raise Violation(
                f"replica {self.me} cuts to {offset}, but knows {self.machine.confirm} to be confirmed"
            )


class Controller:
    """Applies commands in order; declares a silent master dead."""

    def __init__(self, group: ReplicaGroup) -> None:
        self.group = group
        self.world = group.world
        self.state = GroupState()
        self.state.configure(group.min_in_sync)
        self.heard: dict[int, float] = {}
        self.ends: dict[int, tuple[int, int]] = {}
        self.starts: dict[int, int] = {}  # replica -> the start of it that registered last
        self.world.network.attach(CONTROLLER, self.receive)
        self._tick()

    def receive(self, message: tuple[object, ...]) -> None:
        if message[0] == "register":
            _, replica, unclean, generation = message
            assert isinstance(replica, int)
            assert isinstance(generation, int)
            if self.starts.get(replica) != generation:
                self.starts[replica] = generation
                self.state.register(replica, f"store{replica}", unclean=bool(unclean))
                self.heard.pop(replica, None)
            self.world.network.send(CONTROLLER, replica, ("registered", generation))
            return
        request, generation = message
        if isinstance(request, Heartbeat) and self.starts.get(request.replica) == generation:
            self.heard[request.replica] = self.world.now
            self.ends[request.replica] = (request.last_epoch, request.max_offset)
            self._answer(request.replica, request.sent, generation)
        elif isinstance(request, AlterSyncSet) and self.starts.get(request.master) == generation:
            self.state.alter_sync_set(*request)
            self._answer(request.master, None, generation)

    def _answer(self, replica: int, sent: float | None, generation: object) -> None:
        self.world.network.send(CONTROLLER, replica, ("view", self.state.view, sent, generation))

    def _tick(self) -> None:
        view = self.state.view
        alive = {r for r, at in self.heard.items() if self.world.now - at < SESSION_TIMEOUT}
        if view.master != NO_MASTER and view.master not in alive:
            self.state.depose(view.master, view.epoch)
        view = self.state.view
        if view.master == NO_MASTER:
            allowed = alive & self.state.electable()
            best = max(allowed, key=lambda replica: (*self.ends[replica], -replica), default=None)
            if best is not None and self.state.elect(best, view.epoch, view.sync_set - alive):
                for replica in self.starts:
                    self._answer(replica, None, None)
        self.world.after(TICK, self._tick)


class ReplicaGroup:
    def __init__(
        self,
        seed: int,
        *,
        size: int = 3,
        min_in_sync: int = 2,
        bugs: Bugs | None = None,
        beyond: bool = False,
        on_disk: bool = False,
    ) -> None:
        self.world = World(seed)
        self.bugs = bugs or Bugs()
        self.min_in_sync = min_in_sync
        self.beyond = (
            beyond  # more power losses than the level survives: losses happen, but nothing is cut silently
        )
        self.on_disk = (
            on_disk  # level insync+disk: only flushed bytes are acknowledged, any power loss is survived
        )
        self.faults = self.sending = True
        self.confirmed = bytearray()  # what anybody ever confirmed
        self.masters: dict[int, int] = {}
        self.keys = 0
        self.controller = Controller(self)
        self.replicas = {number: SimReplica(self, number) for number in range(1, size + 1)}
        for replica in self.replicas.values():
            replica.start()

    # -- what must hold -------------------------------------------------------------------------------------------

    def check(self, replica: SimReplica, machine: Replica) -> None:
        if machine.role is ReplicaRole.MASTER:
            self._check_master(replica, machine)
        if not self.beyond:
            self._check_confirmed(replica, machine)
        holders = [
            r.me for r in self.replicas.values() if r.machine is not None and r.machine.has_lease(r.clock())
        ]
        if len(holders) > 1:
            raise Violation(f"replicas {holders} hold the lease at one time")

    def _check_master(self, replica: SimReplica, machine: Replica) -> None:
        first = self.masters.setdefault(machine.epoch, replica.me)
        if first != replica.me:
            raise Violation(f"epoch {machine.epoch} has two masters: {first} and {replica.me}")

    def _check_confirmed(self, replica: SimReplica, machine: Replica) -> None:
        known = len(self.confirmed)
        shared = min(known, machine.confirm)
        if replica.log.cells[:shared] != self.confirmed[:shared]:
            raise Violation(f"replica {replica.me} confirms other bytes below {shared}")
        if machine.confirm > known:
            self.confirmed += replica.log.cells[known : machine.confirm]
        current = self.controller.state.view
        is_master = machine.role is ReplicaRole.MASTER and current[:2] == (replica.me, machine.epoch)
        if is_master and replica.log.cells[: len(self.confirmed)] != self.confirmed:
            raise Violation(f"master {replica.me} lacks confirmed bytes")

    # -- a run ----------------------------------------------------------------------------------------------------

    def run(self, duration: float = 5_000, settle: float = 4_000) -> None:
        network = self.world.network
        network.loss = self.world.random.choice((0.0, 0.01, 0.05))
        network.delay_max = self.world.random.choice((3.0, 20.0, 150.0))
        network.duplication = self.world.random.choice((0.0, 0.05))
        self._send_later()
        self._fault_later()
        self.world.run_until(duration)
        self._heal()
        self.world.run_until(duration + settle - QUIET)
        self.sending = False
        self.world.run_until(duration + settle)
        if not self.beyond:
            self._check_settled()

    def _heal(self) -> None:
        self.faults = False
        network = self.world.network
        network.heal()
        network.loss = network.duplication = 0.0
        network.delay_max = 5.0
        for replica in self.replicas.values():
            replica.paused_until = 0.0
            if replica.machine is None:
                replica.start()

    def _check_settled(self) -> None:
        view = self.controller.state.view
        if view.master == NO_MASTER:
            raise Violation(
                f"no master after everything healed: {view} eligible {self.controller.state.eligible}"
            )
        master = self.replicas[view.master]
        if view.sync_set != frozenset(self.replicas):
            raise Violation(f"not everybody is in sync again: {view}")
        for replica in self.replicas.values():
            if replica.log.cells[: replica.log.max_offset] != master.log.cells[: master.log.max_offset]:
                raise Violation(f"the logs of {replica.me} and {master.me} differ at the end")
        if len(self.confirmed) != master.log.max_offset:
            raise Violation("not everything was confirmed at the end")

    def _send_later(self) -> None:
        def send() -> None:
            for replica in self.replicas.values() if self.sending else ():
                if replica.awake and replica.machine is not None:
                    self.keys += 1
                    replica.machine.append(self.keys.to_bytes(RECORD_SIZE, "big"), replica.clock())
                    replica.work()
            self._send_later()

        self.world.after(self.world.random.uniform(1, 25), send)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _fault_later(self) -> None:
        def fault() -> None:
            if self.faults:
                self._one_fault()
                self._fault_later()

        self.world.after(self.world.random.expovariate(1 / 150), fault)

    def _one_fault(self) -> None:
        chance = self.world.random
        replica = chance.choice(list(self.replicas.values()))
        everybody = {*self.replicas, CONTROLLER}
        kind = chance.random()
        if kind < 0.3:
            self._crash(replica, power_loss=chance.random() < 0.4 and self._may_lose_power(replica))
        elif kind < 0.4:
            self.world.network.isolate({replica.me}, everybody)
        elif kind < 0.5:
            self.world.network.cut(replica.me, chance.choice(sorted(everybody, key=str)))
        elif kind < 0.65:
            self.world.network.cut(CONTROLLER, replica.me)
        elif kind < 0.8:
            replica.paused_until = self.world.now + chance.uniform(20, 800)
        else:
            self.world.network.heal()

    def _crash(self, replica: SimReplica, power_loss: bool) -> None:
        if replica.machine is None:
            return
        replica.crash(power_loss)
        generation = replica.generation

        def restart() -> None:
            if replica.machine is None and replica.generation == generation:
                replica.start()

        self.world.after(self.world.random.uniform(10, 800), restart)

    def _may_lose_power(self, replica: SimReplica) -> bool:
        """The level survives fewer than minInSync machines at a time: the last victim must be in sync again."""
        if self.beyond or self.on_disk:
            return True
        for other in self.replicas.values():
            if other.unclean:
                caught_up = other.registered and other.me in self.controller.state.view.sync_set
                if not caught_up:
                    return False
                other.unclean = False
        return True
