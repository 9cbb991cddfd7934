"""Voters of a metadata group in a simulated world, their disks, their operator, and what must always hold.

Held at every commit: nobody ever commits something else at an index; one leader per term; a leader has everything
that was committed before; a read sees everything that was committed when it was asked for. At the end, with the
network healed: a leader, and the same log everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.planted import Bugs
from sim.world import Violation, World

from cometmq.controller.raft.core import Raft, RaftTimes, Role
from cometmq.controller.raft.messages import Entry, EntryKind, HardState, Message, Snapshot, Step, Voter

TICK = 20  # milliseconds between ticks
TIMES = RaftTimes(election_min=150, election_max=300, heartbeat=40)
QUIET = 1_000  # milliseconds without proposals before everybody must have the same
COMPACT_AFTER = 20  # entries
STEP_CRASH = 0.002  # chance that a step is cut short by a crash, while there are faults


@dataclass
class Disk:
    """What survives. Writes go to ``cached`` first and are durable with ``sync``."""

    hard_state: HardState = field(default_factory=HardState)
    snapshot: Snapshot = field(default_factory=Snapshot)
    entries: list[Entry] = field(default_factory=list)

    def write(self, step: Step) -> None:
        if step.hard_state is not None:
            self.hard_state = step.hard_state
        self.write_log(step)

    def write_log(self, step: Step) -> None:
        if step.snapshot is not None:
            self._write_snapshot(step.snapshot)
        if step.cut_from is not None:
            self.entries = [entry for entry in self.entries if entry.index < step.cut_from]
        for entry in step.entries:
            self.entries = [kept for kept in self.entries if kept.index < entry.index]
            self.entries.append(entry)

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        agrees = any(e.index == snapshot.index and e.term == snapshot.term for e in self.entries)
        agrees = agrees or (self.snapshot.index, self.snapshot.term) == (snapshot.index, snapshot.term)
        self.entries = [e for e in self.entries if e.index > snapshot.index] if agrees else []
        self.snapshot = snapshot


class Node:
    """One voter: the core, its disk, its clock."""

    def __init__(self, cluster: RaftCluster, me: Voter, disk: Disk) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.me = me
        self.disk = disk
        self.unsynced_hard_state: HardState | None = None  # with the bug: what a crash brings back
        self.unsynced_entries: list[Entry] | None = None
        self.rate = 1 + (self.world.random.random() - 0.5) * 0.2  # clocks go wrong by up to 10 %
        self.raft: Raft | None = None
        self.applied: list[bytes] = []
        self.applied_index = 0
        self.paused_until = 0.0
        self.generation = 0

    def clock(self) -> int:
        return int(self.world.now * self.rate)

    def start(self) -> None:
        self.generation += 1
        disk = self.disk
        self.raft = Raft(
            self.me, now=self.clock(), random_between=self.world.random.randint, times=TIMES,
            hard_state=disk.hard_state, snapshot=disk.snapshot, entries=tuple(disk.entries),
        )  # fmt: skip
        self._load(disk.snapshot)
        self.world.network.attach(self.me, self.receive)
        self._tick(self.generation)

    def _load(self, snapshot: Snapshot) -> None:
        self.applied = snapshot.data.split(b",") if snapshot.data else []
        self.applied_index = snapshot.index

    def crash(self) -> None:
        self.raft = None
        self.generation += 1
        self.world.network.detach(self.me)
        if self.unsynced_hard_state is not None and self.world.chance(0.7):
            self.disk.hard_state = self.unsynced_hard_state
        if self.unsynced_entries is not None and self.world.chance(0.7):
            self.disk.entries = self.unsynced_entries
        self.unsynced_hard_state = self.unsynced_entries = None

    def _tick(self, generation: int) -> None:
        if generation != self.generation or self.raft is None:
            return
        if self.world.now >= self.paused_until:
            self.raft.tick(self.clock())
            self.tick_more()
            self.work()
        self.world.after(TICK, self._tick, generation)

    def tick_more(self) -> None:
        """For what stands on the log."""

    def receive(self, message: Message) -> None:
        if self.raft is None:
            return
        if self.world.now < self.paused_until:  # the socket keeps it until we are woken
            self.world.after(
                self.paused_until - self.world.now + 0.1, self._receive_late, message, self.generation
            )
            return
        if self.cluster.bugs.ignores_unknown_uuids and self._is_strange(message.sender, self.raft):
            return
        self.raft.receive(message, self.clock())
        self.work()

    def _is_strange(self, sender: Voter, raft: Raft) -> bool:
        return any(voter.id == sender.id and voter != sender for voter in raft.voters)

    def _receive_late(self, message: Message, generation: int) -> None:
        if generation == self.generation:
            self.receive(message)

    def work(self) -> None:
        """Do the steps that the core asks for; a crash may come at any point."""
        while self.raft is not None and self.raft.has_work:
            raft = self.raft
            step = raft.take()
            if self.cluster.faults and step.must_sync and self.world.chance(STEP_CRASH):
                self._crash_while_writing(step)
                return
            self._write(step)
            raft.synced(step)
            self._check_leader(raft)
            for message in step.messages:
                self.world.network.send(self.me, message.to, message)
            self._apply(raft, step)

    def _write(self, step: Step) -> None:
        bugs = self.cluster.bugs
        if bugs.vote_without_sync and step.hard_state is not None and self.unsynced_hard_state is None:
            self.unsynced_hard_state = self.disk.hard_state
        if bugs.ack_without_sync and step.entries and self.unsynced_entries is None:
            self.unsynced_entries = list(self.disk.entries)
        if step.snapshot is not None:
            self.unsynced_entries = None
        self.disk.write(step)

    def _crash_while_writing(self, step: Step) -> None:
        """Some of it is on disk, nothing of it was sent."""
        if self.world.chance(0.5):
            self.disk.hard_state = step.hard_state or self.disk.hard_state
            kept = self.world.random.randint(0, len(step.entries))
            step.entries = step.entries[:kept]
            self.disk.write_log(step)
        self.crash()
        self.world.after(self.world.random.uniform(10, 500), self._restart_if_down)

    def _restart_if_down(self) -> None:
        if self.raft is None and self.cluster.nodes.get(self.me.id) is self:
            self.start()

    def _check_leader(self, raft: Raft) -> None:
        if raft.role is Role.LEADER:
            self.cluster.check_leader(self, raft)

    def _apply(self, raft: Raft, step: Step) -> None:
        if step.snapshot is not None and step.snapshot.index > self.applied_index:
            self._load(step.snapshot)
        for entry in step.committed:
            self.cluster.check_committed(self, entry)
            self.applied_index = entry.index
            if entry.kind is EntryKind.COMMAND:
                self.applied.append(entry.data)
        for read in step.reads:
            self.cluster.check_read(read.token, read.index)
        if self.applied_index - raft.log.snapshot.index > COMPACT_AFTER:
            raft.compact(self.applied_index, b",".join(self.applied))


class RaftCluster:
    def __init__(self, seed: int, *, size: int = 3, bugs: Bugs | None = None) -> None:
        self.world = World(seed)
        self.bugs = bugs or Bugs()
        self.faults = True
        self.proposing = True
        self.wiped = False
        self.size = size
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, Voter] = {}
        self.proposals = 0
        self.reads_asked: dict[int, int] = {}
        voters = tuple(Voter(number, f"u{number}") for number in range(1, size + 1))
        self.nodes: dict[int, Node] = {}
        for voter in voters:
            self.nodes[voter.id] = Node(self, voter, Disk(snapshot=Snapshot(0, 0, voters)))
        self._next_id = size + 1
        for node in self.nodes.values():
            node.start()

    # -- what must hold -------------------------------------------------------------------------------------------

    def check_committed(self, node: Node, entry: Entry) -> None:
        known = self.committed.setdefault(entry.index, entry)
        if known != entry:
            raise Violation(f"{node.me} commits {entry}, but {known} was committed")

    def check_leader(self, node: Node, raft: Raft) -> None:
        first = self.leaders.get(raft.term)
        if first is None:
            self.leaders[raft.term] = node.me
            self._check_complete(node, raft)
        elif first != node.me:
            raise Violation(f"term {raft.term} has two leaders: {first} and {node.me}")

    def _check_complete(self, node: Node, raft: Raft) -> None:
        """A new leader has whatever was committed in an earlier term."""
        for index, entry in self.committed.items():
            if entry.term < raft.term and index > raft.log.snapshot.index and raft.log.entry(index) != entry:
                raise Violation(f"leader {node.me} of term {raft.term} lacks the committed {entry}")

    def check_read(self, token: object, index: int) -> None:
        assert isinstance(token, int)
        if index < self.reads_asked[token]:
            raise Violation(
                f"a read saw {index}, but {self.reads_asked[token]} was committed before it began"
            )

    # -- a run ----------------------------------------------------------------------------------------------------

    def run(self, duration: float = 6_000, settle: float = 5_000) -> None:
        network = self.world.network
        network.loss = self.world.random.choice((0.0, 0.02, 0.15))
        network.duplication = self.world.random.choice((0.0, 0.1))
        network.delay_max = self.world.random.choice((3.0, 30.0, 120.0))
        self._propose_later()
        self._fault_later()
        self.world.run_until(duration)
        self.faults = False
        network.heal()
        network.loss = network.duplication = 0.0
        network.delay_max = 5.0
        for node in self.nodes.values():
            node.paused_until = 0.0
            if node.raft is None:
                node.start()
        self.world.run_until(duration + settle - QUIET)
        self.proposing = False
        self.world.run_until(duration + settle)
        self._check_settled()

    def _check_settled(self) -> None:
        leaders = [n for n in self.nodes.values() if n.raft is not None and n.raft.role is Role.LEADER]
        if not leaders and self.wiped:
            return  # too few voters may be left; that is for an operator
        if len(leaders) != 1:
            raise Violation(f"{len(leaders)} leaders after everything healed")
        leader = leaders[0]
        assert leader.raft is not None
        for voter in leader.raft.voters:
            node = self.nodes.get(voter.id)
            if node is not None and node.me == voter and node.applied != leader.applied:
                raise Violation(f"{voter} has applied something else than the leader")

    def _propose_later(self) -> None:
        def propose() -> None:
            for node in list(self.nodes.values()) if self.proposing else ():
                if node.raft is not None and self.world.now >= node.paused_until and self.world.chance(0.5):
                    self._act(node, node.raft)
            self._propose_later()

        self.world.after(self.world.random.uniform(5, 60), propose)

    def _act(self, node: Node, raft: Raft) -> None:
        choice = self.world.random.random()
        if choice < 0.75:
            self.proposals += 1
            raft.propose(b"p%d" % self.proposals)
        elif choice < 0.9:
            token = len(self.reads_asked)
            self.reads_asked[token] = max(self.committed, default=0)
            raft.read(token)
        elif choice < 0.93 and self.faults:
            raft.transfer(self.world.random.choice([other.me for other in self.nodes.values()]))
        elif choice < 0.96 and self.faults:
            self._change_voters(raft)
        node.work()

    def _change_voters(self, raft: Raft) -> None:
        voters = raft.voters
        if len(voters) > 3 or (len(voters) == 3 and self.world.chance(0.2)):
            gone = self.world.random.choice(voters)
            raft.change_voters(tuple(voter for voter in voters if voter != gone))
        elif raft.role is Role.LEADER and len(self.nodes) < 6:
            added = Voter(self._next_id, f"u{self._next_id}")
            self._next_id += 1
            if raft.change_voters((*voters, added)) is not None:
                self.nodes[added.id] = Node(self, added, Disk())
                self.nodes[added.id].start()

    # -- faults ---------------------------------------------------------------------------------------------------

    def _fault_later(self) -> None:
        def fault() -> None:
            if self.faults:
                self._one_fault()
                self._fault_later()

        self.world.after(self.world.random.expovariate(1 / 250), fault)

    def _wipe(self, node: Node) -> None:
        """A disk is lost. What comes back is another voter that nobody has asked to vote."""
        self.wiped = True
        node.crash()
        me, disk = Voter(node.me.id, "wiped"), Disk()
        if self.bugs.wiped_disk_keeps_uuid:
            first = tuple(Voter(number, f"u{number}") for number in range(1, self.size + 1))
            me, disk = node.me, Disk(snapshot=Snapshot(0, 0, first))
        self.nodes[me.id] = Node(self, me, disk)
        self.world.after(self.world.random.uniform(10, 300), self.nodes[me.id]._restart_if_down)

    def _one_fault(self) -> None:
        chance = self.world.random
        node = chance.choice(list(self.nodes.values()))
        kind = chance.random()
        everybody = {other.me for other in self.nodes.values()}
        if kind < 0.35:
            if node.raft is not None:
                node.crash()
                self.world.after(chance.uniform(10, 800), node._restart_if_down)
        elif kind < 0.5:
            self.world.network.isolate(set(chance.sample(sorted(everybody), chance.randint(1, 2))), everybody)
        elif kind < 0.6:
            self.world.network.cut(node.me, chance.choice(sorted(everybody)))
        elif kind < 0.63 and not self.wiped:
            self._wipe(node)
        elif kind < 0.75:
            node.paused_until = self.world.now + chance.uniform(50, 1_000)
        else:
            self.world.network.heal()
