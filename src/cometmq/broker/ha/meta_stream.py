"""MetaStream: metadata of the master on its way to the followers, in order, on the links that carry the log.

A follower gets everything when it has shaken hands, then changes. Because they travel on the same connection, a topic
that a send creates is there before the bytes of that send. Event loop only.

``replicated`` is for what must not be answered before everybody has it who may be elected: the in-sync set, which must
be large enough as for messages, and whoever is proposed for it. Nobody else becomes a member before it has what was
answered: until then its acknowledgements wait (``is_current``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from cometmq.broker.ha.meta_items import Item, MetaItems
from cometmq.broker.ha.provisional_offsets import PROVISIONAL_OFFSETS
from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.broker.ha.wire2 import FrameType, WireFrame

if TYPE_CHECKING:
    from cometmq.broker.ha.member import Member
    from cometmq.broker.ha.peer_link import PeerLink
    from cometmq.broker.ha.provisional_offsets import ProvisionalOffsets

log = logging.getLogger(__name__)


class MetaStream:
    def __init__(self, member: Member, items: MetaItems) -> None:
        self._member = member
        self.items = items
        self._sequence = 0
        self._acknowledged: dict[int, int] = {}  # follower -> sequence number
        self._sent: dict[
            int, int
        ] = {}  # follower -> the last one it was sent: others' snapshots have numbers too
        self._whole: dict[int, int] = {}  # follower -> the last number of what it got first: everything
        self._granted = 0  # up to here it was answered that the in-sync set has it
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._offered_on: PeerLink | None = None
        self._offer_taken: Callable[[], None] = lambda: None

    # -- master ---------------------------------------------------------------------------------------------------

    def joined(self, link: PeerLink) -> None:
        """A follower has shaken hands: it gets everything."""
        self.left(link)
        for item in self.items.snapshot():
            self._send(item, [link])
        self._whole[link.replica_id] = self._sequence

    def left(self, link: PeerLink) -> None:
        self._whole.pop(link.replica_id, None)
        self._acknowledged.pop(link.replica_id, None)
        self._sent.pop(link.replica_id, None)

    def publish(self, items: Iterable[Item]) -> None:
        """Send to everybody now; it goes out before any byte of the log that is written later."""
        if self._member.core.role is not ReplicaRole.MASTER:
            return
        links = [link for link in self._member.peers.links.values() if link.welcomed]
        for item in items:
            self._send(item, links)
        for link in links:
            link.flush()

    def _send(self, item: Item, links: list[PeerLink]) -> None:
        self._sequence += 1
        body = msgspec.json.encode(item)
        for link in links:
            self._sent[link.replica_id] = self._sequence
            link.send(
                FrameType.META, self._member.core.epoch, self._sequence, self._member.core.confirm, body
            )

    async def replicated(self, timeout_ms: int) -> bool:
        """Everything published so far is at every member of the in-sync set; False when time ran out."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self._sequence, future))
        self.look()
        try:
            await asyncio.wait_for(future, timeout_ms / 1000)
            return self._member.core.role is ReplicaRole.MASTER
        except TimeoutError:
            return False
        finally:
            self._waiters = [waiter for waiter in self._waiters if waiter[1] is not future]

    def acknowledged(self, link: PeerLink, frame: WireFrame) -> None:
        if frame.epoch == self._member.core.epoch:
            self._acknowledged[link.replica_id] = frame.offset
            self.look()

    def look(self) -> None:
        """Have waiters what they wait for? Also asked when the in-sync set changes."""
        if not self._waiters:
            return
        core = self._member.core
        counted = self._counted()
        enough = len(core.view.sync_set) >= core.view.min_in_sync
        for sequence, future in self._waiters:
            there = enough and all(self._has(member, sequence) for member in counted - {core.me})
            if future.done() or not (there or core.role is not ReplicaRole.MASTER):
                continue
            if there:
                self._granted = max(self._granted, sequence)
            future.set_result(None)
        self._doubt_others(counted)

    def _counted(self) -> frozenset[int]:
        """Who may be elected, the proposed set included: it may be in force without our knowing."""
        core = self._member.core
        proposed = core.in_sync.proposed
        return core.view.sync_set | (proposed.members if proposed is not None else frozenset())

    def _doubt_others(self, counted: frozenset[int]) -> None:
        """Who lacks what was just answered may not be proposed for what it has acknowledged before."""
        core = self._member.core
        for number, stream in core.in_sync.streams.items():
            if number not in counted and not self.is_current(number):
                stream.heard_at = min(stream.heard_at, core.now - core.times.drop)

    def is_current(self, follower: int) -> bool:
        """Has it everything that was answered? Else its acknowledgements have to wait."""
        return self._has(follower, self._granted)

    def _has(self, member: int, sequence: int) -> bool:
        """Everything up to this number that was meant for it."""
        wanted = max(self._whole.get(member, sequence), min(sequence, self._sent.get(member, sequence)))
        return self._acknowledged.get(member, -1) >= wanted

    def offered(self, link: PeerLink, frame: WireFrame) -> None:
        """A follower has offsets that were committed there while nobody was master."""
        if self._member.core.role is ReplicaRole.MASTER and frame.epoch == self._member.core.epoch:
            self._apply(link, frame, only=PROVISIONAL_OFFSETS)

    # -- follower -------------------------------------------------------------------------------------------------

    def offer(self, provisional: ProvisionalOffsets) -> None:
        link, epoch = self._member.peers.master_link, self._member.core.epoch
        if self._member.core.role is not ReplicaRole.FOLLOWER or link is None or not link.welcomed:
            return
        if self._offered_on is not link:
            provisional.lost()
        item = provisional.send()
        if item is not None:
            self._offered_on, self._offer_taken = link, provisional.taken
            link.send(FrameType.META, epoch, body=msgspec.json.encode(item))
            link.flush()

    def taken(self, link: PeerLink) -> None:
        """The master has what we offered."""
        if link is self._offered_on:
            self._offer_taken()

    def received(self, link: PeerLink, frame: WireFrame) -> None:
        core = self._member.core
        if core.role is not ReplicaRole.FOLLOWER or frame.epoch != core.epoch:
            return
        self._apply(link, frame)

    def _apply(self, link: PeerLink, frame: WireFrame, only: str = "") -> None:
        try:
            item = msgspec.json.decode(frame.body)
            if only and item["kind"] != only:
                raise ValueError(f"a follower sends {item['kind']}")
            self.items.apply(item)
        except (KeyError, ValueError, TypeError, OSError) as error:
            log.error("metadata not applied: %s", error, exc_info=error)
            link.close("metadata that cannot be applied")
            return
        link.send(FrameType.METAACK, frame.epoch, frame.offset)
        link.flush()
