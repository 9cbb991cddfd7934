"""Blocking streams."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping

from cometmq.client.consumer.stream import Stream as AsyncStream
from cometmq.client.loop_thread import LoopThread
from cometmq.client.message import ReceivedMessage
from cometmq.client.queue import Queue
from cometmq.client.settings import Duration
from cometmq.sync.lifetime import Lifetime

Moment = dt.datetime | float


class Stream(Lifetime):
    """As ``cometmq.Stream``, blocking."""

    def __init__(self, thread: LoopThread, make: Callable[[], AsyncStream]) -> None:
        self._thread = thread
        self._inner = thread.call(make)

    def start(self) -> None:
        """Join the group: returns when the first assignment was made."""
        self._thread.run(self._inner.start())

    def close(self, timeout: Duration | None = None) -> None:
        """Stop reading, store what was committed, leave the group."""
        self._thread.run(self._inner.aclose(timeout))

    def poll(self, max_messages: int = 500, timeout: Duration | None = None) -> list[ReceivedMessage]:
        """Messages that have arrived; waits for the first up to ``timeout``."""
        return self._thread.run(self._inner.poll(max_messages, timeout))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            yield from self.poll()

    def commit(self, offsets: Mapping[Queue, int] | None = None) -> None:
        """Store positions; returns when the brokers have confirmed."""
        self._thread.run(self._inner.commit(offsets))

    def committed(self, queue: Queue) -> int | None:
        """What the broker has stored as this group's offset of a queue, None if nothing."""
        return self._thread.run(self._inner.committed(queue))

    def assignment(self) -> list[Queue]:
        """The queues that this stream reads now."""
        return self._thread.call(self._inner.assignment)

    def wait_assigned(self, timeout: Duration = 10.0) -> list[Queue]:
        """Wait until this member has queues."""
        return self._thread.run(self._inner.wait_assigned(timeout))

    def position(self, queue: Queue) -> int | None:
        """The offset that the next poll of a queue begins at, None before its first poll."""
        return self._thread.call(self._inner.position, queue)

    def seek(self, queue: Queue, offset: int) -> None:
        """Go on at an offset of a queue."""
        self._thread.run(self._inner.seek(queue, offset))

    def seek_to_begin(self, *queues: Queue) -> None:
        """Go on at the first message of these queues, of all if none is named."""
        self._thread.run(self._inner.seek_to_begin(*queues))

    def seek_to_end(self, *queues: Queue) -> None:
        """Go on behind the last message of these queues, of all if none is named."""
        self._thread.run(self._inner.seek_to_end(*queues))

    def seek_to_time(self, moment: Moment, *queues: Queue) -> None:
        """Go on at the first message stored at a time or later."""
        self._thread.run(self._inner.seek_to_time(moment, *queues))

    def offset_at(self, queue: Queue, moment: Moment) -> int:
        """The offset of the first message of a queue that was stored at a time or later."""
        return self._thread.run(self._inner.offset_at(queue, moment))

    def pause(self, *queues: Queue) -> None:
        """Stop reading queues, all if none is named."""
        self._thread.call(self._inner.pause, *queues)

    def resume(self, *queues: Queue) -> None:
        """Read queues again, all if none is named."""
        self._thread.call(self._inner.resume, *queues)
