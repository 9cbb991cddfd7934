"""Three real controllers in threads of this process, on free ports, and replicas that only have sessions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cometmq.controller.config import ControllerConfig, SessionTimes
from cometmq.controller.controller import Controller
from cometmq.controller.raft.core import RaftTimes
from cometmq.controller.raft_metadata import RaftMetadata
from cometmq.controller.replicas import GroupSettings, GroupSnapshot, ReplicaIdentity, ReplicaStatus
from cometmq.controller.session import ControllerSession

RAFT_TIMES = RaftTimes(election_min=300, election_max=600, heartbeat=50)
SESSION_TIMES = SessionTimes(heartbeat=50, lease=600, timeout=900, disconnect_grace=100)
DEADLINE_SECONDS = 20.0


def wait_for(condition: Callable[[], Any], what: str = "the condition") -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.01)
    return found


async def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.01)
    return found


class Controllers:
    """Controllers 1..n; each keeps its address when it is started again."""

    def __init__(self, directory: Path, size: int = 3, *, compact_after: int = 1_000) -> None:
        self.directory = directory
        self.compact_after = compact_after
        self.peers = dict.fromkeys(range(1, size + 1), "127.0.0.1:0")
        self.running: dict[int, Controller] = {}
        self.failures: list[BaseException] = []
        made = {number: self._make(number) for number in self.peers}
        for number, controller in made.items():
            self.peers[number] = controller.listen(0)
        for controller in made.values():
            self._raft(controller).node.peers.update(self.peers)
            controller.begin()
        self.running = made

    def _make(self, number: int) -> Controller:
        config = ControllerConfig(
            peers=dict(self.peers),
            self_id=number,
            directory=str(self.path(number)),
            bind_address="127.0.0.1",
            raft_times=RAFT_TIMES,
            session_times=SESSION_TIMES,
        )
        metadata = RaftMetadata(
            config, compact_after=self.compact_after, replace_after_ms=RAFT_TIMES.election_max
        )
        return Controller(config, metadata, self.failures.append)

    @staticmethod
    def _raft(controller: Controller) -> RaftMetadata:
        assert isinstance(controller.metadata, RaftMetadata)
        return controller.metadata

    def path(self, number: int) -> Path:
        return self.directory / f"controller{number}"

    def raft(self, number: int) -> RaftMetadata:
        return self._raft(self.running[number])

    def stop(self, number: int) -> None:
        self.running.pop(number).stop()

    def start(self, number: int) -> None:
        controller = self._make(number)
        controller.start()
        self.running[number] = controller

    def add(self, number: int) -> None:
        """A controller that was not there at the beginning."""
        self.peers[number] = "127.0.0.1:0"
        controller = self._make(number)
        self.peers[number] = controller.listen(0)
        self._raft(controller).node.peers.update(self.peers)
        controller.begin()
        self.running[number] = controller

    def close(self) -> None:
        for number in list(self.running):
            self.stop(number)

    def leader(self) -> int:
        return int(wait_for(self._leader, "a leader"))

    def _leader(self) -> int:
        leaders = [number for number in self.running if self.raft(number).is_leader]
        return leaders[0] if len(leaders) == 1 else 0

    def voters(self) -> set[int]:
        raft = self.raft(self.leader()).node.raft
        return {voter.id for voter in raft.voters} if raft is not None else set()


class FakeReplica:
    """A session, and a status that the test sets. Its stores keep their id over restarts."""

    def __init__(
        self,
        controllers: Controllers,
        replica_id: int,
        *,
        group: str = "broker-a",
        store_id: str = "",
        settings: GroupSettings | None = None,
    ) -> None:
        self.status = ReplicaStatus()
        self.views: list[GroupSnapshot] = []
        self.leases: list[tuple[int, int]] = []  # epoch, sent
        identity = ReplicaIdentity(
            group,
            replica_id,
            store_id or str(uuid.uuid4()),
            f"127.0.0.1:{10000 + replica_id}",
            f"127.0.0.1:{20000 + replica_id}",
            settings=settings or GroupSettings(),
        )
        self.session = ControllerSession(
            controllers.peers.values(),
            identity,
            self._status,
            self.views.append,
            SESSION_TIMES,
            on_answer=self._answered,
        )

    def _status(self) -> ReplicaStatus:
        """As a replica does: it reports the epoch of the view that it acts on."""
        return self.status._replace(epoch=self.view.view.epoch) if self.views else self.status

    def _answered(self, snapshot: GroupSnapshot, sent: int | None) -> None:
        if sent is not None:
            self.leases.append((snapshot.view.epoch, sent))

    @property
    def view(self) -> GroupSnapshot:
        return self.views[-1]

    async def start(self, *, unclean: bool = False, corrupt: bool = False) -> int:
        await self.session.start()
        return await self.session.register(unclean, corrupt)

    async def stop(self) -> None:
        await self.session.stop()

    def sees_master(self, replica_id: int) -> bool:
        return bool(self.views) and self.view.view.master == replica_id
