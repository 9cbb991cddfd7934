"""Where the controller keeps what it decided: an interface with two implementations, embedded Raft and etcd.

A command is decided by ``propose``: it is applied when its preconditions hold in the state that every controller
agrees on, and only the leader may propose. ``record`` is what this controller has applied so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from cometmq.controller.commands import Command, GroupRecord, Outcome
from cometmq.errors import CometMQError
from cometmq.net.endpoint import Handler

__all__ = ["Command", "Metadata", "NotLeader", "Outcome"]


class NotLeader(CometMQError):
    """Another controller leads; ``leader_address`` is empty while nobody does."""

    def __init__(self, leader_address: str = "") -> None:
        self.leader_address = leader_address
        super().__init__(
            f"The leader of the controllers is {leader_address}."
            if leader_address
            else "The controllers have no leader at the moment; try again."
        )


class Metadata(Protocol):
    """Runs on the loop of its controller. The callbacks are set before ``start``."""

    on_change: Callable[[str], None]  # a group changed
    on_leadership: Callable[[bool], None]  # this controller may decide now, or may not any more
    on_failure: Callable[[BaseException], None]  # cannot go on: a disk error

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_address(self) -> str: ...

    @property
    def revision(self) -> int: ...

    def handlers(self) -> Mapping[int, Handler]:
        """What it serves on the port of the controller."""

    async def start(self, own_address: str) -> None: ...

    async def stop(self) -> None: ...

    async def propose(self, group: str, command: Command) -> Outcome:
        """Decide and apply; raises NotLeader, or Timeout when the outcome is not known."""

    async def confirm_leadership(self) -> None:
        """Return when everything decided before this call is applied here; raises NotLeader or Timeout."""

    def record(self, group: str) -> GroupRecord | None: ...

    def groups(self) -> Iterable[str]: ...

    def status(self) -> Mapping[str, object]:
        """For people: role, term, voters, lateness."""
