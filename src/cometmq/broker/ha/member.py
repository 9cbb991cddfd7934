"""Member: one replica of a group that elects its master, with a real store, real connections and real time.

Theory of operation. All decisions are made by ``Replica`` (replica.py), which knows no sockets; this class brings it
frames, views of the controllers, growth of the log and time, and carries out what it wants: frames go to links, a
greeting opens a connection, a wish to change the in-sync set goes to the controllers. After every such turn
(``_settle``) the store hears what is confirmed, waiting sends are answered, and ``roles`` hears whether we are master.
Connections are kept by ``Peers``. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.broker.ha.confirm_waits import ConfirmWaits
from cometmq.broker.ha.frames import Ack, AlterSyncSet, Close, Hello
from cometmq.broker.ha.gathering import Gathering
from cometmq.broker.ha.log_sums import LogSums, Piece, sum_up
from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.peers import Peers
from cometmq.broker.ha.replica import Replica, Standing
from cometmq.broker.ha.replica_log import StoreLog
from cometmq.broker.ha.replica_state import ReplicaRole, ReplicaTimes
from cometmq.broker.ha.tail_sums import TailSums
from cometmq.broker.ha.truncation import Truncation
from cometmq.clock import boot_ms
from cometmq.controller.session import ControllerSession, GroupSnapshot, ReplicaIdentity, ReplicaStatus
from cometmq.errors import StoreError
from cometmq.store.model import PutResult, PutStatus
from cometmq.store.residency_cy import read_in

if TYPE_CHECKING:
    from cometmq.broker.config import BrokerConfig
    from cometmq.broker.ha.member_files import MemberFiles
    from cometmq.broker.ha.meta_stream import MetaStream
    from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

TICKS_PER_PING = 4
CONFIRM_SAVE_MS = 1_000
FOUNDING_PAUSE_S = 0.3  # that a replica without a log leaves to one that has one, when their group begins
FENCED_LEASES = 2  # after so many lease times without a lease a master that cannot append leaves the routes


class Roles(Protocol):
    """What the broker does when the replica's role changes."""

    def became_master(self, epoch: int) -> None: ...

    def serving(self) -> None:
        """Everything of earlier masters is confirmed: work that reads the log and writes to it may begin."""

    def became_follower(self) -> None: ...

    def fenced(self, gone: bool) -> None:
        """Still master by name, but nobody should come here (or they may again)."""

    def failed(self, error: BaseException | None) -> None: ...


