"""What goes wrong in a simulated group, and the operator who repairs, adds, removes and switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.brokers import SimBroker
from sim.controllers import ControllerNode
from sim.raft_cluster import Disk

from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.controller.group_state import NO_MASTER
from cometmq.controller.raft.messages import Snapshot, Voter

if TYPE_CHECKING:
    from sim.group_world import GroupWorld

FAULT_EVERY = 150  # milliseconds on average
OPERATOR_EVERY = 60
OPERATES = 0.05  # chance that an operator changes something each time
BROKERS_MAX = 5
# Milliseconds without a master after which an operator accepts a loss, where one may happen
FORCE_AFTER = 1_500


class Trouble:
    def __init__(self, group: GroupWorld) -> None:
        self.group = group
        self.world = group.world
        self._damaged: dict[int, int] = {}  # replica -> its first start after its disk lost something
        self._replaced: Voter | None = None  # the voter that is being added anew
        self._masterless_since = 0.0
        self._kinds = [fault for fault, _ in self._FAULTS]
        self._weights = [self._weight(fault.__name__, weight) for fault, weight in self._FAULTS]

    def _weight(self, name: str, weight: int) -> int:
        """A focused world has few kinds of faults."""
        wanted = self.group.focus
        return weight if wanted is None or name.removeprefix("_") in wanted.faults else 0

    def begin(self) -> None:
        self._fault_later()
        self._operate()

    def heal(self) -> None:
        group, network = self.group, self.world.network
        group.faults = False
        network.heal()
        network.loss = network.duplication = 0.0
        network.delay_max = 5.0
        for node in group.nodes.values():
            node.paused_until = 0.0
            if node.raft is None:
                node.start()
        for broker in group.brokers.values():
            broker.paused_until = 0.0
            if broker.machine is None and not broker.removed:
                broker.start()

    @property
    def voters_are_repaired(self) -> bool:
        return self._replaced is None

    # -- faults ---------------------------------------------------------------------------------------------------

    def _fault_later(self) -> None:
        self.world.after(self.world.random.expovariate(1 / FAULT_EVERY), self._fault)

    def _fault(self) -> None:
        if self.group.faults:
            self.world.random.choices(self._kinds, self._weights)[0](self)
            self._fault_later()

    def _any_broker(self) -> SimBroker:
        """More often the master: that is where it hurts."""
        brokers = {n: b for n, b in self.group.brokers.items() if not b.removed}
        master = brokers.get(self.group.truth.state.view.master)
        if master is not None and self.world.chance(0.3):
            return master
        return self.world.random.choice(list(brokers.values()))

    def _any_node(self) -> ControllerNode:
        nodes = list(self.group.nodes.values())
        leader = next((node for node in nodes if node.leads), None)
        if leader is not None and self.world.chance(0.3):
            return leader
        return self.world.random.choice(nodes)

    def _housemates(self, broker: SimBroker) -> list[ControllerNode]:
        """The controller in the process of this broker."""
        node = self.group.nodes.get(broker.me) if self.group.embedded else None
        return [node] if node is not None else []

    def _kill_broker(self) -> None:
        broker = self._any_broker()
        self.crash_broker(broker)
        if self.world.chance(0.1) and self._may_damage(broker):
            broker.log.tear(self.world)

    def _cut_power(self) -> None:
        broker = self._any_broker()
        if self.group.on_disk or self._may_damage(broker):
            self.crash_broker(broker, power_loss=True)

    def _flip_bit(self) -> None:
        broker = self._any_broker()
        if self._may_damage(broker):
            self.crash_broker(broker)
            broker.log.flip_bit(self.world)

    def _wipe_broker(self) -> None:
        broker = self._any_broker()
        if self._may_damage(broker):
            self.crash_broker(broker)
            broker.wipe()

    def _pause_broker(self) -> None:
        broker = self._any_broker()
        until = self.world.now + self.world.random.uniform(20, self.world.random.choice((200, 700, 1_500)))
        for one in (broker, *self._housemates(broker)):
            one.paused_until = until

    def _isolate_broker(self) -> None:
        broker = self._any_broker()
        some = {broker.me, *(node.me for node in self._housemates(broker))}
        if self.world.chance(0.3):
            some.add(self._any_broker().me)
        self.world.network.isolate(some, self._everybody())

    def _cut_one_way(self) -> None:
        everybody = sorted(self._everybody(), key=str)
        self.world.network.cut(self.world.random.choice(everybody), self.world.random.choice(everybody))

    def _cut_from_controllers(self) -> None:
        broker = self._any_broker()
        for node in self.group.nodes.values():
            if self.world.chance(0.8):
                self.world.network.cut(node.me, broker.me)
                if self.world.chance(0.7):
                    self.world.network.cut(broker.me, node.me)

    def _silence_master(self) -> None:
        """Its frames do not arrive, its heartbeats do."""
        broker = self._any_broker()
        for other in self.group.brokers:
            self.world.network.cut(broker.me, other)

    def _isolate_controllers(self) -> None:
        nodes = [node.me for node in self.group.nodes.values()]
        some = set(self.world.random.sample(nodes, self.world.random.randint(1, 2)))
        if self.world.chance(0.5):
            some.add(self._any_broker().me)  # type: ignore[arg-type]
        self.world.network.isolate(some, self._everybody())

    def _kill_node(self) -> None:
        self.crash_node(self._any_node())

    def _pause_node(self) -> None:
        self._any_node().paused_until = self.world.now + self.world.random.uniform(50, 700)

    def _reset_connections(self) -> None:
        broker = self._any_broker()
        self._close_connections(broker)
        if self.world.chance(0.5):
            self._close_sessions(broker)

    def _damage_node(self) -> None:
        """A disk is lost, or a bit of its log or hard state flips and the voter notices when it starts."""
        if self._replaced is not None:
            return
        node = self._any_node()
        self.crash_node(node, restart=False)
        me, disk = Voter(node.me.id, f"{node.me.uuid}'"), Disk()
        if self.group.bugs.cuts_bad_raft_log and self.world.chance(0.7):
            me, disk = node.me, node.disk
            keep = self.world.random.randint(0, len(disk.entries))
            disk.entries = disk.entries[:keep]
        elif self.group.bugs.wiped_disk_keeps_uuid:
            first = tuple(Voter(number, f"u{number}") for number in self.group.nodes)
            me, disk = node.me, Disk(snapshot=Snapshot(0, 0, first))
        else:
            self._replaced = me
        new = self.group.nodes[me.id] = ControllerNode(self.group, me, disk)
        self.world.after(self.world.random.uniform(10, 300), new._restart_if_down)

    def _heal_network(self) -> None:
        self.world.network.heal()

    _FAULTS: tuple[tuple[Callable[[Trouble], None], int], ...] = (
        (_kill_broker, 10), (_cut_power, 8), (_flip_bit, 2), (_wipe_broker, 2), (_pause_broker, 8),
        (_isolate_broker, 10), (_cut_one_way, 8), (_cut_from_controllers, 8), (_silence_master, 3),
        (_isolate_controllers, 5), (_kill_node, 6), (_pause_node, 4), (_reset_connections, 3), (_damage_node, 2),
        (_heal_network, 35),
    )  # fmt: skip

    # -- ends of processes ----------------------------------------------------------------------------------------

    def _everybody(self) -> set[object]:
        return {*self.group.brokers, *(node.me for node in self.group.nodes.values())}

    def crash_broker(self, broker: SimBroker, *, power_loss: bool = False) -> None:
        was_alive = broker.machine is not None
        if not power_loss and was_alive:  # the kernel closes its connections
            self._close_connections(broker)
            self._close_sessions(broker)
        broker.crash(power_loss=power_loss)
        for node in self._housemates(broker):
            self.crash_node(node)
        self.restart_later(broker)

    def restart_later(self, broker: SimBroker) -> None:
        delay = self.world.random.choice((20.0, 200.0, 800.0)) * self.world.random.random() + 5
        self.world.after(delay, self._restart, broker, broker.generation)

    def _restart(self, broker: SimBroker, generation: int) -> None:
        if broker.machine is None and broker.generation == generation and not broker.removed:
            broker.start()

    def crash_node(self, node: ControllerNode, *, restart: bool = True) -> None:
        node.crash()
        if restart:
            self.world.after(self.world.random.uniform(10, 500), node._restart_if_down)

    def _delay(self) -> float:
        return self.world.random.random() * self.world.network.delay_max + 0.1

    def _close_connections(self, broker: SimBroker) -> None:
        for other in self.group.brokers.values():
            if other is not broker and not self.world.network.is_cut(broker.me, other.me):
                self.world.after(self._delay(), other.lose_stream, broker.me, other.generation)
                self.world.after(self._delay(), broker.lose_stream, other.me, broker.generation)

    def _close_sessions(self, broker: SimBroker) -> None:
        for node in self.group.nodes.values():
            if not self.world.network.is_cut(broker.me, node.me):
                self.world.after(self._delay(), node.lose_session, broker.me)

    # -- what the level survives ----------------------------------------------------------------------------------

    def _may_damage(self, broker: SimBroker) -> bool:
        """Fewer disks at a time than it takes to confirm a byte; one that is in sync again counts no more."""
        if broker.removed or self.group.reconfigures:
            return False
        metadata = self.group.truth
        healthy = metadata.state.view.sync_set - metadata.state.view.unclean
        for replica, start in list(self._damaged.items()):
            if replica in healthy and metadata.starts.get(replica, -1) >= start:
                del self._damaged[replica]
        others = len(self._damaged.keys() - {broker.me})
        if others + 1 >= self.group.min_in_sync and not self.group.beyond:
            return False
        self._damaged[broker.me] = broker.generation + 1
        return True

    # -- the operator ---------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        leader = next((node for node in self.group.nodes.values() if node.leads), None)
        if leader is not None and self.world.now >= leader.paused_until:
            self._replace_voter(leader)
            busy = self.group.focus.operates if self.group.focus is not None else OPERATES
            if self.group.faults and self.world.chance(busy):
                works = (self._add, self._remove, self._switch, self._hand_over, self._configure)
                self.world.random.choice(works)(leader)
            if self.group.beyond:
                self._force(leader)
            leader.work()
        self.world.after(OPERATOR_EVERY, self._operate)

    def _replace_voter(self, leader: ControllerNode) -> None:
        """A voter that came back without its disk is removed and added as another one."""
        new, raft = self._replaced, leader.raft
        if new is None or raft is None:
            return
        voters = raft.voters
        if new in voters:
            node = self.group.nodes[new.id]
            if node.applied_index > raft.log.voters()[0]:
                self._replaced = None
        elif any(voter.id == new.id for voter in voters):
            raft.change_voters(tuple(voter for voter in voters if voter.id != new.id))
        else:
            raft.change_voters((*voters, new))

    def _add(self, leader: ControllerNode) -> None:
        brokers = self.group.brokers
        if len(brokers) < BROKERS_MAX:
            added = brokers[len(brokers) + 1] = SimBroker(self.group, len(brokers) + 1)
            added.start()

    def _remove(self, leader: ControllerNode) -> None:
        broker = self._any_broker()
        if (
            leader.metadata.state.view.master != broker.me
            and len(self.group.members()) > self.group.min_in_sync
        ):
            leader._propose("remove", (broker.me,))

    def _switch(self, leader: ControllerNode) -> None:
        for broker in self.group.brokers.values():
            if broker.awake and broker.machine is not None and broker.machine.role is ReplicaRole.MASTER:
                broker.machine.resign()
                self.world.after(400, self._stay, broker, broker.generation)

    def _stay(self, broker: SimBroker, generation: int) -> None:
        if broker.generation == generation and broker.machine is not None:
            broker.machine.stay()

    def _hand_over(self, leader: ControllerNode) -> None:
        assert leader.raft is not None
        leader.raft.transfer(self.world.random.choice(leader.raft.voters))

    def _configure(self, leader: ControllerNode) -> None:
        if self.group.reconfigures:
            leader._propose("configure", (self.world.random.choice((1, 2)), 0))

    def _force(self, leader: ControllerNode) -> None:
        """Nobody can be elected for a long time: a live replica with the most bytes is taken."""
        state = leader.metadata.state
        if state.view.master != NO_MASTER:
            self._masterless_since = self.world.now
        elif self.world.now - self._masterless_since > FORCE_AFTER:
            live = [b for b in self.group.brokers.values() if b.awake and b.registered == b.generation]
            if live:
                best = max(live, key=lambda b: (b.log.epochs.last, b.log.max_offset))
                leader._propose("force_elect", (best.me,))
                self._masterless_since = self.world.now
