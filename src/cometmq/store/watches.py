"""Watches: who wants to know when a queue gets messages (held pulls). Loop thread."""

from __future__ import annotations

from collections.abc import Callable

from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.queue_table import QueueTable

WatchCallback = Callable[[str, int], None]


class Watch:
    """A registered interest in one queue; cancel() is idempotent."""

    __slots__ = ("_callback", "queue")

    def __init__(self, queue: ConsumeQueue, callback: WatchCallback) -> None:
        self.queue: ConsumeQueue | None = queue
        self._callback = callback
        if queue.watchers is None:
            queue.watchers = []
        queue.watchers.append(callback)

    def cancel(self) -> None:
        queue, self.queue = self.queue, None
        if queue is not None and queue.watchers is not None and self._callback in queue.watchers:
            queue.watchers.remove(self._callback)
            if not queue.watchers:
                queue.watchers = None


class Watches:
    def __init__(self, table: QueueTable) -> None:
        self._table = table

    def add(self, topic: str, queue_id: int, callback: WatchCallback) -> Watch:
        return Watch(self._table.find_or_make(topic, queue_id), callback)

    def is_current(self, watch: Watch) -> bool:
        """Is what it watches still the queue of that name?"""
        queue = watch.queue
        return queue is not None and self._table.find(queue.topic, queue.queue_id) is queue

    def wake(self) -> None:
        """Call everybody whose queue got messages in the last dispatch, once each."""
        woken, self._table.woken = self._table.woken, []
        queues = [woken[0][1]] if len(woken) == 1 else dict.fromkeys(queue for _, queue in woken)
        for queue in queues:
            for callback in list(queue.watchers or ()):
                callback(queue.topic, queue.queue_id)
