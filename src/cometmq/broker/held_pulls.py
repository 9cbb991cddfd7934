"""Long polling: pulls that found nothing wait here until their queue gets a message, or their time is over.

Theory of operation. A held pull stands in three places: in the list of its queue (one ``store.watch`` per
queue with held pulls), in the set of its connection (a closing connection takes its pulls with it), and in
one heap of deadlines, for which a single loop timer runs. A pull that is answered is only marked; the heap
drops it when its deadline comes, or when half of the heap is dead. Pulls that wait for seconds end in steps of time,
so that thousands of idle consumers do not wake the broker one by one; a turn of the loop ends some of them only.

The store calls the watch inside the append, so an answer is written in the same turn of the loop as the
message that caused it. A queue whose last pull was answered stays watched until its next message finds nobody: a
consumer that keeps up pulls again before that. A pull with a filter looks only at what is new since its last look
(``scan_offset``); entries that do not match move that mark and leave the pull held, so a stream of foreign
tags costs each message once.

Event loop only.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.store.store import MessageStore
    from cometmq.store.watches import Watch

log = logging.getLogger(__name__)

ATTACHMENT = "held_pulls"
WATCHED_IDLE_MIN = 1_000  # up to so many queues stay watched although nobody waits for them
DEAD_IN_HEAP_MIN = 1_000  # below that many answered pulls the heap is not cleaned early
EXPIRY_STEP_S = 0.05  # deadlines that are far away are rounded up to it (the original looks every 5 s)
FAR_AWAY_S = 2.0
EXPIRED_PER_TURN_MAX = 64


class HeldPull:
    """One pull that waits. ``wake(pull)`` may answer and says whether it did; ``expire(pull)`` must answer."""

    __slots__ = (
        "connection",
        "deadline",
        "done",
        "expire",
        "queue_id",
        "queue_offset",
        "request",
        "scan_offset",
        "topic",
        "wake",
    )

    def __init__(
        self,
        connection: Connection,
        topic: str,
        queue_id: int,
        queue_offset: int,
        request: Any,
        wake: Callable[[HeldPull], bool],
        expire: Callable[[HeldPull], None],
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.scan_offset = queue_offset
        self.request = request
        self.wake = wake
        self.expire = expire
        self.deadline = 0.0
        self.done = False


class _HeldQueue:
    """The pulls held for one queue, and the watch that wakes them."""

    __slots__ = ("epoch", "pulls", "watch")

    def __init__(self, watch: Watch, epoch: int) -> None:
        self.pulls: dict[HeldPull, None] = {}  # in the order of arrival; leaving must not cost a walk
        self.watch = watch
        self.epoch = epoch  # of the store's queues, when the watch was seen to be the right one


class HeldPulls:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._queues: dict[tuple[str, int], _HeldQueue] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._sequence = 0  # keeps equal deadlines in order, pulls are not comparable
        self._loop: asyncio.AbstractEventLoop | None = None  # asking for it is a system call
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # not asked of the timer: uvloop's has no time when it is due already
        self.count = 0  # held now
        self.woken = 0
        self.expired = 0
        self.abandoned = 0  # gone with their connection

    def hold(self, pull: HeldPull, timeout_ms: int) -> None:
        """Keep a pull until a message arrives or timeout_ms are over."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        pull.deadline = loop.time() + timeout_ms / 1000
        if timeout_ms >= FAR_AWAY_S * 1000:
            pull.deadline += EXPIRY_STEP_S - pull.deadline % EXPIRY_STEP_S
        queue = self._queue(pull.topic, pull.queue_id)
        queue.pulls[pull] = None
        self._attach(pull)
        self._sequence += 1
        heapq.heappush(self._deadlines, (pull.deadline, self._sequence, pull))
        self.count += 1
        if self._timer is None or pull.deadline < self._timer_at:
            self._arm(loop)

    def stop(self) -> None:
        """Forget everything; nobody is answered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue in self._queues.values():
            queue.watch.cancel()
        self._queues.clear()
        self._deadlines.clear()
        self.count = 0

    # -- a message arrived -----------------------------------------------------------------------------------

    def _queue(self, topic: str, queue_id: int) -> _HeldQueue:
        queue = self._queues.get((topic, queue_id))
        epoch = self._store.table.offsets_epoch
        if queue is None:
            watch = self._store.watch(topic, queue_id, self._arrived)
            queue = self._queues[topic, queue_id] = _HeldQueue(watch, epoch)
        elif queue.epoch != epoch:
            if not self._store.watches.is_current(queue.watch):  # its topic was deleted, and made again
                queue.watch.cancel()
                queue.watch = self._store.watch(topic, queue_id, self._arrived)
            queue.epoch = epoch
        return queue

    def _arrived(self, topic: str, queue_id: int) -> None:
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            return
        if not queue.pulls:
            self._unwatch(key, queue)
            return
        for pull in list(queue.pulls):
            if pull.done:
                continue
            try:
                answered = pull.wake(pull)
            except Exception:
                log.exception("held pull failed peer=%s topic=%s", pull.connection.peer, pull.topic)
                answered = True
            if answered:
                self.woken += 1
                self._remove(pull)

    def _unwatch(self, key: tuple[str, int], queue: _HeldQueue) -> None:
        del self._queues[key]
        queue.watch.cancel()

    # -- its time is over ------------------------------------------------------------------------------------

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines:
            self._timer_at = self._deadlines[0][0]
            self._timer = loop.call_at(self._timer_at, self._expire_due)

    def _expire_due(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        self._unwatch_idle()
        now, expired = loop.time(), 0
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].done):
            if expired == EXPIRED_PER_TURN_MAX:
                break  # the timer is due at once
            pull = heapq.heappop(self._deadlines)[2]
            if not pull.done:
                self._expire(pull)
                expired += 1
        self._arm(loop)

    def _unwatch_idle(self) -> None:
        """Queues that nobody waits for any more; now and then, so that they do not add up."""
        if len(self._queues) > WATCHED_IDLE_MIN + 2 * self.count:
            for key, queue in list(self._queues.items()):
                if not queue.pulls:
                    self._unwatch(key, queue)

    def _expire(self, pull: HeldPull) -> None:
        self.expired += 1
        self._remove(pull)
        try:
            pull.expire(pull)
        except Exception:
            log.exception("held pull failed peer=%s topic=%s", pull.connection.peer, pull.topic)

    # -- the connection is gone ------------------------------------------------------------------------------

    def _attach(self, pull: HeldPull) -> None:
        held = pull.connection.attachments.get(ATTACHMENT)
        if held is None:
            held = pull.connection.attachments[ATTACHMENT] = set()
            pull.connection.on_close.append(self._connection_closed)
        held.add(pull)

    def _connection_closed(self, connection: Connection) -> None:
        for pull in connection.attachments.pop(ATTACHMENT, ()):
            if not pull.done:
                self.abandoned += 1
                self._remove(pull)

    # -- leaving ---------------------------------------------------------------------------------------------

    def _remove(self, pull: HeldPull) -> None:
        if pull.done:
            return
        pull.done = True
        self.count -= 1
        queue = self._queues.get((pull.topic, pull.queue_id))
        if queue is not None:
            queue.pulls.pop(pull, None)
        self._forget(pull)

    def _forget(self, pull: HeldPull) -> None:
        held = pull.connection.attachments.get(ATTACHMENT)
        if held is not None:
            held.discard(pull)
        dead = len(self._deadlines) - self.count
        if dead > DEAD_IN_HEAP_MIN and dead > self.count:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
