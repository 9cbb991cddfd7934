"""ControllerSession: how a replica stays known to the controllers. Runs on the loop of its broker.

It finds the leader, sends heartbeats on a connection of its own, and hands out what the controllers decided, pushed or
answered, whichever comes first. A lease counts from the moment its heartbeat was *sent*, on a clock that goes on while
the machine sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec

from cometmq.clock import Clock, boot_ms
from cometmq.controller.config import SessionTimes
from cometmq.controller.replicas import GroupSnapshot, ReplicaIdentity, ReplicaStatus
from cometmq.controller.wire import (
    LEADER_FIELD,
    AlterSyncSetBody,
    Body,
    ControllerCode,
    GroupBody,
    HeartbeatBody,
    RegisterBody,
    RegisteredBody,
    ResignBody,
    SnapshotBody,
    request,
)
from cometmq.errors import BrokerError, ConnectionLost, Timeout
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.net.connection import Connection
from cometmq.protocol.command import RemotingCommand

__all__ = ["ControllerSession", "GroupSnapshot", "ReplicaIdentity", "ReplicaStatus", "SessionTimes"]

log = logging.getLogger(__name__)

RETRY_MS = 50  # between controllers that do not lead
CONNECT_MS = 500  # a controller on a machine that is gone must not keep us from the others
CALL_MS = 3_000
ANSWER_PART = 2  # of a lease: a controller that takes longer for a heartbeat is given up for the others
ANSWERS = frozenset((0, ControllerCode.REFUSED, ControllerCode.NOT_REGISTERED))  # of a leader


class ControllerSession:
    def __init__(
        self,
        peers: Iterable[str],
        identity: ReplicaIdentity,
        status: Callable[[], ReplicaStatus],
        on_view: Callable[[GroupSnapshot], None],
        times: SessionTimes | None = None,
        *,
        on_answer: Callable[[GroupSnapshot, int | None], None] | None = None,
        now: Clock = boot_ms,
    ) -> None:
        """``on_view`` gets every snapshot that is newer than the last. ``on_answer`` gets the snapshot of every
        answered heartbeat, and when that heartbeat was sent if the answer grants a lease (else None)."""
        self.peers = list(peers)
        self.identity = identity
        self.snapshot: GroupSnapshot | None = None
        self.leader_address = ""
        self.lease_until = -1
        self.answered_at = -1  # when the last answered heartbeat was sent
        self._times = times or SessionTimes()
        self._status = status
        self._on_view = on_view
        self._on_answer = on_answer
        self._now = now
        self._leased_epoch = 0
        self._registered = asyncio.Event()
        self._poke = asyncio.Event()
        self._how: tuple[bool, bool] = (False, False)  # unclean, corrupt: as we registered first
        net = NetConfig(connect_timeout_millis=CONNECT_MS)
        self._beats = RemotingClient({ControllerCode.ROLE_CHANGED: self._pushed}, config=net)
        self._calls = RemotingClient(config=net)
        self._rotation = itertools.cycle(self.peers)
        self.refusal = ""  # why the controllers do not want us
        self._unanswered = ""  # who did not answer last: somebody else is asked next
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Heartbeats begin as soon as ``register`` has succeeded."""
        self._task = asyncio.create_task(self._beat_forever(), name="controller-session")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._beats.close(grace_ms=100)
        await self._calls.close(grace_ms=100)

    # -- what the replica asks --------------------------------------------------------------------------------------

    @property
    def replica_id(self) -> int:
        return self.identity.replica_id

    def lease_valid(self, now: int | None = None) -> bool:
        """``now`` in milliseconds of ``cometmq.clock.boot_ms``."""
        held = self.snapshot is not None and self.snapshot.view.master == self.identity.replica_id
        return held and (self._now() if now is None else now) < self.lease_until

    def poke(self) -> None:
        """Send a heartbeat now: something changed that the controllers should know (a stream was closed)."""
        self._poke.set()

    async def register(self, unclean: bool = False, corrupt: bool = False, timeout_ms: int = 60_000) -> int:
        """Become known; returns our id. Waits for a leader; raises BrokerError when we are refused."""
        self._how = (unclean, corrupt)
        me = self.identity
        body = RegisterBody(
            me.group,
            me.replica_id,
            me.store_id,
            me.address,
            me.ha_address,
            me.caps,
            unclean,
            corrupt,
            me.settings,
            self._status().last_epoch,
        )
        answer = await self._call(ControllerCode.REGISTER, body, timeout_ms)
        if answer.code != 0:
            raise BrokerError(answer.code, answer.remark, self.leader_address)
        found = msgspec.json.decode(answer.body, type=RegisteredBody)
        self.identity = replace(me, replica_id=found.replica_id)
        self._registered.set()
        return found.replica_id

    async def is_known(self, timeout_ms: int = 60_000) -> bool:
        """Has any replica of our group registered? Waits for a leader."""
        answer = await self._call(ControllerCode.GET_GROUP_STATE, GroupBody(), timeout_ms)
        return self.identity.group in msgspec.json.decode(answer.body, type=dict[str, msgspec.Raw])

    async def alter_sync_set(self, epoch: int, set_version: int, members: Iterable[int]) -> bool:
        """False: refused, or not known; ask again while it is wanted."""
        me = self.identity
        body = AlterSyncSetBody(me.group, me.replica_id, epoch, set_version, tuple(sorted(members)))
        return await self._decided(ControllerCode.ALTER_SYNC_SET, body, self._times.lease)

    async def resign(self, epoch: int, preferred: int | None = None) -> bool:
        """Hand over: True when another master is elected."""
        me = self.identity
        return await self._decided(
            ControllerCode.RESIGN, ResignBody(me.group, me.replica_id, epoch, preferred or 0)
        )

    async def _decided(self, code: ControllerCode, body: Body, attempt_ms: int = CALL_MS) -> bool:
        try:
            answer = await self._call(code, body, CALL_MS, attempt_ms)
        except (Timeout, ConnectionLost) as error:
            log.warning("controller request=%s unanswered: %s", code.name, error)
            return False
        if answer.code == 0:
            self._take(answer)
            return True
        log.info("controller request=%s refused: %s", code.name, answer.remark)
        if answer.body:
            self._take(answer)
        return False

    # -- finding the leader -----------------------------------------------------------------------------------------

    async def _call(
        self, code: ControllerCode, body: Body, timeout_ms: int, attempt_ms: int = CALL_MS
    ) -> RemotingCommand:
        """Ask the leader, whoever that is; the timeout covers the search."""
        deadline = self._now() + timeout_ms
        while True:
            left = deadline - self._now()
            if left <= 0:
                raise Timeout(
                    f"No leader among the controllers {', '.join(self.peers)} within {timeout_ms} ms."
                )
            address = self._next_address()
            try:
                answer = await self._calls.invoke(address, request(code, body), min(left, attempt_ms))
            except (ConnectionLost, Timeout):
                self._lost(address)
            else:
                if answer.code in ANSWERS:
                    self.leader_address = address
                    return answer
                self._redirect(address, answer)
            if not self.leader_address:
                await asyncio.sleep(RETRY_MS / 1000)

    def _next_address(self) -> str:
        if self.leader_address:
            return self.leader_address
        address = next(self._rotation)
        return next(self._rotation) if address == self._unanswered else address

    def _lost(self, address: str) -> None:
        self._unanswered = address
        if self.leader_address == address:
            self.leader_address = ""

    def _redirect(self, address: str, answer: RemotingCommand) -> None:
        """It may name one who has just not answered us: until they elect, others believe in it, and may be right."""
        hint = (answer.ext_fields or {}).get(LEADER_FIELD, "")
        self.leader_address = hint if hint != address else ""

    @property
    def _answer_ms(self) -> int:
        return max(self._times.lease // ANSWER_PART, 2 * self._times.heartbeat)

    # -- heartbeats -------------------------------------------------------------------------------------------------

    async def _beat_forever(self) -> None:
        await self._registered.wait()
        while True:
            sent = self._now()
            self._poke.clear()
            answered = await self._beat(sent)
            pause = self._times.heartbeat - (self._now() - sent) if answered else self._retry_pause()
            if pause > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause / 1000):
                        await self._poke.wait()

    def _retry_pause(self) -> int:
        return 0 if self.leader_address else RETRY_MS

    async def _beat(self, sent: int) -> bool:
        me = self.identity
        body = HeartbeatBody(me.group, me.replica_id, me.store_id, self._status(), self._leased_epoch)
        address = self._next_address()
        try:
            answer = await self._beats.invoke(
                address, request(ControllerCode.HEARTBEAT, body), self._answer_ms
            )
        except (ConnectionLost, Timeout):
            self._lost(address)
            return False
        if answer.code == ControllerCode.NOT_LEADER:
            self._redirect(address, answer)
            return False
        self.leader_address = address
        if answer.code == ControllerCode.NOT_REGISTERED:
            await self._register_again()
        elif answer.code == 0:
            self._answered(answer, sent)
        elif answer.code != ControllerCode.REFUSED:  # something else listens there now
            self._lost(address)
            return False
        else:
            self._refused(address, answer.remark or "no reason given")
        return True

    def _refused(self, address: str, why: str) -> None:
        """Most likely for ever: an operator has removed us."""
        if why != self.refusal:
            log.error(
                "event=REFUSED this replica does not belong to its group: %s controller=%s", why, address
            )
        self.refusal = why

    async def _register_again(self) -> None:
        """The controllers do not know us (their group is new): what we said at our start still holds."""
        try:
            await self.register(*self._how, timeout_ms=self._times.timeout)
        except (BrokerError, Timeout, ConnectionLost) as error:
            log.error(
                "group=%s replica=%s is not registered: %s", self.identity.group, self.replica_id, error
            )

    def _answered(self, answer: RemotingCommand, sent: int) -> None:
        body = self._take(answer)
        self.answered_at = sent
        self.refusal = ""
        granted = body.lease and body.view.master == self.identity.replica_id
        if granted:
            self.lease_until = max(self.lease_until, sent + self._times.lease)
            self._leased_epoch = body.view.epoch
        if self._on_answer is not None:
            self._on_answer(body.snapshot(), sent if granted else None)

    def _take(self, answer: RemotingCommand) -> SnapshotBody:
        body = msgspec.json.decode(answer.body, type=SnapshotBody)
        known = self.snapshot
        if known is None or body.revision > known.revision:
            self.snapshot = body.snapshot()
            if known is None or replace(self.snapshot, revision=known.revision) != known:
                self._on_view(self.snapshot)
        return body

    def _pushed(self, _connection: Connection, command: RemotingCommand) -> None:
        self._take(command)
