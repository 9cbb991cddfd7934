"""From pulled messages to handlers: who may have which message next.

``Delivery`` is the waiting line. Takers (handler workers or an ``async for``) wait in it; messages come in
from the pull loops. ``ConcurrentDelivery`` hands out messages in the order they came. ``OrderlyDelivery``
hands out queues: a queue whose message is out is not in line until that message is settled.

Loop thread only; no network here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.message import ReceivedMessage


class Delivery(ABC):
    """The waiting line between pull loops and takers."""

    def __init__(self) -> None:
        self._takers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @abstractmethod
    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """New messages of a queue; they are in the process queue already."""

    @abstractmethod
    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages, all of one queue, or nothing."""

    @abstractmethod
    def settled(self, process_queue: ProcessQueue) -> None:
        """Everything taken of this queue was finished."""

    @abstractmethod
    def __len__(self) -> int: ...

    async def next(self, count_max: int) -> list[ReceivedMessage]:
        """Wait for messages; empty only when closed. May be cancelled at any time without losing one."""
        while True:
            if self._closed:
                return []
            messages = self.take(count_max)
            if messages:
                return messages
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                self._give_up(taker)
                raise

    def _give_up(self, taker: asyncio.Future[None]) -> None:
        if taker.done() and not taker.cancelled():
            self.wake(1)  # it had been called: call another one instead
        else:
            taker.cancel()

    def wake(self, count: int) -> None:
        while count > 0 and self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                count -= 1

    def close(self) -> None:
        """No more messages: everyone who waits gets none."""
        self._closed = True
        self.wake(len(self._takers))


class ConcurrentDelivery(Delivery):
    """Any message to any taker."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: deque[ReceivedMessage] = deque()

    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._ready.extend(messages)
        self.wake(len(messages))

    def again(self, message: ReceivedMessage) -> None:
        """A message that could not be sent back is offered once more."""
        self._ready.append(message)
        self.wake(1)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        ready = self._ready
        taken: list[ReceivedMessage] = []
        while ready and len(taken) < count_max:
            message = ready[0]
            queue = message.process_queue
            if queue is None or queue.dropped or message.finished:
                ready.popleft()
                continue
            if taken and queue is not taken[0].process_queue:
                break
            taken.append(ready.popleft())
        return taken

    def settled(self, process_queue: ProcessQueue) -> None:
        """Order does not matter here."""

    def __len__(self) -> int:
        return len(self._ready)


class OrderlyDelivery(Delivery):
    """One message (or batch) of a queue at a time."""

    def __init__(self, may_take: Callable[[ProcessQueue], bool]) -> None:
        super().__init__()
        self._may_take = may_take
        self._ready: deque[ProcessQueue] = deque()

    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self.offer(process_queue)

    def offer(self, process_queue: ProcessQueue) -> None:
        """Put a queue in line unless it is there, or out, or has nothing."""
        if process_queue.busy or process_queue.in_line or process_queue.dropped or not process_queue.count:
            return
        process_queue.in_line = True
        self._ready.append(process_queue)
        self.wake(1)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        while self._ready:
            process_queue = self._ready.popleft()
            process_queue.in_line = False
            if process_queue.dropped or not self._may_take(process_queue):
                continue
            messages = process_queue.first(count_max)
            if messages:
                process_queue.busy = True
                return messages
        return []

    def settled(self, process_queue: ProcessQueue) -> None:
        process_queue.busy = False
        self.offer(process_queue)

    def __len__(self) -> int:
        return len(self._ready)
