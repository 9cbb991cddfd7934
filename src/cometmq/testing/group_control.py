"""What a test or a measurement asks and tells a running group that elects its master. Event loop only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cometmq.controller.raft.core import Role
from cometmq.controller.wire import Body, ControllerCode, ResignBody, TransferBody, request
from cometmq.errors import CometMQError, ConnectionLost, Timeout
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.protocol.command import RemotingCommand
from cometmq.testing.group_processes import GroupProcesses

ASK_MS = 1_000
WAIT_S = 120.0
POLL_S = 0.02
LEAD_POLL_S = 0.1
VOTING = frozenset(role.name for role in Role)  # else it has failed, or waits to be let in


class GroupControl:
    """``async with GroupControl(processes) as control:``"""

    def __init__(self, group: GroupProcesses) -> None:
        self.group = group
        self._client = RemotingClient(config=NetConfig(connect_timeout_millis=ASK_MS))

    async def __aenter__(self) -> GroupControl:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close(grace_ms=100)

    async def status(self, number: int) -> dict[str, Any] | None:
        """What one broker says of itself; None if it does not answer."""
        return await self._ask(self.group.address(number))

    async def controller_status(self, number: int) -> dict[str, Any] | None:
        return await self._ask(self.group.controller_address(number))

    async def _ask(self, address: str) -> dict[str, Any] | None:
        try:
            answer = await self._client.invoke(
                address, RemotingCommand.request(ControllerCode.HA_STATUS), ASK_MS
            )
        except (ConnectionLost, Timeout):
            return None
        found: dict[str, Any] | None = msgspec.json.decode(answer.body) if answer.code == 0 else None
        return found

    async def statuses(self, among: Iterable[int] | None = None) -> dict[int, dict[str, Any]]:
        """Of every broker that answers."""
        numbers = [n for n in (self.group.ids if among is None else among) if self.group.alive(n)]
        found = await asyncio.gather(*map(self.status, numbers))
        return {number: status for number, status in zip(numbers, found, strict=True) if status is not None}

    async def master(self, in_sync: int | None = None, among: Iterable[int] | None = None) -> int:
        """Wait for a master that serves, with at least so many replicas in sync."""
        numbers = list(self.group.ids if among is None else among)

        async def look() -> int:
            for number, status in (await self.statuses(numbers)).items():
                serves = status["role"] == "MASTER" and status["standing"] in ("SERVING", "NOLEASE")
                if serves and status["master"] == number and len(status["syncSet"]) >= (in_sync or 0):
                    return number
            return 0

        return int(await self.until(look, f"a master with {in_sync} in sync"))

    async def controller_leader(self) -> int:
        async def look() -> int:
            for number in self.group.voters:
                status = await self.controller_status(number)
                if status is not None and status["controller"]["role"] == "LEADER":
                    return number
            return 0

        return int(await self.until(look, "a leading controller"))

    async def voting(self) -> None:
        """Wait until every controller has a vote; one that lost its files is let in after a while."""

        group = self.group
        here = [voter for voter in group.voters if voter in group.ids or voter not in group.processes]

        async def all_vote() -> bool:
            found = await asyncio.gather(*map(self.controller_status, here))
            return all(status is not None and status["controller"]["role"] in VOTING for status in found)

        await self.until(all_vote, "every controller voting")

    async def lead(self, number: int) -> None:
        """Make this controller the leader."""

        async def asked() -> bool:
            leader = await self.controller_leader()
            if leader != number:
                await self.tell(
                    self.group.controller_address(leader),
                    ControllerCode.TRANSFER_LEADERSHIP,
                    TransferBody(number),
                )
            return leader == number

        await self.until(asked, f"controller {number} as leader", pause_s=LEAD_POLL_S)

    async def switch(self, master: int, preferred: int = 0) -> RemotingCommand:
        """A planned switch, answered when it is done."""
        body = ResignBody(self.group.name, master, 0, preferred)
        return await self._client.invoke(
            self.group.address(master), request(ControllerCode.RESIGN, body), 15 * ASK_MS
        )

    async def tell(self, address: str, code: ControllerCode, body: Body) -> RemotingCommand | None:
        try:
            return await self._client.invoke(address, request(code, body), 3 * ASK_MS)
        except (ConnectionLost, Timeout):
            return None

    async def checksums(self) -> dict[int, tuple[int, int, str]]:
        """Begin, end and SHA-256 of the confirmed log of each living broker."""
        found = {}
        for number in self.group.ids:
            if not self.group.alive(number):
                continue
            answer = await self._client.invoke(
                self.group.address(number), RemotingCommand.request(ControllerCode.HA_CHECKSUM), 30 * ASK_MS
            )
            if answer.code != 0:
                raise CometMQError(f"broker {number}: {answer.remark}")
            body = msgspec.json.decode(answer.body)
            found[number] = (body["from"], body["to"], body["sha256"])
        return found

    async def until(self, look: Callable[[], Any], what: str, pause_s: float = POLL_S) -> Any:
        deadline = time.monotonic() + WAIT_S
        while not (found := await look()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} was not there within {WAIT_S:g} s")
            await asyncio.sleep(pause_s)
        return found