class Member:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        files: MemberFiles,
        roles: Roles,
        on_cut: Callable[[], None],
        *,
        damaged: bool = False,
    ) -> None:
        """The store is open; ``damaged``: recovery had to cut off more than an unfinished record."""
        self.config = config
        self.files = files
        self.session: ControllerSession | None = None
        self.snapshot: GroupSnapshot | None = None
        self.waits = ConfirmWaits(lambda: config.slave_timeout)
        self.peers = Peers(self)
        self.meta: MetaStream | None = None
        self.on_confirm: Callable[[], None] = lambda: None
        self.elections = 0
        self._store = store
        self._roles = roles
        self._sums = LogSums(files.directory / "sums")
        self._tail_sums = TailSums(files.directory / "tail-sums", files.session.boot_id)
        self._on_cut = on_cut
        truncation = Truncation(files.directory / "truncate.intent", store, files.epochs, self._log_was_cut)
        redone = truncation.finish_last()
        if redone is not None:
            log.warning("event=CUT_FINISHED a cut of the log was completed offset=%d", redone)
        self.log = StoreLog(store, files.epochs, truncation, files.directory)
        hint = files.confirmed.offset if files.confirmed is not None else 0
        damaged = self._cut_damage() or damaged
        self.corrupt = damaged or hint > self.log.max_offset  # confirmed bytes may be missing
        if self.corrupt:
            log.error("event=REPLICA_CORRUPT records are missing from offset=%d on; they are copied from the master",
                      self.log.max_offset)  # fmt: skip
        self.core = Replica(
            files.identity.replica_id,
            self.log,
            now=boot_ms(),
            confirm=hint,
            acks_are_flushed=config.flush_disk_type == "SYNC_FLUSH" and self.in_sync_level,
            times=replica_times(config),
            first_session=files.session.first_connection,
        )
        self._master_epoch = 0  # as which we serve, 0 if not
        self._serving = False
        self._altering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._saved_at = 0
        self._saving: asyncio.Future[tuple[int, list[Piece]]] | None = None
        self._fenced = False
        self._fenced_since = boot_ms()
        self._master_silent = False
        self._warming: asyncio.Future[None] | None = None
        self._gathering = Gathering(self._grown, lambda: self.in_sync_level)
        self.stopping = False
        self._ends = (0, 0)

    def _cut_damage(self) -> bool:
        """Bits have flipped in the log since it was written: what is behind them has to be copied."""
        read = self._store.read_log
        found = (self._sums.first_wrong(read), self._tail_sums.first_wrong(read))
        wrong = min((offset for offset in found if offset is not None), default=None)
        if wrong is not None:
            log.error(
                "event=LOG_DAMAGED the log is not what it was from offset=%d on; it is cut there", wrong
            )
            self._store.truncate(wrong)
        self._sums_were_cut()
        return wrong is not None

    def _sums_were_cut(self) -> None:
        self._sums.cut(self._store.max_physical_offset)
        self._tail_sums.begin(self._store.max_physical_offset)

    def _log_was_cut(self) -> None:
        self._sums_were_cut()
        self._on_cut()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(
        self, session_of: Callable[[ReplicaIdentity], ControllerSession], identity: ReplicaIdentity
    ) -> None:
        """Be known to the controllers; they say what we are."""
        self.session = session_of(identity)
        self._store.on_append = self._log_grew
        self._store.may_append = self.may_append
        await self.session.start()
        self._tick()

    async def register(self) -> None:
        """Answers when the controllers know us, however long that takes."""
        assert self.session is not None
        unclean = self.files.session.unclean and not self.core_acks_flushed
        if unclean:
            log.warning("event=UNCLEAN_START the machine went down; confirmed bytes may be missing here")
        if self.log.max_offset == 0 and not await self.session.is_known(timeout_ms=2**31):
            # Whoever registers first begins the group with its log. We have none: another one may.
            await asyncio.sleep(FOUNDING_PAUSE_S)
        await self.session.register(unclean, self.corrupt, timeout_ms=2**31)

    @property
    def core_acks_flushed(self) -> bool:
        return self.config.flush_disk_type == "SYNC_FLUSH" and self.in_sync_level

    async def stop(self) -> None:
        self.stopping = True
        self.waits.give_up()
        if self._timer is not None:
            self._timer.cancel()
        if self._altering is not None:
            self._altering.cancel()
            await asyncio.gather(self._altering, return_exceptions=True)
        await self.peers.stop()
        if self.session is not None:
            await self.session.stop()
        self._store.on_append = None
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        if self.core.role is not ReplicaRole.FAILED:
            self.files.save_confirmed(self.core.confirm_to_keep, self.core.epoch)
        self._ends = (self._store.max_physical_offset, self._store.flushed_offset)

    def closed(self) -> None:
        """The store was flushed and closed."""
        if self.core.role is not ReplicaRole.FAILED and self._store.healthy:
            self.files.session.end(*self._ends)

    # -- what the broker asks -------------------------------------------------------------------------------------

    @property
    def in_sync_level(self) -> bool:
        """Are sends answered when they are confirmed (else when they are on the master)?"""
        return self.config.broker_role == "SYNC_MASTER"

    @property
    def is_master(self) -> bool:
        return self._master_epoch > 0

    @property
    def is_serving(self) -> bool:
        return self._serving

    @property
    def has_lease(self) -> bool:
        return self.core.has_lease(boot_ms())

    def may_append(self) -> bool:
        now = boot_ms()
        return self.core.may_append(now) and (self.in_sync_level or self.core.has_lease(now))

    def may_answer(self) -> bool:
        """Is it still true that a message stored here alone will count? Asked before such an answer goes out."""
        return self.in_sync_level or self.has_lease

    def must_wait(self, result: PutResult) -> bool:
        return self.in_sync_level and result.end_offset > self.core.confirm

    def wait(self, result: PutResult, callback: Callable[[PutStatus], None]) -> None:
        self.waits.add(result.end_offset, callback)

    @property
    def master_address(self) -> str:
        """Where clients find the master, empty if there is none that we know."""
        if self.snapshot is None or self.snapshot.view.master not in self.snapshot.replicas:
            return ""
        return self.snapshot.replicas[self.snapshot.view.master].address

    def hint(self) -> dict[str, str]:
        """For clients that came to the wrong broker."""
        if not self.master_address:
            return {}
        return {"masterAddr": self.master_address, "masterEpoch": str(self.core.view.epoch)}

    # -- controllers ----------------------------------------------------------------------------------------------

    def status(self) -> ReplicaStatus:
        """Part of each heartbeat."""
        return ReplicaStatus(*self.core.status(boot_ms()))

    def on_answer(self, snapshot: GroupSnapshot, sent: int | None) -> None:
        if self.snapshot is None or snapshot.revision >= self.snapshot.revision:
            self.snapshot = snapshot
        self.turn(self.core.on_view, snapshot.view, sent, boot_ms())

    def _alter(self, proposal: AlterSyncSet) -> None:
        if self._altering is None or self._altering.done():
            self._altering = asyncio.get_running_loop().create_task(self._alter_now(proposal))

    async def _alter_now(self, proposal: AlterSyncSet) -> None:
        assert self.session is not None
        _, epoch, set_version, members = proposal
        log.info("event=SYNC_SET_WANTED epoch=%d members=%s", epoch, sorted(members))
        await self.session.alter_sync_set(epoch, set_version, members)

    # -- time and the log -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = boot_ms()
        if not self._store.healthy:
            # A sync that failed proves nothing when it works again: others have the bytes, we go.
            self.fail(StoreError("the commit log could not be synced"))
            return
        self.turn(self.core.tick, now)
        if now - self._saved_at >= CONFIRM_SAVE_MS:
            self._saved_at = now
            self._save_confirmed()
        self._mind_fence(now)
        self._mind_silence(now)
        pause_s = self.config.ha_heartbeat_ms / TICKS_PER_PING / 1000
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _save_confirmed(self) -> None:
        """In a thread: it is a hint, and nobody shall wait for a disk because of it."""
        if self._saving is None or self._saving.done():
            sure = min(self.core.confirm, self._store.flushed_offset)
            parts = self._sums.unsummed(self._store.read_log, max(self._store.min_physical_offset, 0), sure)
            self._saving = asyncio.get_running_loop().run_in_executor(
                None, self._save, self.core.confirm_to_keep, self.core.epoch, self._sums.version, parts
            )
            self._saving.add_done_callback(self._confirmed_saved)

    def _save(
        self, offset: int, epoch: int, version: int, parts: list[tuple[int, memoryview]]
    ) -> tuple[int, list[Piece]]:
        """In the thread."""
        self.files.save_confirmed(offset, epoch)
        return version, sum_up(parts)

    def _confirmed_saved(self, saving: asyncio.Future[tuple[int, list[Piece]]]) -> None:
        if saving.cancelled():
            return
        if (error := saving.exception()) is None:
            with contextlib.suppress(OSError):  # only a help
                self._sums.add(*saving.result())
            return
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return  # only a hint, and nothing is wrong with the old one; whoever needs the room will complain
        self.fail(error)

    def _mind_fence(self, now: int) -> None:
        """A master that has had no lease for a while and may not append is no address for clients."""
        core = self.core
        if core.standing(now) is not Standing.FENCED or core.has_lease(now) or core.resigning:
            self._fenced_since = now
        gone = now - self._fenced_since > FENCED_LEASES * self.config.ha_lease_ms
        if gone != self._fenced and self.is_master:
            self._roles.fenced(gone)
        self._fenced = gone

    def _mind_silence(self, now: int) -> None:
        """A master that was silent for too long is dead when every replica has said so: do not wait with it."""
        silent = self.core.status(now).master_silence >= self.config.ha_session_timeout_ms
        if silent and not self._master_silent and self.session is not None:
            self.session.poke()
        self._master_silent = silent

    def _log_grew(self) -> None:
        """Inside an append."""
        self._tail_sums.grew(self._store.read_log, self._store.max_physical_offset)
        if self.core.role is ReplicaRole.MASTER:
            self._gathering.grew()

    def _grown(self) -> None:
        if self.stopping:
            return
        self.want_flush()
        self.turn(self.core.grown, boot_ms())

    def want_flush(self) -> None:
        """Where acknowledgements mean the disk, do not leave the flush to chance."""
        if self.core_acks_flushed:
            self._store.flush_waiter(self._store.max_physical_offset, self._flushed)

    def _flushed(self, ok: bool) -> None:
        if ok and not self.stopping:
            self.turn(self.core.flushed, boot_ms())

    # -- one turn -------------------------------------------------------------------------------------------------

    def turn(self, step: Callable[..., object] = lambda: None, *args: Any) -> None:
        """Run a step of the state machine and carry out what it wants; a disk that fails ends our part in the group."""
        try:
            step(*args)
            self._settle()
        except (OSError, StoreError) as error:
            self.fail(error)

    def _settle(self) -> None:
        self._carry_out()
        if self.log.gone:
            self._drop_late_followers()
        if self.log.cold is not None and self._warming is None:
            self._warm()
        core = self.core
        if core.role is ReplicaRole.FAILED:
            self.fail(None)
            return
        master = core.role is ReplicaRole.MASTER
        if master and self._master_epoch != core.epoch:
            self._promoted()
        elif not master and self._master_epoch:
            self._demoted()
        if core.confirm > self._store.confirmed_offset:
            self._store.confirm(core.confirm)
            self.on_confirm()
        if self.waits:
            alone = core.view.sync_set == {core.me}
            self.waits.confirmed(core.confirm, PutStatus.SLAVE_NOT_AVAILABLE if alone else PutStatus.PUT_OK)
        if self.meta is not None:
            self.meta.look()
        if master and not self._serving and core.confirm >= core.epoch_start:
            self._serving = True
            self._roles.serving()

    def _carry_out(self) -> None:
        touched: dict[int, PeerLink] = {}
        ack: Ack | None = None
        for output in self.core.take():
            if isinstance(output, AlterSyncSet):
                self._alter(output)
            elif isinstance(output, Close):
                self.peers.close(output.to, "it may lack bytes it has acknowledged")
            elif isinstance(output.frame, Hello):
                self.peers.greet(output.to, output.frame)
            elif isinstance(output.frame, Ack):
                ack = output.frame  # later ones say more
            elif (link := self.peers.send(output.to, output.frame)) is not None:
                touched[id(link)] = link
        if ack is not None:
            self.peers.acknowledge(ack)
        for link in touched.values():
            link.flush()

    def _warm(self) -> None:
        """Read pages for a follower far behind in a thread, then go on with it."""
        part, self.log.cold = self.log.cold, None
        assert part is not None
        self._warming = asyncio.get_running_loop().run_in_executor(None, read_in, part)
        self._warming.add_done_callback(self._warmed)

    def _warmed(self, warming: asyncio.Future[None]) -> None:
        self._warming = None
        if not self.stopping and not warming.cancelled():
            self.turn(self.core.grown, boot_ms())

    def _drop_late_followers(self) -> None:
        """What they need has left the log: they shake hands again and begin anew."""
        gone, self.log.gone = self.log.gone, set()
        for number, stream in list(self.core.in_sync.streams.items()):
            if stream.next_offset in gone:
                self.peers.close(number, "what it needs has left the log")

    def _promoted(self) -> None:
        core = self.core
        self._master_epoch = core.epoch
        self._serving = False
        self.elections += 1
        self.peers.close_followers()  # handshakes of an earlier epoch do not count
        self.peers.close_master()
        log.warning("event=BECAME_MASTER group=%s epoch=%d offset=%d confirmed=%d",
                    self.files.identity.group, core.epoch, self.log.max_offset, core.confirm)  # fmt: skip
        self._store.become_master()
        self._roles.became_master(core.epoch)

    def _demoted(self) -> None:
        log.warning("event=LOST_MASTERSHIP group=%s epoch=%d next_epoch=%d",
                    self.files.identity.group, self._master_epoch, self.core.view.epoch)  # fmt: skip
        self._master_epoch = 0
        self._serving = False
        self.peers.close_followers()
        self._store.become_slave()
        self.waits.give_up()
        self._roles.became_follower()

    def fail(self, error: BaseException | None) -> None:
        if self.stopping:
            return
        self.stopping = True
        log.critical("event=REPLICA_FAILED group=%s replica=%d: %s", self.files.identity.group, self.core.me,
                     error or "it would have to cut confirmed bytes")  # fmt: skip
        self.core.role = ReplicaRole.FAILED
        self._store.become_slave()
        self.waits.give_up()
        self._roles.failed(error)


def replica_times(config: BrokerConfig) -> ReplicaTimes:
    return ReplicaTimes(
        ping=config.ha_heartbeat_ms,
        lease=config.ha_lease_ms,
        silence=config.ha_session_timeout_ms,
        drop=config.ha_drop_delay_ms,
        catch_up=config.ha_max_time_slave_not_catchup,
    )
