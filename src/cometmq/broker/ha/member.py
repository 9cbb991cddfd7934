"""Member: one replica of a group that elects its master, with a real store, real connections and real time.

Theory of operation. All decisions are made by ``Replica`` (replica.py), which knows no sockets; this class brings it
frames, views of the controllers, growth of the log and time, and carries out what it wants: frames go to links, a
greeting opens a connection, a wish to change the in-sync set goes to the controllers. After every such turn
(``_settle``) the store hears what is confirmed, waiting sends are answered, and ``roles`` hears whether we are master.
A connection is a session: what comes over a link is stamped with the session of that link. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.broker.ha.confirm_waits import ConfirmWaits
from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.replica import (
    Ack,
    AlterSyncSet,
    Close,
    Data,
    Fence,
    Frame,
    Hello,
    Replica,
    ReplicaRole,
    ReplicaTimes,
    Send,
    Welcome,
)
from cometmq.broker.ha.replica_log import StoreLog
from cometmq.broker.ha.truncation import Truncation
from cometmq.broker.ha.wire2 import (
    FrameType,
    WireFrame,
    decode_flushed,
    decode_greeting,
    encode_flushed,
    encode_greeting,
)
from cometmq.clock import boot_ms
from cometmq.controller.session import ControllerSession, GroupSnapshot, ReplicaIdentity, ReplicaStatus
from cometmq.errors import RemoteProtocolError, StoreError
from cometmq.net.addresses import parse_address
from cometmq.store.model import PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.config import BrokerConfig
    from cometmq.broker.ha.member_files import MemberFiles
    from cometmq.broker.ha.meta_stream import MetaStream
    from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
TICKS_PER_PING = 4
CONFIRM_SAVE_MS = 1_000
HANDSHAKE_MS = 3_000  # a connection that is not welcomed for this long is tried anew


class Roles(Protocol):
    """What the broker does when the replica's role changes."""

    def became_master(self, epoch: int) -> None: ...

    def serving(self) -> None:
        """Everything of earlier masters is confirmed: work that reads the log and writes to it may begin."""

    def became_follower(self) -> None: ...

    def failed(self, error: BaseException | None) -> None: ...


