"""VoterNode drives the Raft core of one voter: timer, messages in and out, files, what is committed. Loop thread only.

The order of one step is the heart of it: write and sync, tell the core, send, apply. Syncing blocks the loop on
purpose: nothing may overtake it, and the loop has nothing else to do than to be a voter. A disk error is final.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from cometmq.controller.metadata import NotLeader
from cometmq.controller.raft.codec import Hello, decode_hello, decode_message, encode_hello, encode_message
from cometmq.controller.raft.core import Raft, RaftTimes, Role
from cometmq.controller.raft.messages import (
    AppendRequest,
    Entry,
    HardState,
    Message,
    Snapshot,
    SnapshotRequest,
    Step,
    Voter,
)
from cometmq.controller.voter.files import DiskFailed
from cometmq.controller.voter.links import VoterLinks
from cometmq.controller.voter.storage import RaftStorage
from cometmq.errors import RemoteProtocolError, Timeout
from cometmq.net.connection import Connection
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)

COMPACT_AFTER = 1_000  # entries
TICKS_PER_HEARTBEAT = 4
WARN_AGAIN_SECONDS = 10.0


@dataclass(slots=True)
class TickLateness:
    """How late the timer was, in milliseconds: a voter that is kept from running disturbs the others."""

    last_ms: float = 0.0
    worst_ms: float = 0.0
    warnings: int = 0


class StateMachine:
    """What is decided; the driver hands it everything in order."""

    def apply(self, entry: Entry) -> None:
        raise NotImplementedError

    def load(self, snapshot: Snapshot) -> None:
        raise NotImplementedError

    def dump(self) -> bytes:
        raise NotImplementedError


class VoterNode:
    def __init__(
        self,
        storage: RaftStorage,
        peers: dict[int, str],
        machine: StateMachine,
        *,
        times: RaftTimes,
        compact_after: int = COMPACT_AFTER,
    ) -> None:
        self.storage = storage
        self.peers = dict(peers)  # id -> address
        self.machine = machine
        self.raft: Raft | None = None  # None until this voter belongs to a group
        self.applied_index = 0
        self.lateness = TickLateness()
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self.on_leadership: Callable[[bool], None] = lambda _leads: None
        self.on_stranger: Callable[[Hello], None] = lambda _hello: (
            None
        )  # a voter that we do not know says hello
        self.heard_at: dict[Voter, float] = {}
        self.invited_to = ""  # the group whose leader sends to us, although we do not belong to it yet
        self._times = times
        self._compact_after = compact_after
        self._links = VoterLinks(lambda voter: self.peers.get(voter, ""))
        self._reads: dict[object, asyncio.Future[None]] = {}
        self._proposed: dict[int, tuple[int, asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tick_at = 0.0
        self._hands_over_until = 0
        self._leads = False
        self._working = False
        self._open = False
        self._warned_at = float("-inf")

    # -- start and stop ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read the files; a member votes from now on, others wait to be let in."""
        kept = self.storage.open()
        self._open = True
        if self.storage.voter.cluster:
            self._begin(kept.snapshot, tuple(kept.entries), kept.hard_state)
        self._tick_at = asyncio.get_running_loop().time()
        self._schedule_tick()

    def join(self, cluster: str, first_voters: tuple[Voter, ...] = ()) -> None:
        """Belong to a group: one that begins with these voters, or one that will tell us everything."""
        self._begin(self.storage.join(cluster, first_voters), (), None)

    def _begin(self, snapshot: Snapshot, entries: tuple[Entry, ...], hard_state: HardState | None) -> None:
        self.raft = Raft(
            self.me,
            now=self._now(),
            random_between=random.randint,
            times=self._times,
            hard_state=hard_state,
            snapshot=snapshot,
            entries=entries,
        )
        self.machine.load(snapshot)
        self.applied_index = snapshot.index

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.raft = None
        self._give_up("This controller stops.")
        await self._links.close()
        self.storage.close()

    @property
    def me(self) -> Voter:
        return self.storage.me

    @property
    def leads(self) -> bool:
        """Leader, and everything that was decided before it was elected is applied."""
        return self._leads

    @property
    def leader_address(self) -> str:
        leader = self.raft.leader if self.raft is not None else None
        return self.peers.get(leader.id, "") if leader is not None else ""

    # -- what the metadata asks -------------------------------------------------------------------------------------

    async def propose(self, data: bytes, timeout_ms: int) -> int:
        """Index of the entry once it is applied."""
        raft = self._leading()
        index = raft.propose(data)
        if index is None:
            raise NotLeader(self.leader_address)
        return await self._settle(raft, index, timeout_ms)

    async def change_voters(self, voters: tuple[Voter, ...], timeout_ms: int) -> bool:
        """False: not possible now, ask again."""
        raft = self._leading()
        index = raft.change_voters(voters)
        if index is None:
            return False
        await self._settle(raft, index, timeout_ms)
        return True

    async def _settle(self, raft: Raft, index: int, timeout_ms: int) -> int:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._proposed[index] = (raft.term, future)
        self._work()
        await _within(future, timeout_ms, "The controllers did not decide")
        return index

    async def read(self, timeout_ms: int) -> None:
        """Return when everything that was decided before this call is applied here."""
        raft = self._leading()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not raft.read(future):
            raise NotLeader()
        self._reads[future] = future
        self._work()
        try:
            await _within(future, timeout_ms, "The controllers did not answer")
        finally:
            self._reads.pop(future, None)

    def transfer(self, to: Voter) -> bool:
        """Begin to hand over. To ask again meanwhile changes nothing: nothing can be proposed until it has happened or
        failed, and it would not fail as long as somebody asks."""
        raft, now = self._leading(), self._now()
        if now < self._hands_over_until:
            return True
        done = raft.transfer(to)
        if done:
            self._hands_over_until = now + self._times.election_max + self._times.heartbeat
        self._work()
        return done

    def _leading(self) -> Raft:
        if self.raft is None or self.raft.role is not Role.LEADER:
            raise NotLeader(self.leader_address)
        return self.raft

    # -- messages ---------------------------------------------------------------------------------------------------

    def serve(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Request 9107: one-way what voters say to each other, else a greeting."""
        if not self._open:
            return command.response(
                ResponseCode.SERVICE_NOT_AVAILABLE, "This voter has not read its files yet."
            )
        if not command.is_oneway:
            return command.response(body=encode_hello(self._greeted(decode_hello(command.body))))
        cluster, message = decode_message(command.body)
        if message.to != self.me or self.failure is not None:
            return None
        if self.raft is None:
            self._invited(cluster, message)
        if self.raft is None or cluster != self.storage.voter.cluster:
            return None
        self.heard_at[message.sender] = time.monotonic()
        self.raft.receive(message, self._now())
        self._work()
        return None

    def _invited(self, cluster: str, message: Message) -> None:
        """A leader has let us in. Its entries need not say who votes, and one who does not know that never leads: who
        the first voters were is asked for before we join (``Formation``)."""
        if isinstance(message, SnapshotRequest):
            self.join(cluster)
        elif isinstance(message, AppendRequest):
            self.invited_to = cluster

    def hello(self) -> Hello:
        voter = self.storage.voter
        first = self.raft.log.snapshot if self.raft is not None else Snapshot()
        return Hello(
            self.me,
            self.peers.get(self.me.id, ""),
            voter.cluster,
            fresh=not (voter.cluster or voter.former),
            first_voters=first.voters if first.index == 0 else (),
            leader=self.leader_address,
        )

    def _greeted(self, hello: Hello) -> Hello:
        if self._leads:
            self.on_stranger(hello)
        return self.hello()

    async def greet(self, address: str, timeout_ms: int) -> Hello:
        answer = await self._links.ask(address, encode_hello(self.hello()), timeout_ms)
        if answer.code != 0:
            raise RemoteProtocolError(f"The controller {address} answers {answer.code}: {answer.remark}")
        return decode_hello(answer.body)

    # -- time -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _now() -> int:
        return time.monotonic_ns() // 1_000_000

    def _schedule_tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._tick_at = max(self._tick_at + self._times.heartbeat / TICKS_PER_HEARTBEAT / 1000, loop.time())
        self._timer = loop.call_at(self._tick_at, self._tick)

    def _tick(self) -> None:
        self._measure_lateness()
        if self.failure is not None:
            return
        if self.raft is not None:
            self.raft.tick(self._now())
            self._work()
        self._schedule_tick()

    def _measure_lateness(self) -> None:
        late = (asyncio.get_running_loop().time() - self._tick_at) * 1000
        self.lateness.last_ms = late
        self.lateness.worst_ms = max(self.lateness.worst_ms, late)
        if late * 2 > self._times.election_min:
            self.lateness.warnings += 1
            if (now := time.monotonic()) - self._warned_at >= WARN_AGAIN_SECONDS:
                self._warned_at = now
                log.warning(
                    "voter=%s tick was %d ms late (for the %d. time): it is kept from running",
                    self.me.id,
                    late,
                    self.lateness.warnings,
                )

    # -- steps ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Do what the core asks for until it asks for nothing more."""
        if self._working:
            return  # the loop below goes on anyway
        self._working = True
        try:
            while (raft := self.raft) is not None:
                step = raft.take()
                if not (step.must_sync or step.messages or step.committed or step.reads):
                    break
                self._do(raft, step)
        except Exception as error:  # noqa: BLE001 - a voter that cannot do a step must not go on
            self._fail(error)
        finally:
            self._working = False
        self._notice_leadership()

    def _do(self, raft: Raft, step: Step) -> None:
        if step.must_sync:
            self.storage.write(step)
        raft.synced(step)
        for message in step.messages:
            self._send(message)
        if step.snapshot is not None and step.snapshot.index > self.applied_index:
            self.machine.load(step.snapshot)
            self.applied_index = step.snapshot.index
        for entry in step.committed:
            self._apply(entry)
        for read in step.reads:
            future = self._reads.pop(read.token, None)
            if future is not None and not future.done():
                future.set_result(None)
        if self.applied_index - raft.log.snapshot.index >= self._compact_after:
            raft.compact(self.applied_index, self.machine.dump())

    def _send(self, message: Message) -> None:
        self._links.send(message.to.id, encode_message(self.storage.voter.cluster, message))

    def _apply(self, entry: Entry) -> None:
        self.machine.apply(entry)
        self.applied_index = entry.index
        term, future = self._proposed.pop(entry.index, (0, None))
        if future is None or future.done():
            return
        if term == entry.term:
            future.set_result(None)
        else:
            future.set_exception(NotLeader(self.leader_address))

    def _notice_leadership(self) -> None:
        raft = self.raft
        leads = (
            raft is not None
            and raft.role is Role.LEADER
            and raft.log.term_at(self.applied_index) == raft.term
        )
        if raft is None or raft.role is not Role.LEADER:
            self._give_up("The leadership was lost before the decision was known.")
        if leads != self._leads:
            self._leads = leads
            self.on_leadership(leads)

    def _give_up(self, why: str) -> None:
        waiting = [future for _, future in self._proposed.values()] + list(self._reads.values())
        self._proposed, self._reads = {}, {}
        for future in waiting:
            if not future.done():
                future.set_exception(Timeout(why))

    def _fail(self, error: Exception) -> None:
        trace = None if isinstance(error, DiskFailed) else error
        log.critical("VOTER_FAILED voter=%s stops: %s", self.me.id, error, exc_info=trace)
        self.failure = error
        self.raft = None
        self._notice_leadership()
        self.on_failure(error)


async def _within(future: asyncio.Future[None], timeout_ms: int, what: str) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await future
    except TimeoutError as error:
        if isinstance(error, Timeout):
            raise
        raise Timeout(f"{what} within {timeout_ms} ms.") from None
