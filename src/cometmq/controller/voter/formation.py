"""How a group of voters is formed, and how one that lost its disk is let in again.

A new group needs every voter of ``controllerPeers`` once: the one with the lowest id asks them all for their UUIDs and
begins only if none of them ever was a member. So a wiped voter, which has a new UUID, can neither vote under its old
name nor found a second group beside the first. It asks until the leader replaces its old self.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from cometmq.controller.metadata import NotLeader
from cometmq.controller.raft.codec import Hello
from cometmq.controller.raft.messages import Voter
from cometmq.controller.voter.node import VoterNode
from cometmq.errors import CometMQError, ConnectionLost, RemoteProtocolError, Timeout

log = logging.getLogger(__name__)

GREET_MS = 300
GREET_TIMEOUT_MS = 500
SAY_AGAIN_SECONDS = 10.0
CHANGE_TIMEOUT_MS = 2_000


class Formation:
    """Runs until the voter belongs to a group; at the leader it lets others in."""

    def __init__(self, node: VoterNode, *, replace_after_ms: int) -> None:
        self._node = node
        self._replace_after = replace_after_ms / 1000
        self._task: asyncio.Task[None] | None = None
        self._change: asyncio.Task[None] | None = None
        self._said_at = float("-inf")
        self._leads_since = time.monotonic()
        node.on_stranger = self.stranger

    def start(self) -> None:
        if self._node.raft is None:
            self._task = asyncio.create_task(self._look_for_group(), name="voter-formation")

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._change) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def leads_now(self) -> None:
        """Who was heard by an earlier leader is not known: wait before anybody is called gone."""
        self._leads_since = time.monotonic()

    # -- a voter without a group ------------------------------------------------------------------------------------

    async def _look_for_group(self) -> None:
        while self._node.raft is None:
            answers = await self._greet_all()
            if self._node.raft is None:
                self._found(answers)
            await asyncio.sleep(GREET_MS / 1000)

    async def _greet_all(self) -> dict[int, Hello]:
        others = {
            number: address for number, address in self._node.peers.items() if number != self._node.me.id
        }
        found = await asyncio.gather(*map(self._greet, others.values()))
        return {number: hello for number, hello in zip(others, found, strict=True) if hello is not None}

    async def _greet(self, address: str) -> Hello | None:
        try:
            return await self._node.greet(address, GREET_TIMEOUT_MS)
        except (ConnectionLost, Timeout, RemoteProtocolError):
            return None

    def _found(self, answers: dict[int, Hello]) -> None:
        node = self._node
        if (group := self._ours(answers)) is not None:
            node.join(group.cluster, group.first_voters)
            log.info("voter=%s belongs to the group %s", node.me.id, group.cluster)
            return
        members = [number for number, hello in answers.items() if hello.cluster]
        missing = node.peers.keys() - answers.keys() - {node.me.id}
        if members:
            self._say("waits until the leader lets it in, under its new UUID", members)
        elif not node.hello().fresh or not all(hello.fresh for hello in answers.values()):
            self._say("has lost its files, and no member of its group is there", sorted(missing))
        elif missing:
            self._say("waits for the other voters: a new group needs all of them once", sorted(missing))
        elif node.me.id == min(node.peers):
            self._form(answers)

    def _ours(self, answers: dict[int, Hello]) -> Hello | None:
        """Who tells us best of a group that we belong to. Where nobody knows the first voters any more, a snapshot
        that names the present ones is on its way."""
        node = self._node
        known = [hello for hello in answers.values() if hello.cluster]
        for hello in sorted(known, key=lambda hello: not hello.first_voters):
            if node.me in hello.first_voters or hello.cluster == node.invited_to:
                return hello
        return None

    def _form(self, answers: dict[int, Hello]) -> None:
        voters = (self._node.me, *(hello.voter for _, hello in sorted(answers.items())))
        if len({voter.id for voter in voters}) != len(self._node.peers):
            self._say("finds two voters with one id", [voter.id for voter in voters])
            return
        cluster = str(uuid.uuid4())
        self._node.join(cluster, voters)
        log.info(
            "voter=%s forms the group %s of voters %s", self._node.me.id, cluster, [v.id for v in voters]
        )

    def _say(self, what: str, who: list[int]) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_AGAIN_SECONDS:
            self._said_at = now
            log.warning("voter=%s %s: voters %s", self._node.me.id, what, who)

    # -- the leader lets somebody in --------------------------------------------------------------------------------

    def stranger(self, hello: Hello) -> None:
        """A voter of our list without a group asks us; it may be a former member with a new disk."""
        node = self._node
        idle = self._change is None or self._change.done()
        if (
            node.raft is None
            or hello.voter in node.raft.voters
            or hello.voter.id not in node.peers
            or not idle
        ):
            return
        known = next((voter for voter in node.raft.voters if voter.id == hello.voter.id), None)
        if known is not None and not self._is_gone(known):
            return
        self._change = asyncio.create_task(self._let_in(hello.voter, known), name="voter-change")

    def _is_gone(self, voter: Voter) -> bool:
        last = max(self._node.heard_at.get(voter, 0.0), self._leads_since)
        return time.monotonic() - last >= self._replace_after

    async def _let_in(self, voter: Voter, known: Voter | None) -> None:
        try:
            if known is not None and await self._change_to(known, None):
                log.warning("VOTER_REMOVED voter=%s uuid=%s: it came back without its files", *known)
            if await self._change_to(None, voter):
                log.warning("VOTER_ADDED voter=%s uuid=%s", *voter)
        except (NotLeader, Timeout):
            pass  # it will ask again
        except CometMQError:
            log.exception("voter=%s could not be let in", voter.id)

    async def _change_to(self, gone: Voter | None, new: Voter | None) -> bool:
        raft = self._node.raft
        if raft is None:
            return False
        voters = tuple(voter for voter in raft.voters if voter != gone)
        return await self._node.change_voters(voters + ((new,) if new is not None else ()), CHANGE_TIMEOUT_MS)
