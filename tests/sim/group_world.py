"""A whole group in a simulated world: brokers, the controllers that elect among them, clients, an operator, faults.

Held all the time: what was confirmed at an offset is never anything else there, on any replica (H1, H2, H7); a new
master has every confirmed byte; one master per epoch, and one who may grant locks (H8); nobody cuts bytes it knows to
be confirmed; the controllers agree (see raft_cluster). At the end, healed: a master, everybody in sync, equal logs
(H9).

The seed also chooses the kind of group: number of replicas, commit rule, ack level, and whether each controller lives
in the process of a broker. Damage to disks stays within what the level promises to survive, unless ``beyond``.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from sim import group_faults
from sim.brokers import SimBroker
from sim.controllers import Command, ControllerNode, Metadata
from sim.planted import BuggyReplica, Bugs
from sim.raft_cluster import Disk
from sim.world import Violation, World

from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.controller.group_state import NO_MASTER, GroupState
from cometmq.controller.raft.core import Raft, Role
from cometmq.controller.raft.messages import Entry, EntryKind, Snapshot, Voter

VOTERS = 3
QUIET = 500  # milliseconds without sends before everybody must have the same
HEAL_STEP = 250
HEAL_MAX = 8_000  # milliseconds; the group is given that long to be whole again


@dataclass(frozen=True)
class Focus:
    """A world in which one kind of mistake shows soon."""

    faults: tuple[str, ...]
    delay_max: float = 20.0
    quorum: int | None = None
    size: int = 3
    min_in_sync: int = 2
    operates: float = group_faults.OPERATES
    loss: float = 0.0


class GroupWorld:
    compact_after = 15  # entries

    def __init__(
        self, seed: int, *, bugs: Bugs | None = None, beyond: bool = False, focus: Focus | None = None
    ) -> None:
        self.world = World(seed)
        self.focus = focus
        self.bugs = bugs or Bugs()
        self.beyond = beyond
        self.faults = self.sending = True
        self._choose_kind()
        self.confirmed = bytearray()  # what anybody ever confirmed
        self.masters: dict[int, int] = {}
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, Voter] = {}
        self.truth = Metadata(self.new_state(), self.bugs)  # what the controllers decided together
        self.sent = 0
        voters = tuple(Voter(number, f"u{number}") for number in range(1, VOTERS + 1))
        self.nodes = {v.id: ControllerNode(self, v, Disk(snapshot=Snapshot(0, 0, voters))) for v in voters}
        self.brokers = {number: SimBroker(self, number) for number in range(1, self.size + 1)}
        self.trouble = group_faults.Trouble(self)
        for one in (*self.nodes.values(), *self.brokers.values()):
            one.start()

    def _choose_kind(self) -> None:
        chance = self.world.random
        self.size = chance.choice((2, 3, 3, 3, 4))
        self.quorum = self.size // 2 + 1 if self.size > 2 and chance.random() < 0.4 else 0
        self.min_in_sync = self.quorum or chance.choice((1, 2, 2) if self.size == 2 else (2, 2, 3))
        self.on_disk = chance.random() < 0.3  # level insync+disk
        self.reconfigures = not self.quorum and chance.random() < 0.2  # then disks stay whole
        self.embedded = chance.random() < 0.5
        if self.focus is not None and self.focus.quorum is not None:
            self.size, self.quorum = self.focus.size, self.focus.quorum
            self.min_in_sync = self.quorum or self.focus.min_in_sync
            self.reconfigures = False

    def new_state(self) -> GroupState:
        state = GroupState()
        state.configure(self.min_in_sync, self.quorum)
        return state

    def controller_address(self, number: int) -> Voter:
        return self.nodes[(number - 1) % VOTERS + 1].me

    # -- what must hold -------------------------------------------------------------------------------------------

    def check(self, broker: SimBroker, machine: BuggyReplica) -> None:
        if machine.role is ReplicaRole.MASTER:
            self._check_master(broker, machine)
        if not self.beyond:
            self._check_confirmed(broker, machine)

    def _check_master(self, broker: SimBroker, machine: BuggyReplica) -> None:
        first = self.masters.setdefault(machine.epoch, broker.me)
        if first != broker.me:
            raise Violation(f"epoch {machine.epoch} has two masters: {first} and {broker.me}")

    def _check_confirmed(self, broker: SimBroker, machine: BuggyReplica) -> None:
        known = len(self.confirmed)
        shared = min(known, machine.confirm)
        if broker.log.cells[:shared] != self.confirmed[:shared]:
            raise Violation(f"replica {broker.me} confirms other bytes below {shared}")
        if machine.confirm > known:
            self.confirmed += broker.log.cells[known : machine.confirm]
        view = self.truth.state.view
        master = self.brokers.get(view.master)
        if master is None or master.machine is None or master.machine.role is not ReplicaRole.MASTER:
            return
        if master.machine.epoch == view.epoch and master.log.cells[: len(self.confirmed)] != self.confirmed:
            raise Violation(f"master {master.me} lacks confirmed bytes")

    def check_grants(self) -> None:
        masters = [
            b for b in self.brokers.values() if b.machine is not None and b.machine.role is ReplicaRole.MASTER
        ]
        if len(masters) < 2:
            return
        holders = [b.me for b in masters if b.machine is not None and b.machine.may_grant(b.clock())]
        if len(holders) > 1:
            raise Violation(f"replicas {holders} may grant locks at one time")

    def check_committed(self, node: ControllerNode, entry: Entry) -> None:
        known = self.committed.get(entry.index)
        if known is None:
            self.committed[entry.index] = entry
            if entry.kind is EntryKind.COMMAND:
                self._learn(pickle.loads(entry.data))
        elif known != entry:
            raise Violation(f"{node.me} commits {entry}, but {known} was committed")

    def _learn(self, command: Command) -> None:
        if self.truth.apply(command) and command[0] == "remove":
            self.brokers[command[1][0]].removed = True

    def check_leader(self, node: ControllerNode, raft: Raft) -> None:
        if self.leaders.setdefault(raft.term, node.me) != node.me:
            raise Violation(f"term {raft.term} has two leaders: {self.leaders[raft.term]} and {node.me}")

    # -- a run ----------------------------------------------------------------------------------------------------

    def run(self, duration: float = 4_500) -> None:
        network = self.world.network
        network.loss = self.world.random.choice((0.0, 0.01, 0.05))
        network.delay_max = self.world.random.choice((3.0, 20.0, 100.0))
        network.duplication = self.world.random.choice((0.0, 0.05))
        if self.focus is not None:
            network.delay_max, network.loss = self.focus.delay_max, self.focus.loss
        self._send_later()
        self._watch_grants()
        self.trouble.begin()
        self.world.run_until(duration)
        self.trouble.heal()
        end = duration
        while end < duration + HEAL_MAX and not (self._is_whole() and end > duration + HEAL_STEP):
            end += HEAL_STEP
            self.world.run_until(end)
        self.sending = False
        self.world.run_until(end + QUIET)
        if not self.beyond:
            self._check_settled()

    def _is_whole(self) -> bool:
        view = self.truth.state.view
        if not self.trouble.voters_are_repaired:
            return False
        return view.master != NO_MASTER and view.sync_set == self.members() and not view.unclean

    def members(self) -> frozenset[int]:
        return frozenset(number for number, broker in self.brokers.items() if not broker.removed)

    def _check_settled(self) -> None:
        state = self.truth.state
        if state.view.master == NO_MASTER:
            raise Violation(f"no master after everything healed: {state}")
        if state.view.sync_set != self.members():
            raise Violation(f"not everybody is in sync again: {state.view}, members {self.members()}")
        master = self.brokers[state.view.master]
        for number in self.members():
            log = self.brokers[number].log
            if log.cells[: log.max_offset] != master.log.cells[: master.log.max_offset]:
                raise Violation(f"the logs of {number} and {master.me} differ at the end")
        if len(self.confirmed) != master.log.max_offset:
            raise Violation("not everything was confirmed at the end")
        self._check_controllers()

    def _check_controllers(self) -> None:
        leaders = [n for n in self.nodes.values() if n.raft is not None and n.raft.role is Role.LEADER]
        if len(leaders) != 1:
            raise Violation(f"{len(leaders)} leading controllers after everything healed")
        for node in self.nodes.values():
            if node.metadata.state != self.truth.state:
                raise Violation(f"controller {node.me} has another state than the leader")

    def _send_later(self) -> None:
        if self.sending:
            for broker in self.brokers.values():
                machine = broker.machine
                if machine is not None and machine.role is ReplicaRole.MASTER:
                    for _ in range(self.world.random.choice((1, 1, 1, 3))):
                        self.sent += 1
                        broker.send(self.sent)
        self.world.after(self.world.random.random() * 30, self._send_later)

    def _watch_grants(self) -> None:
        self.check_grants()
        self.world.after(13, self._watch_grants)

    # -- what processes do to each other --------------------------------------------------------------------------

    def crash(self, broker: SimBroker, *, power_loss: bool = False) -> None:
        self.trouble.crash_broker(broker, power_loss=power_loss)

    def restart_later(self, broker: SimBroker) -> None:
        self.trouble.restart_later(broker)

    def close_stream(self, follower: int, master: SimBroker) -> None:
        other = self.brokers.get(follower)
        if other is not None and not self.world.network.is_cut(master.me, follower):
            delay = self.world.random.random() * self.world.network.delay_max
            self.world.after(delay, other.lose_stream, master.me, other.generation)
