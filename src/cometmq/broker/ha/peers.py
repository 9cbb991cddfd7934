"""Peers: the connections of a replica to the others of its group, and frames in the words of its state machine.

A replica has at most one connection to its master, opened when it greets, and one from each follower. A connection is
a session: what comes over a link is stamped with the session of that link. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.broker.ha.frames import Ack, Data, Fence, Frame, Hello, Welcome
from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.replica_log import ForeignLog
from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.broker.ha.wire2 import (
    FrameType,
    WireFrame,
    decode_flushed,
    decode_greeting,
    encode_flushed,
    encode_greeting,
)
from cometmq.clock import boot_ms
from cometmq.errors import RemoteProtocolError, StoreError
from cometmq.net.addresses import parse_address

if TYPE_CHECKING:
    from cometmq.broker.ha.member import Member

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
EARLY_LIMIT_S = 0.5  # how long a greeting waits for us to hear that we are master
HANDSHAKE_MS = 3_000  # a connection that is not welcomed for this long is tried anew


class Peers:
    """Implements ``peer_link.LinkOwner``."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.links: dict[int, PeerLink] = {}  # followers that follow us, by id
        self.master_link: PeerLink | None = None
        self._open: set[PeerLink] = set()  # also those that have not greeted yet
        self._early: dict[PeerLink, Hello] = {}  # greetings of those who knew before us that we are master
        self._connecting: asyncio.Task[None] | None = None
        self._greeted_at = 0
        self._greeted_epoch = 0
        self._unreached: tuple[int, str] | None = None  # said once
        self._unwritable = False  # said once

    async def stop(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        for link in list(self._open):
            link.close()

    def close_followers(self) -> None:
        for link in list(self.links.values()):
            link.close()

    def close_master(self) -> None:
        if self.master_link is not None:
            self.master_link.close()

    def close(self, replica_id: int, why: str) -> None:
        if replica_id in self.links:
            self.links[replica_id].close(why)

    def acknowledge(self, ack: Ack) -> None:
        if self.master_link is not None:
            body = encode_flushed(ack.flushed)
            self.master_link.send(FrameType.ACK, ack.epoch, ack.offset, self._member.core.confirm, body)
            self.master_link.flush()

    # -- frames out -----------------------------------------------------------------------------------------------

    def send(self, to: int, frame: Frame) -> PeerLink | None:
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
            link.send(FrameType.WELCOME, frame.epoch, frame.max_offset, self._member.core.confirm,
                      encode_greeting(fields, frame.epochs))  # fmt: skip
            link.welcomed = True
            if self._member.meta is not None:
                self._member.meta.joined(link)
        elif isinstance(frame, Fence):
            link.send(FrameType.FENCE, frame.epoch)
        return link

    def greet(self, to: int, hello: Hello) -> None:
        """Open a connection to the master, unless one is on its way already."""
        now = boot_ms()
        link = self.master_link
        under_way = (self._connecting is not None and not self._connecting.done()) or (
            link is not None and link.is_open and not link.welcomed
        )
        if under_way and self._greeted_epoch == hello.epoch and now - self._greeted_at < HANDSHAKE_MS:
            return
        address = self._ha_address(to)
        if not address or self._member.stopping:
            return
        if self._connecting is not None:
            self._connecting.cancel()
        if link is not None:
            link.close()
        self._greeted_at, self._greeted_epoch = now, hello.epoch
        self._connecting = asyncio.get_running_loop().create_task(self._connect(to, address, hello))

    def _ha_address(self, replica_id: int) -> str:
        if self._member.snapshot is None or replica_id not in self._member.snapshot.replicas:
            return ""
        return self._member.snapshot.replicas[replica_id].ha_address

    async def _connect(self, to: int, address: str, hello: Hello) -> None:
        link = PeerLink(self, session=hello.session, replica_id=to)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: link, *parse_address(address))
        except (OSError, TimeoutError) as error:
            level = logging.INFO if self._unreached != (to, address) else logging.DEBUG
            self._unreached = (to, address)
            why = error or "timeout"
            log.log(level, "no connection to the master replica=%d address=%s: %s", to, address, why)
            self._member.core.stream_lost(to, boot_ms())
            return
        except asyncio.CancelledError:
            link.close()  # it may be there already
            raise
        self._unreached = None
        self.master_link = link
        member, identity = self._member, self._member.files.identity
        fields = {
            "group": identity.group, "replicaId": member.core.me, "storeId": identity.store_id,
            "session": hello.session, "minOffset": member.log.min_offset, "maxOffset": member.log.max_offset,
            "confirmOffset": member.core.confirm,
        }  # fmt: skip
        link.begin()
        link.send(FrameType.HELLO, hello.epoch, member.log.max_offset, member.core.confirm,
                  encode_greeting(fields, member.log.epochs))  # fmt: skip
        link.flush()

    # -- frames in ------------------------------------------------------------------------------------------------

    def link_opened(self, link: PeerLink) -> None:
        self._open.add(link)

    def link_closed(self, link: PeerLink) -> None:
        self._open.discard(link)
        self._early.pop(link, None)
        if link is self.master_link:
            self.master_link = None
            if self._member.core.role is not ReplicaRole.MASTER:  # else that replica may follow us already
                self._member.core.stream_lost(link.replica_id, boot_ms())
            if self._member.session is not None and not self._member.stopping:
                self._member.session.poke()  # the controllers want to know at once
        elif self.links.get(link.replica_id) is link:
            del self.links[link.replica_id]
            if self._member.meta is not None:
                self._member.meta.left(link)

    def frame_received(self, link: PeerLink, frame: WireFrame) -> None:
        if self._member.stopping:
            return
        try:
            decoded = self._decode(link, frame)
            if isinstance(decoded, Hello) and decoded.epoch > self._member.core.view.epoch:
                self._hold(link, decoded)
            elif decoded is not None:
                self._member.core.receive(decoded, boot_ms())
        except (OSError, ForeignLog) as error:
            self._member.fail(error)
        except StoreError as error:
            self._cannot_write(link, error)

    def _cannot_write(self, link: PeerLink, error: StoreError) -> None:
        """A follower whose disk is full does not take more; it leaves the in-sync set and tries again."""
        if not self._unwritable:
            log.error("event=REPLICA_CANNOT_WRITE replica=%d: %s", self._member.core.me, error)
        self._unwritable = True
        link.close("the log cannot grow here")

    def frames_received(self, link: PeerLink) -> None:
        if self._member.stopping:
            return
        if link is self.master_link:
            self._member.want_flush()
        self._member.turn()
        if link not in self._early:
            self._close_unwelcome(link)

    def _close_unwelcome(self, link: PeerLink) -> None:
        if not link.welcomed and link is not self.master_link and link.is_open and link.session:
            link.close()  # it took us for the master

    # -- greetings that come too early ----------------------------------------------------------------------------

    def _hold(self, link: PeerLink, hello: Hello) -> None:
        """Turned away it would come again only after a ping, and nothing is confirmed until then."""
        self._early[link] = hello
        asyncio.get_running_loop().call_later(EARLY_LIMIT_S, self._give_up, link)
        if self._member.session is not None:
            self._member.session.poke()

    def _give_up(self, link: PeerLink) -> None:
        if self._early.pop(link, None) is not None:
            self._close_unwelcome(link)

    def look_at_early(self) -> None:
        """The controllers have told us something: perhaps that these were right."""
        known = self._member.core.view.epoch
        for link, hello in list(self._early.items()):
            if hello.epoch <= known and not self._member.stopping:
                del self._early[link]
                self._member.turn(self._member.core.receive, hello, boot_ms())
                self._close_unwelcome(link)

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
            link.ack = Ack(link.replica_id, link.session, frame.epoch, frame.offset, flushed)
            return self._ack_of(link)
        if kind == FrameType.FENCE:
            return Fence(link.replica_id, link.session, frame.epoch)
        if self._member.meta is not None:
            if kind == FrameType.METAACK:
                self._member.meta.acknowledged(link, frame)
                return self._ack_of(link)
            if kind == FrameType.META:
                self._member.meta.offered(link, frame)
        return None

    def _ack_of(self, link: PeerLink) -> Ack | None:
        """Its latest, once it has the metadata that it takes to be a member of the in-sync set."""
        meta = self._member.meta
        if link.ack is None or (meta is not None and not meta.is_current(link.replica_id)):
            return None
        ack, link.ack = link.ack, None
        return ack

    def _from_master(self, link: PeerLink, frame: WireFrame) -> Frame | None:
        # Of the latest greeting: nothing has happened between it and the one that the link carried.
        session = self._member.core.from_master.session
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
        if self._member.meta is not None:
            if frame.type == FrameType.META:
                self._member.meta.received(link, frame)
            elif frame.type == FrameType.METAACK:
                self._member.meta.taken(link)
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
        if group != self._member.files.identity.group or replica_id == self._member.core.me:
            raise RemoteProtocolError(f"Replica {replica_id} of the group {group} came to the wrong group.")
        link.replica_id, link.session = replica_id, session
        old = self.links.get(replica_id)
        self.links[replica_id] = link
        if old is not None and old is not link:
            old.close("it has connected anew")
        return Hello(replica_id, session, frame.epoch, epochs, max_offset)
