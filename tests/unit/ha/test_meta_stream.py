"""What is answered only when everybody has it who may be elected."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sim.replica_disk import SimLog

from cometmq.broker.ha.frames import Ack, Hello
from cometmq.broker.ha.meta_stream import MetaStream
from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.replica import Replica
from cometmq.broker.ha.wire2 import FrameType, WireFrame
from cometmq.controller.group_state import GroupView

ITEMS = [{"kind": "topics"}, {"kind": "locks"}]


class Group:
    """A master with its state machine; followers are links that nobody listens to."""

    def __init__(self, *members: int) -> None:
        self.core = Replica(1, SimLog(), now=0)
        self.sees(*members)
        self.links: dict[int, PeerLink] = {}
        member = SimpleNamespace(core=self.core, peers=SimpleNamespace(links=self.links))
        self.meta = MetaStream(cast(Any, member), cast(Any, SimpleNamespace(snapshot=lambda: ITEMS)))

    def sees(self, *members: int) -> None:
        version = self.core.view.set_version + 1
        self.core.on_view(GroupView(1, 1, frozenset(members), version, min_in_sync=2), 0, 0)

    def shakes_hands(self, follower: int) -> None:
        self.core.receive(Hello(follower, 1, 1, self.core.log.epochs, 0), 1)
        link = self.links[follower] = PeerLink(cast(Any, None), session=1, replica_id=follower)
        link.welcomed = True
        self.meta.joined(link)

    def has(self, follower: int, sequence: int) -> None:
        frame = WireFrame(FrameType.METAACK, 1, sequence, 0, b"")
        self.meta.acknowledged(self.links[follower], frame)

    async def granted(self) -> bool:
        self.meta.publish([{"kind": "locks"}])
        return await self.meta.replicated(10)


def test_nothing_is_granted_by_a_set_that_could_not_confirm_a_message() -> None:
    async def scenario() -> None:
        group = Group(1)
        assert not await group.granted()
        group.sees(1, 2)
        group.shakes_hands(2)
        group.has(2, 100)
        assert await group.granted()

    asyncio.run(scenario())


def test_a_member_that_came_again_needs_all_of_what_it_gets_first() -> None:
    async def scenario() -> None:
        group = Group(1, 2)
        waiting = asyncio.create_task(group.meta.replicated(1_000))
        await asyncio.sleep(0)
        group.shakes_hands(2)
        group.has(2, 1)  # topics, but no locks yet
        await asyncio.sleep(0)
        assert not waiting.done()
        group.has(2, 2)
        assert await waiting

    asyncio.run(scenario())


def test_who_lacks_what_was_granted_is_not_proposed() -> None:
    async def scenario() -> None:
        group = Group(1, 2)
        for follower in (2, 3):
            group.shakes_hands(follower)
            group.has(follower, 4)
            group.core.receive(Ack(follower, 1, 1, 0, 0), 2)
        assert group.core.in_sync._may_join(3)
        group.meta.publish([{"kind": "locks"}])
        waiting = asyncio.create_task(group.meta.replicated(1_000))
        await asyncio.sleep(0)
        group.has(2, 5)
        assert await waiting
        assert not group.meta.is_current(3)
        assert not group.core.in_sync._may_join(3)
        group.has(3, 5)
        group.core.receive(Ack(3, 1, 1, 0, 0), 3)
        assert group.core.in_sync._may_join(3)

    asyncio.run(scenario())
