"""Messages of one queue that were pulled and are not finished yet.

Pulled messages arrive in the order of their offsets and finish in any order. The offset to commit is the one of
the first message that is not finished: it never passes an unfinished one. Messages stay in one deque;
finishing marks the message, and the front is cut off as far as it is finished, so every operation is O(1) per message.

Loop thread only. Knows nothing of the network.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.client.queue import Queue

if TYPE_CHECKING:
    from cometmq.client.message import ReceivedMessage

NO_OFFSET = -1
LOCK_LIVES_MS = 30_000


class ProcessQueue:
    """The cache of one assigned queue, with what the pull loop and the broker lock need to know about it."""

    __slots__ = (
        "busy",
        "count",
        "dropped",
        "highest_offset",
        "in_line",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "locked",
        "messages",
        "next_pull_offset",
        "pull_task",
        "queue",
        "room",
        "size_bytes",
        "suggested_broker_id",
        "unlock_tries",
    )

    def __init__(self, queue: Queue, pull_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.next_pull_offset = pull_offset
        self.messages: deque[ReceivedMessage] = deque()
        self.count = 0
        self.size_bytes = 0
        self.highest_offset = NO_OFFSET
        self.dropped = False
        self.busy = False  # a message of it is in a handler (ordered consumption)
        self.in_line = False  # waits in the delivery line (ordered consumption)
        self.locked = False
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.suggested_broker_id = 0
        self.unlock_tries = 0
        # Set when there is room again, while the pull loop waits for it
        self.room: asyncio.Event | None = None
        self.pull_task: asyncio.Task[None] | None = None

    def put(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Add what a pull brought; offsets already seen are left out of the answer."""
        highest = self.highest_offset
        fresh = [message for message in messages if message.offset > highest]
        if fresh:
            self.messages.extend(fresh)
            self.count += len(fresh)
            self.size_bytes += sum([message.stored_body_size for message in fresh])
            self.highest_offset = fresh[-1].offset
        return fresh

    def finish(self, message: ReceivedMessage) -> int:
        """One message is done: the offset to commit now, or NO_OFFSET if it was done before."""
        if message.finished:
            return NO_OFFSET
        message.finished = True
        self.count -= 1
        self.size_bytes -= message.stored_body_size
        waiting = self.messages
        while waiting and waiting[0].finished:
            waiting.popleft()
        return waiting[0].offset if waiting else self.highest_offset + 1

    def commit_offset(self) -> int:
        """Where the group stands now, or NO_OFFSET if nothing was ever put."""
        if self.messages:
            return self.messages[0].offset
        return self.highest_offset + 1 if self.highest_offset != NO_OFFSET else NO_OFFSET

    def first(self, count: int) -> list[ReceivedMessage]:
        """The lowest unfinished messages, left in place (ordered consumption)."""
        taken = []
        for message in self.messages:
            if not message.finished:
                taken.append(message)
                if len(taken) == count:
                    break
        return taken

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest offset cached."""
        return self.messages[-1].offset - self.messages[0].offset if self.messages else 0

    def lock_valid(self, now_ms: int) -> bool:
        return self.locked and now_ms - self.last_lock_ms <= LOCK_LIVES_MS

    def clear(self) -> None:
        self.messages.clear()
        self.count = 0
        self.size_bytes = 0
