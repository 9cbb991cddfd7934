"""The stream: reading queues at one's own pace with one's own offsets (RocketMQ's lite pull consumer).

``poll`` returns what was pulled ahead; ``commit`` stores how far polls came and returns when the brokers
confirmed. With ``auto_commit`` a later poll commits what earlier polls returned, so a crash repeats at most
the last batch.

Queues come from the group's rebalance, or are fixed with ``assign=``. Nothing is retried and no retry topic is read.
Loop thread only.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Self

from cometmq.client.broker_calls import NO_OFFSET
from cometmq.client.consumer.allocation import Allocation, Average
from cometmq.client.consumer.member import Member
from cometmq.client.consumer.offset_store import RemoteOffsets
from cometmq.client.consumer.options import MIB, StartFrom
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.pull_loop import PullLoop
from cometmq.client.consumer.rebalance import Rebalance
from cometmq.client.consumer.start_offset import start_offset
from cometmq.client.consumer.subscriptions import SubscriptionTable
from cometmq.client.instance import Instance
from cometmq.client.message import ReceivedMessage
from cometmq.client.queue import Queue
from cometmq.client.settings import Duration, seconds
from cometmq.client.subscription import Filter, Subscriptions, as_filter, as_subscriptions
from cometmq.client.validation import check_group
from cometmq.errors import ClientClosed, ClientError
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.bodies.heartbeat import (
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_FROM_LAST_OFFSET,
    ConsumerData,
)

log = logging.getLogger(__name__)

ASSIGN_WAIT_S = 10.0
ASSIGN_CHECK_S = 0.02


class Stream(Member):
    """A reader of queues. Made by ``client.stream(group, topics)`` or ``client.stream(group, assign=[...])``."""

    pull_flags = flags.PULL_SUSPEND | flags.PULL_LITE
    kind = "stream"
    sends_subscription = True
    commits_with_pulls = False

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Subscriptions | None = None,
        *,
        assign: Iterable[Queue] | None = None,
        filter: Filter | str | None = None,
        start: StartFrom = StartFrom.LAST,
        auto_commit: bool = True,
        auto_commit_interval: Duration = 5.0,
        pull_batch: int = 32,
        queue_messages_max: int = 1000,
        queue_bytes_max: int = 100 * MIB,
        messages_max: int = 10_000,
        poll_timeout: Duration = 5.0,
        allocation: Allocation | None = None,
    ) -> None:
        check_group(group)
        super().__init__(instance, group)
        if (subscriptions is None) == (assign is None):
            raise ClientError("give a stream either topics to subscribe or queues to assign, not both")
        self._assigned = None if assign is None else [self.wire_queue(queue) for queue in assign]
        if subscriptions is None:
            wanted = as_filter(filter)
            filters = {instance.plain(queue.topic): wanted for queue in self._assigned or ()}
        else:
            filters = as_subscriptions(subscriptions)
        self.subscriptions = SubscriptionTable(instance, filters, None)
        self.offsets: RemoteOffsets = RemoteOffsets(instance, self.group)
        self.start_from = start
        self.allocation = allocation or Average()
        self.pull_batch = pull_batch
        self.limits = self
        self.delivery = self
        self._queue_messages_max = queue_messages_max
        self._queue_bytes_max = queue_bytes_max
        self._messages_max = messages_max
        self._auto_commit_s = seconds(auto_commit_interval) if auto_commit else None
        self._poll_timeout_s = seconds(poll_timeout)
        self._rebalance = Rebalance(self)
        self._positions: dict[Queue, int] = {}
        self._paused_queues: set[Queue] = set()
        self._ready: deque[ProcessQueue] = deque()
        self._news = asyncio.Event()
        self._next_commit = 0.0

    # --- life ---

    async def _join(self) -> None:
        self.started_ms = self.instance.now_ms()
        self._next_commit = self._now() + (self._auto_commit_s or 0)
        await self.instance.refresh_routes()
        await self.instance.heartbeat()
        if self._assigned is None:
            await self._rebalance.round()
            self.background.spawn(self._rebalance.run(), "rebalance")
            self._rebalance.wake()
        else:
            for queue in self._assigned:
                offset = await start_offset(self.instance, self.offsets, queue, self.start_from)
                self._begin(queue, offset)

    def _begin_background(self) -> None:
        interval_s = seconds(self.instance.settings.offset_interval)
        self.background.every(interval_s, self._persist, "offsets")

    async def aclose(self, timeout: Duration | None = None) -> None:
        """Stop reading, store what was committed, leave the group. With auto_commit what was polled is committed."""
        if self._closed:
            return
        self._closed = True
        self._news.set()
        await self.background.close()
        if not self._started or not self.instance.started:
            return
        limit_s = seconds(self.instance.settings.drain_timeout if timeout is None else timeout)
        try:
            async with asyncio.timeout(limit_s):
                if self._auto_commit_s is not None:
                    self._remember(self._positions)
                await self.offsets.persist(list(self.queues), confirmed=True)
                await self.instance.remove_consumer(self)
        except TimeoutError:
            log.warning("group=%s brokers did not confirm the leave within %.1f s", self.group, limit_s)
            self.abandon()

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_ACTIVELY,
            message_model=CLUSTERING,
            consume_from_where=CONSUME_FROM_LAST_OFFSET,
            # Java's lite pull says so too, whatever it is told to do: the policy is applied by the client.
            subscription_data_set=self.subscriptions.all(),
            unit_mode=self.instance.settings.unit_mode,
        )

    def wake(self) -> None:
        if self._assigned is None:
            self._rebalance.wake()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- flow control and arrivals (called by the pull loops) ---

    def full(self, process_queue: ProcessQueue) -> bool:
        """Is enough pulled ahead of a queue?"""
        return (
            process_queue.count > self._queue_messages_max
            or process_queue.size_bytes > self._queue_bytes_max
            or sum(held.count for held in self.queues.values()) > self._messages_max
        )

    def share(self, queue_count: int) -> None:
        """Limits of a stream are per queue and in all."""

    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Messages were pulled: they are there for the next poll."""
        if not process_queue.in_line:
            process_queue.in_line = True
            self._ready.append(process_queue)
        self._news.set()

    def is_paused(self, queue: Queue) -> bool:
        """Is a queue (wire name) not read at the moment?"""
        return self.paused or queue in self._paused_queues

    async def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        process_queue.next_pull_offset = offset

    # --- reading ---

    async def poll(self, max_messages: int = 500, timeout: Duration | None = None) -> list[ReceivedMessage]:
        """Messages that have arrived, at most ``max_messages``; waits for the first up to ``timeout``."""
        self._check()
        await self._commit_if_due()
        deadline = self._now() + (self._poll_timeout_s if timeout is None else seconds(timeout))
        while True:
            messages = self._take(max_messages)
            left_s = deadline - self._now()
            if messages or left_s <= 0 or self._closed:
                return messages
            self._news.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._news.wait()
            except TimeoutError:
                return self._take(max_messages)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """One message after the other; ends when the stream is closed."""
        while not self._closed:
            messages = await self.poll(1)
            if messages:
                return messages[0]
        raise StopAsyncIteration

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        while self._ready and len(taken) < count_max:
            held = self._ready.popleft()
            held.in_line = False
            if held.dropped:
                continue
            own = held.first(count_max - len(taken))
            for message in own:
                held.finish(message)
            if own:
                self._positions[held.queue] = own[-1].offset + 1
                taken += own
            if held.count:
                held.in_line = True
                self._ready.append(held)
            if held.room is not None and not self.full(held):
                held.room.set()
        return taken

    # --- committing ---

    async def commit(self, offsets: Mapping[Queue, int] | None = None) -> None:
        """Store positions (those of all polls so far, or the given ones); returns when the brokers have confirmed."""
        self._check()
        wanted = self._positions if offsets is None else {self.wire_queue(q): n for q, n in offsets.items()}
        self._remember(wanted)
        await self.offsets.commit(
            {queue: offset for queue, offset in wanted.items() if offsets is not None or queue in self.queues}
        )

    async def _commit_if_due(self) -> None:
        if self._auto_commit_s is None or self._now() < self._next_commit:
            return
        self._next_commit = self._now() + self._auto_commit_s
        self._remember(self._positions)
        await self._persist()

    def _remember(self, positions: Mapping[Queue, int]) -> None:
        for queue, offset in positions.items():
            self.offsets.update(queue, offset, increase_only=False)

    async def _persist(self) -> None:
        await self.offsets.persist(list(self.queues))

    async def committed(self, queue: Queue) -> int | None:
        """The stored offset of the group, None if it has none."""
        self._check()
        offset = await self.offsets.read(self.wire_queue(queue))
        return None if offset == NO_OFFSET else offset

    # --- positions ---

    def assignment(self) -> list[Queue]:
        """The queues that this stream reads now."""
        return sorted(self.plain_queue(queue) for queue, held in self.queues.items() if not held.dropped)

    async def wait_assigned(self, timeout: Duration = ASSIGN_WAIT_S) -> list[Queue]:
        """Wait until this member has queues."""
        deadline = self._now() + seconds(timeout)
        while not self.queues and self._now() < deadline:  # noqa: ASYNC110 - queues come from many places
            await asyncio.sleep(ASSIGN_CHECK_S)
        return self.assignment()

    def position(self, queue: Queue) -> int | None:
        """The offset the next poll begins at, None before the first poll of the queue."""
        return self._positions.get(self.wire_queue(queue))

    async def seek(self, queue: Queue, offset: int) -> None:
        """Go on at an offset of an assigned queue."""
        self._check()
        wire = self.wire_queue(queue)
        if wire not in self.queues:
            raise ClientError(f"{queue} is not assigned to this stream; it has {self.assignment()}")
        low, high = await self._bounds(wire)
        if not low <= offset <= high:
            raise ClientError(f"{queue} has offsets {low} to {high}, not {offset}")
        self._begin(wire, offset)

    async def seek_to_begin(self, *queues: Queue) -> None:
        """Go on at the first message there is, in the given queues or in all."""
        for wire in await self._chosen(queues):
            self._begin(wire, (await self._bounds(wire))[0])

    async def seek_to_end(self, *queues: Queue) -> None:
        """Go on behind the last message of these queues, of all if none is named."""
        for wire in await self._chosen(queues):
            self._begin(wire, (await self._bounds(wire))[1])

    async def seek_to_time(self, moment: dt.datetime | float, *queues: Queue) -> None:
        """Go on at the first message stored at or after a moment."""
        timestamp_ms = StartFrom.time(moment).timestamp_ms
        for wire in await self._chosen(queues):
            self._begin(wire, await self._search(wire, timestamp_ms))

    async def offset_at(self, queue: Queue, moment: dt.datetime | float) -> int:
        """The offset of the first message stored at or after a moment."""
        self._check()
        return await self._search(self.wire_queue(queue), StartFrom.time(moment).timestamp_ms)

    async def _search(self, wire: Queue, timestamp_ms: int) -> int:
        address, _ = await self.instance.routes.reader_of(wire.broker_name, wire.topic)
        return await self.instance.brokers.search_offset(address, wire, timestamp_ms)

    async def _bounds(self, wire: Queue) -> tuple[int, int]:
        address, _ = await self.instance.routes.reader_of(wire.broker_name, wire.topic)
        brokers = self.instance.brokers
        return await brokers.min_offset(address, wire), await brokers.max_offset(address, wire)

    async def _chosen(self, queues: tuple[Queue, ...]) -> list[Queue]:
        self._check()
        if queues:
            return [self.wire_queue(queue) for queue in queues]
        await self.wait_assigned()
        return list(self.queues)

    def _begin(self, wire: Queue, offset: int) -> None:
        """Read a queue from an offset; what was cached of it is forgotten."""
        old = self.queues.get(wire)
        if old is not None:
            old.dropped = True
            if old.pull_task is not None:
                old.pull_task.cancel()
        held = ProcessQueue(wire, offset, self.instance.now_ms())
        self.queues[wire] = held
        self._positions[wire] = offset
        held.pull_task = self.background.spawn(PullLoop(self, held).run(), f"pull {wire}")

    def pause(self, *queues: Queue) -> None:
        """Stop pulling the given queues, or all."""
        self._paused_queues.update(self.wire_queue(queue) for queue in queues or self.assignment())

    def resume(self, *queues: Queue) -> None:
        """Read queues again, all if none is named."""
        self._paused_queues.difference_update(self.wire_queue(queue) for queue in queues or self.assignment())

    def _check(self) -> None:
        self.instance.check_usable()
        if self._closed:
            raise ClientClosed(f"stream of group {self.plain_group!r} is closed")
        if not self._started:
            raise ClientClosed("this stream is not started; use 'async with client.stream(...)'")