class Member:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        files: MemberFiles,
        roles: Roles,
        on_cut: Callable[[], None],
    ) -> None:
        """The store is open."""
        self.config = config
        self.files = files
        self.session: ControllerSession | None = None
        self.snapshot: GroupSnapshot | None = None
        self.waits = ConfirmWaits(lambda: config.slave_timeout)
        self.links: dict[int, PeerLink] = {}  # followers that follow us, by id
        self.master_link: PeerLink | None = None
        self.meta: MetaStream | None = None
        self.on_confirm: Callable[[], None] = lambda: None
        self.elections = 0
        self._store = store
        self._roles = roles
        truncation = Truncation(files.directory / "truncate.intent", store, files.epochs, on_cut)
        redone = truncation.finish_last()
        if redone is not None:
            log.warning("event=CUT_FINISHED a cut of the log was completed offset=%d", redone)
        self.log = StoreLog(store, files.epochs, truncation, files.directory)
        hint = files.confirmed.offset if files.confirmed is not None else 0
        self.corrupt = hint > self.log.max_offset  # confirmed bytes are missing
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
        self._connecting: asyncio.Task[None] | None = None
        self._unwritable = False  # said once
        self._unreached: tuple[int, str] | None = None  # said once
        self._greeted_at = 0
        self._greeted_epoch = 0
        self._altering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._saved_at = 0
        self._grown_scheduled = False
        self._stopping = False

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
        await self.session.register(unclean, self.corrupt, timeout_ms=2**31)

    @property
    def core_acks_flushed(self) -> bool:
        return self.config.flush_disk_type == "SYNC_FLUSH" and self.in_sync_level

    async def stop(self) -> None:
        self._stopping = True
        self.waits.give_up()
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._connecting, self._altering):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for link in [*self.links.values(), *([self.master_link] if self.master_link else [])]:
            link.close()
        if self.session is not None:
            await self.session.stop()
        self._store.on_append = None
        self.files.save_confirmed(self.core.confirm, self.core.epoch)

    def closed(self) -> None:
        """The store was flushed and closed."""
        self.files.session.end(self._store.max_physical_offset, self._store.flushed_offset)

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

    def on_view(self, snapshot: GroupSnapshot) -> None:
        self.on_answer(snapshot, None)

    def on_answer(self, snapshot: GroupSnapshot, sent: int | None) -> None:
        if self.snapshot is None or snapshot.revision >= self.snapshot.revision:
            self.snapshot = snapshot
        self._guarded(self.core.on_view, snapshot.view, sent, boot_ms())

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
            self._fail(StoreError("the commit log could not be synced"))
            return
        self._guarded(self.core.tick, now)
        if now - self._saved_at >= CONFIRM_SAVE_MS:
            self._saved_at = now
            self._guarded(self.files.save_confirmed, self.core.confirm, self.core.epoch)
        pause_s = self.config.ha_heartbeat_ms / TICKS_PER_PING / 1000
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _log_grew(self) -> None:
        """Inside an append: everything that one turn of the loop appends is sent together."""
        if not self._grown_scheduled and self.core.role is ReplicaRole.MASTER:
            self._grown_scheduled = True
            asyncio.get_running_loop().call_soon(self._grown)

    def _grown(self) -> None:
        self._grown_scheduled = False
        self._want_flush()
        self._guarded(self.core.grown, boot_ms())

    def _want_flush(self) -> None:
        """Where acknowledgements mean the disk, do not leave the flush to chance."""
        if self.core_acks_flushed:
            self._store.flush_waiter(self._store.max_physical_offset, self._flushed)

    def _flushed(self, ok: bool) -> None:
        if ok and not self._stopping:
            self._guarded(self.core.flushed, boot_ms())

    # -- one turn -------------------------------------------------------------------------------------------------

    def _guarded(self, step: Callable[..., object], *args: Any) -> None:
        """Run a step of the state machine and carry out what it wants; a disk that fails ends our part in the group."""
        try:
            step(*args)
            self._settle()
        except (OSError, StoreError) as error:
            self._fail(error)

    def _settle(self) -> None:
        self._carry_out()
        if self.log.gone:
            self._drop_late_followers()
        core = self.core
        if core.role is ReplicaRole.FAILED:
            self._fail(None)
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
                if output.to in self.links:
                    self.links[output.to].close("it may lack bytes it has acknowledged")
            elif isinstance(output, Send):
                if isinstance(output.frame, Hello):
                    self._greet(output.to, output.frame)
                elif isinstance(output.frame, Ack):
                    ack = output.frame  # later ones say more
                else:
                    link = self._send(output.to, output.frame)
                    if link is not None:
                        touched[id(link)] = link
        if ack is not None and self.master_link is not None:
            body = encode_flushed(ack.flushed)
            self.master_link.send(FrameType.ACK, ack.epoch, ack.offset, self.core.confirm, body)
            touched[id(self.master_link)] = self.master_link
        for link in touched.values():
            link.flush()

    def _drop_late_followers(self) -> None:
        """What they need has left the log: they shake hands again and begin anew."""
        gone, self.log.gone = self.log.gone, set()
        for number, stream in list(self.core.streams.items()):
            if stream.next_offset in gone and number in self.links:
                self.links[number].close("what it needs has left the log")

    def _promoted(self) -> None:
        core = self.core
        self._master_epoch = core.epoch
        self._serving = False
        self.elections += 1
        for link in list(self.links.values()):
            link.close()  # handshakes of an earlier epoch do not count
        if self.master_link is not None:
            self.master_link.close()
        log.warning("event=BECAME_MASTER group=%s epoch=%d offset=%d confirmed=%d",
                    self.files.identity.group, core.epoch, self.log.max_offset, core.confirm)  # fmt: skip
        self._store.become_master()
        self._roles.became_master(core.epoch)

    def _demoted(self) -> None:
        log.warning("event=LOST_MASTERSHIP group=%s epoch=%d next_epoch=%d",
                    self.files.identity.group, self._master_epoch, self.core.view.epoch)  # fmt: skip
        self._master_epoch = 0
        self._serving = False
        for link in list(self.links.values()):
            link.close()
        self._store.become_slave()
        self.waits.give_up()
        self._roles.became_follower()

    def _fail(self, error: BaseException | None) -> None:
        if self._stopping:
            return
        self._stopping = True
        log.critical("event=REPLICA_FAILED group=%s replica=%d: %s", self.files.identity.group, self.core.me,
                     error or "it would have to cut confirmed bytes")  # fmt: skip
        self.core.role = ReplicaRole.FAILED
        self._store.become_slave()
        self.waits.give_up()
        self._roles.failed(error)

    # -- frames out -----------------------------------------------------------------------------------------------

    def _send(self, to: int, frame: Frame) -> PeerLink | None:
        link = self.links.get(to)
        if link is None and self.master_link is not None and self.master_link.replica_id == to:
            link = self.master_link
        if link is None:
            return None
        if isinstance(frame, Data):
            if link.session != frame.session:
                return None
            kind = FrameType.DATA if frame.body else FrameType.PING
            link.send(kind, frame.epoch, frame.offset, frame.confirm, frame.body)
        elif isinstance(frame, Welcome):
            fields = {"maxOffset": frame.max_offset, "minOffset": frame.min_offset, "action": "stream"}
            link.send(FrameType.WELCOME, frame.epoch, frame.max_offset, self.core.confirm,
                      encode_greeting(fields, frame.epochs))  # fmt: skip
            link.welcomed = True
            if self.meta is not None:
                self.meta.joined(link)
        elif isinstance(frame, Fence):
            link.send(FrameType.FENCE, frame.epoch)
        return link

    def _greet(self, to: int, hello: Hello) -> None:
        """Open a connection to the master, unless one is on its way already."""
        now = boot_ms()
        link = self.master_link
        under_way = (self._connecting is not None and not self._connecting.done()) or (
            link is not None and link.is_open and not link.welcomed
        )
        if under_way and self._greeted_epoch == hello.epoch and now - self._greeted_at < HANDSHAKE_MS:
            return
        address = self._ha_address(to)
        if not address or self._stopping:
            return
        if self._connecting is not None:
            self._connecting.cancel()
        if link is not None:
            link.close()
        self._greeted_at, self._greeted_epoch = now, hello.epoch
        self._connecting = asyncio.get_running_loop().create_task(self._connect(to, address, hello))

    def _ha_address(self, replica_id: int) -> str:
        if self.snapshot is None or replica_id not in self.snapshot.replicas:
            return ""
        return self.snapshot.replicas[replica_id].ha_address

    async def _connect(self, to: int, address: str, hello: Hello) -> None:
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: PeerLink(self, session=hello.session, replica_id=to), host, port
                )
        except (OSError, TimeoutError) as error:
            level = logging.INFO if self._unreached != (to, address) else logging.DEBUG
            self._unreached = (to, address)
            log.log(
                level,
                "no connection to the master replica=%d address=%s: %s",
                to,
                address,
                error or "timeout",
            )
            self.core.stream_lost(to, boot_ms())
            return
        self._unreached = None
        self.master_link = link
        identity = self.files.identity
        fields = {
            "group": identity.group, "replicaId": self.core.me, "storeId": identity.store_id,
            "session": hello.session, "minOffset": self.log.min_offset, "maxOffset": self.log.max_offset,
            "confirmOffset": self.core.confirm,
        }  # fmt: skip
        link.begin()
        link.send(FrameType.HELLO, hello.epoch, self.log.max_offset, self.core.confirm,
                  encode_greeting(fields, self.log.epochs))  # fmt: skip
        link.flush()

    # -- frames in ------------------------------------------------------------------------------------------------

    def link_opened(self, link: PeerLink) -> None: ...

    def link_closed(self, link: PeerLink) -> None:
        if link is self.master_link:
            self.master_link = None
            self.core.stream_lost(link.replica_id, boot_ms())
            if self.session is not None and not self._stopping:
                self.session.poke()  # the controllers want to know at once
        elif self.links.get(link.replica_id) is link:
            del self.links[link.replica_id]
            if self.meta is not None:
                self.meta.left(link)

    def frame_received(self, link: PeerLink, frame: WireFrame) -> None:
        if self._stopping:
            return
        try:
            decoded = self._decode(link, frame)
            if decoded is not None:
                self.core.receive(decoded, boot_ms())
        except StoreError as error:
            self._cannot_write(link, error)
        except OSError as error:
            self._fail(error)

    def _cannot_write(self, link: PeerLink, error: StoreError) -> None:
        """A follower whose disk is full does not take more; it leaves the in-sync set and tries again."""
        if not self._unwritable:
            log.error("event=REPLICA_CANNOT_WRITE replica=%d: %s", self.core.me, error)
        self._unwritable = True
        link.close("the log cannot grow here")

    def frames_received(self, link: PeerLink) -> None:
        if self._stopping:
            return
        if link is self.master_link:
            self._want_flush()
        self._guarded(lambda: None)
        if not link.welcomed and link is not self.master_link and link.is_open and link.session:
            link.close()  # it took us for the master

    def _decode(self, link: PeerLink, frame: WireFrame) -> Frame | None:
        kind = frame.type
        if kind == FrameType.HELLO:
            return self._hello(link, frame)
        if link is self.master_link:
            return self._from_master(link, frame)
        if self.links.get(link.replica_id) is not link:
            return None
        if kind == FrameType.ACK:
            flushed = decode_flushed(frame.body)
            return Ack(link.replica_id, link.session, frame.epoch, frame.offset, flushed)
        if kind == FrameType.FENCE:
            return Fence(link.replica_id, link.session, frame.epoch)
        if kind == FrameType.METAACK and self.meta is not None:
            self.meta.acknowledged(link, frame)
        return None

    def _from_master(self, link: PeerLink, frame: WireFrame) -> Frame | None:
        session = (
            self.core.session
        )  # of the latest greeting: nothing happened between it and that of the link
        if frame.type in (FrameType.DATA, FrameType.PING):
            body = frame.body if frame.type == FrameType.DATA else b""
            return Data(link.replica_id, session, frame.epoch, frame.offset, frame.confirm, body)
        if frame.type == FrameType.WELCOME:
            fields, epochs = decode_greeting(frame.body)
            link.welcomed = True
            return Welcome(link.replica_id, session, frame.epoch, epochs, int(fields["maxOffset"]),
                           int(fields.get("minOffset", 0)))  # fmt: skip
        if frame.type == FrameType.FENCE:
            return Fence(link.replica_id, session, frame.epoch)
        if frame.type == FrameType.META and self.meta is not None:
            self.meta.received(link, frame)
        return None

    def _hello(self, link: PeerLink, frame: WireFrame) -> Hello:
        fields, epochs = decode_greeting(frame.body)
        try:
            group, replica_id, session = (
                str(fields["group"]),
                int(fields["replicaId"]),
                int(fields["session"]),
            )
            max_offset = int(fields["maxOffset"])
        except (KeyError, ValueError, TypeError) as error:
            raise RemoteProtocolError(f"A greeting lacks {error}.") from error
        if group != self.files.identity.group or replica_id == self.core.me:
            raise RemoteProtocolError(f"Replica {replica_id} of the group {group} came to the wrong group.")
        link.replica_id, link.session = replica_id, session
        old = self.links.get(replica_id)
        self.links[replica_id] = link
        if old is not None and old is not link:
            old.close("it has connected anew")
        return Hello(replica_id, session, frame.epoch, epochs, max_offset)


def replica_times(config: BrokerConfig) -> ReplicaTimes:
    return ReplicaTimes(
        ping=config.ha_heartbeat_ms,
        lease=config.ha_lease_ms,
        silence=config.ha_session_timeout_ms,
        drop=config.ha_drop_delay_ms,
        catch_up=config.ha_max_time_slave_not_catchup,
    )
