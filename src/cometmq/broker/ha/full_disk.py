"""A master whose disk is full: another replica that has room shall be master. Event loop only.

Sends are refused on a full disk, and that would go on until somebody deletes something, while replicas with empty
disks only look on. If nobody takes over, or the next one is full as well, it is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cometmq.clock import boot_ms

if TYPE_CHECKING:
    from cometmq.broker.ha.member import Member
    from cometmq.store.store import MessageStore

LOOK_MS = 500
AGAIN_MS = 20_000  # between two attempts of one replica: two full disks do not play ball
PROBE_SIZE = 4_096  # bytes of log that there must be room for

log = logging.getLogger(__name__)


class FullDisk:
    def __init__(
        self,
        store: MessageStore,
        member: Callable[[], Member],
        hand_over: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._store = store
        self._member = member
        self._hand_over = hand_over
        self._next_ms = 0
        self._leaving: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Call it often."""
        member, now = self._member(), boot_ms()
        others = member.core.view.sync_set - {member.core.me}
        if not member.is_serving or not others or now < self._next_ms or not self._is_full():
            return
        self._next_ms = now + AGAIN_MS
        log.warning(
            "event=DISK_FULL the disk of the master takes no more messages; another replica shall be master"
        )
        self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def _leave(self) -> None:
        problem = await self._hand_over()
        if problem:
            log.warning("event=NOT_HANDED_OVER still master on a full disk: %s", problem)

    def _is_full(self) -> bool:
        store = self._store
        if store.retention.disk.full or store.dispatch.error is not None:
            return True
        commit_log = store.commit_log
        if commit_log.error is not None and commit_log.reserve(PROBE_SIZE) is not None:
            commit_log.error = None  # there is room again
        return commit_log.error is not None
