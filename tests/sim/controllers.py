"""A simulated controller: a voter of the metadata Raft whose entries are the commands of one group.

The leader listens to the sessions of the replicas, decides by ``elections``, and answers heartbeats once a round of
its followers has proved that it still leads.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from sim.planted import Bugs
from sim.raft_cluster import Disk, Node

from cometmq.controller.commands import can_shrink
from cometmq.controller.elections import Depose, Elect, ElectionTimes, GroupWatch, Report
from cometmq.controller.group_state import NO_MASTER, GroupState
from cometmq.controller.raft.core import Raft, Role
from cometmq.controller.raft.messages import Entry, EntryKind, Message, Snapshot, Step, Voter

if TYPE_CHECKING:
    from sim.group_world import GroupWorld

TIMES = ElectionTimes(session_timeout=300, disconnect_grace=50)
Command = tuple[str, tuple[Any, ...], int, int]  # name, arguments, replica that asked, its start


class Metadata:
    """What the entries lead to."""

    def __init__(self, state: GroupState, bugs: Bugs) -> None:
        self.state = state
        self.bugs = bugs
        self.starts: dict[int, int] = {}  # replica -> its latest start that registered
        self.removed: set[int] = set()  # ids that are never used again

    def apply(self, command: Command) -> bool:
        name, arguments, replica, start = command
        if name == "remove":
            done = can_shrink(self.state) and self.state.remove(*arguments)
            self.removed |= set(arguments) if done else set()
            return done
        if name == "register":
            if start <= self.starts.get(replica, -1) or replica in self.removed:
                return replica not in self.removed  # asked twice
            self.starts[replica] = start
            store, unclean, corrupt = arguments
            done = self.state.register(replica, store, unclean=unclean, corrupt=corrupt)
            if self.bugs.unclean_leaves_quorum:
                self.state._set_in_sync(self.state.view.sync_set - self.state.view.unclean)
            return done
        is_void = name == "alter_sync_set" and not arguments[-1] <= self.state.stores.keys()
        if is_void and self.bugs.void_proposals_stay:
            return False
        if name == "elect_unfenced":  # planted
            self.state.view = self.state.view._replace(master=NO_MASTER)
            name = "elect"
        return bool(getattr(self.state, name)(*arguments))


class ControllerNode(Node):
    """A voter and what it has applied."""

    cluster: GroupWorld  # type: ignore[assignment]

    def __init__(self, group: GroupWorld, me: Voter, disk: Disk) -> None:
        super().__init__(group, me, disk)  # type: ignore[arg-type]
        self.metadata = Metadata(group.new_state(), group.bugs)
        self.broken = False  # its disk is bad: it does not vote until it is somebody new
        self._watch: GroupWatch | None = None
        self._reading: list[tuple[int, int, float]] | None = None
        self._waiting: list[tuple[int, int, float]] = []
        self._decided_at = 0  # index of the last decision that was proposed

    @property
    def leads(self) -> bool:
        return self.raft is not None and self.raft.role is Role.LEADER

    # -- the log --------------------------------------------------------------------------------------------------

    def _load(self, snapshot: Snapshot) -> None:
        self.metadata = (
            pickle.loads(snapshot.data)
            if snapshot.data
            else Metadata(self.cluster.new_state(), self.cluster.bugs)
        )
        self.applied_index = snapshot.index

    def _apply(self, raft: Raft, step: Step) -> None:
        if step.snapshot is not None and step.snapshot.index > self.applied_index:
            self._load(step.snapshot)
        for entry in step.committed:
            self.cluster.check_committed(self, entry)
            self.applied_index = entry.index
            if entry.kind is EntryKind.COMMAND:
                self._apply_command(entry)
        for read in step.reads:
            self._answer_heartbeats(read.token)
        if self.applied_index - raft.log.snapshot.index > self.cluster.compact_after:
            raft.compact(self.applied_index, pickle.dumps(self.metadata))

    def _apply_command(self, entry: Entry) -> None:
        command: Command = pickle.loads(entry.data)
        before = self.metadata.state.view
        self.metadata.apply(command)
        if not self.leads:
            return
        name, _, replica, start = command
        if name == "register":
            if self._watch is not None:
                self._watch.registered(replica, self.clock())
            self._send(replica, "removed" if replica in self.metadata.removed else "registered", start)
        if self.metadata.state.view != before:
            for known, known_start in self.metadata.starts.items():
                self._send(known, "view", known_start, self.metadata.state.view, None)

    def _propose(self, name: str, arguments: tuple[Any, ...], replica: int = 0, start: int = 0) -> int:
        assert self.raft is not None
        return self.raft.propose(pickle.dumps((name, arguments, replica, start))) or 0

    # -- time -----------------------------------------------------------------------------------------------------

    def tick_more(self) -> None:
        if not self.leads:
            self._watch = self._reading = None
            self._waiting = []
            return
        if self._watch is None:
            self._watch = GroupWatch(TIMES, self.clock())
            self._decided_at = 0
        if self._decided_at <= self.applied_index:
            self._decided_at = self._decide(self._watch)

    def _decide(self, watch: GroupWatch) -> int:
        state = self.metadata.state
        decision = watch.decide(state, self.clock())
        if self.cluster.bugs.elects_without_fence and isinstance(decision, Depose):
            best = watch._elect(state, self.clock(), 0, "", without=state.view.master)
            return self._propose("elect_unfenced", best[:3]) if best is not None else 0
        return self._propose_decision(decision)

    def _propose_decision(self, decision: Elect | Depose | None) -> int:
        if isinstance(decision, Elect):
            return self._propose("elect", decision[:3])
        return self._propose("depose", decision[:2]) if decision is not None else 0

    # -- sessions -------------------------------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        if isinstance(message, Message):
            super().receive(message)
        elif self.raft is not None and self.world.now >= self.paused_until:
            self._on_request(*message)
            self.work()

    def _on_request(self, kind: str, replica: int, start: int, *rest: Any) -> None:
        raft = self.raft
        assert raft is not None
        if raft.role is not Role.LEADER:
            self._send(replica, "redirect", start, raft.leader.id if raft.leader is not None else None)
            return
        if kind == "register":
            self._propose("register", rest, replica, start)
            return
        if self.metadata.starts.get(replica) != start:
            return
        if replica not in self.metadata.state.stores:
            self._send(replica, "removed", start)
        elif kind == "heartbeat":
            self._on_heartbeat(replica, start, *rest)
        elif kind == "alter":
            self._propose("alter_sync_set", rest[0])
        elif kind == "resign" and self._watch is not None:
            view = self.metadata.state.view
            if (view.master, view.epoch) == (replica, rest[0]):
                self._propose_decision(self._watch.resign(self.metadata.state, self.clock()))

    def _on_heartbeat(self, replica: int, start: int, report: Report, sent: float) -> None:
        if self._watch is not None:
            self._watch.heard(report, self.clock())
        self._waiting.append((replica, start, sent))
        if self._reading is None:
            self._read()

    def _read(self) -> None:
        assert self.raft is not None
        self._reading, self._waiting = self._waiting, []
        if not self.raft.read(self._reading):
            self._reading = None

    def _answer_heartbeats(self, asked: Any) -> None:
        for replica, start, sent in asked:
            self._send(replica, "view", start, self.metadata.state.view, sent)
        self._reading = None
        if self._waiting and self.leads:
            self._read()

    def lose_session(self, replica: int) -> None:
        if self._watch is not None and self.world.now >= self.paused_until:
            self._watch.closed(replica, self.clock())

    def _send(self, replica: int, kind: str, start: int, *rest: Any) -> None:
        self.world.network.send(self.me, replica, (kind, start, *rest))
