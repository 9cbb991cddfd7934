"""The consumer: a member of a group that is handed messages of its queues.

It pulls its share of the queues, hands messages to handlers or to an ``async for``, and commits offsets that
never pass an unfinished message. Delivery is at least once. Loop thread only, except handlers that are plain
functions: those run in threads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self

from cometmq.client.consumer.delivery import ConcurrentDelivery, Delivery, OrderlyDelivery
from cometmq.client.consumer.limits import Limits
from cometmq.client.consumer.locks import RENEW_INTERVAL_S, QueueLocks
from cometmq.client.consumer.member import Member
from cometmq.client.consumer.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from cometmq.client.consumer.options import ConsumerOptions
from cometmq.client.consumer.process_queue import NO_OFFSET, ProcessQueue
from cometmq.client.consumer.rebalance import Rebalance
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settlement import (
    BroadcastSettlement,
    ConcurrentSettlement,
    OrderlySettlement,
    Settlement,
)
from cometmq.client.consumer.subscriptions import SubscriptionTable
from cometmq.client.identity import DEFAULT_INSTANCE, client_id
from cometmq.client.instance import Instance
from cometmq.client.message import ReceivedMessage
from cometmq.client.namespace import retry_topic
from cometmq.client.queue import Queue
from cometmq.client.results import SendResult
from cometmq.client.settings import Duration, seconds
from cometmq.client.subscription import Filter, Subscriptions, as_filter, as_subscriptions
from cometmq.client.validation import check_group, check_topic
from cometmq.errors import ClientError, CometMQError
from cometmq.protocol.bodies.heartbeat import BROADCASTING, CLUSTERING, CONSUME_PASSIVELY, ConsumerData
from cometmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from cometmq.client.consumer.handlers import HandlerWorkers
    from cometmq.client.trace import Tracer

log = logging.getLogger(__name__)

EXPIRY_CHECK_S = 60.0


class Consumer(Member):
    """A push consumer. Made by ``client.consumer(group, topics, ...)``; options are those of ConsumerOptions.

    Use it as ``async with`` and iterate, or give it a handler with ``run``. With iteration messages come one at a time
    per loop; run several loops over one consumer to process several at a time.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Subscriptions,
        *,
        tracer: Tracer | None = None,
        **options: Any,
    ) -> None:
        check_group(group)
        super().__init__(instance, group)
        self.options = ConsumerOptions(**options)
        self.allocation = self.options.allocation
        self.start_from = self.options.start
        self.broadcast = self.options.broadcast
        self.commits_with_pulls = not self.options.broadcast
        self.sends_subscription = self.options.post_subscription
        self.pull_batch = self.options.pull_batch
        self.pull_pause_s = seconds(self.options.pull_interval)
        self.settler = self
        self.retry_topic = None if self.options.broadcast else retry_topic(self.group)
        filters = as_subscriptions(subscriptions)
        for topic in filters:
            check_topic(topic)
        self.subscriptions = SubscriptionTable(instance, filters, self.retry_topic)
        self.limits = Limits(self.options)
        self.tracer = tracer
        self.offsets = self._offset_store()
        self.locks = self._locks()
        self.rebalance = Rebalance(self)
        self.send_back = SendBack(instance, self.group, self.options.retries)
        self.delivery: Delivery = self._delivery()
        self.settlement = self._settlement()
        self.workers: HandlerWorkers | None = None
        self._processing = 0
        self._idle = asyncio.Event()

    # --- parts ---

    def _offset_store(self) -> OffsetStore:
        if not self.options.broadcast:
            return RemoteOffsets(self.instance, self.group)
        settings = self.instance.settings
        # Stable over restarts, as Java's broadcast id is: without a name of its own it is DEFAULT.
        owner = client_id(
            settings.instance_name or DEFAULT_INSTANCE, settings.unit_name, settings.client_ip or None
        )
        return LocalOffsets(settings.offset_path, owner, self.group)

    def _locks(self) -> QueueLocks | None:
        if not self.options.ordered or self.options.broadcast:
            return None
        return QueueLocks(self.instance, self.group, self.queues)

    def _delivery(self) -> Delivery:
        return OrderlyDelivery(self._may_take) if self.options.ordered else ConcurrentDelivery()

    def _settlement(self) -> Settlement:
        if self.options.ordered:
            return OrderlySettlement(self)
        return BroadcastSettlement(self) if self.options.broadcast else ConcurrentSettlement(self)

    def _may_take(self, process_queue: ProcessQueue) -> bool:
        """Ordered: only under a valid lock. A lost lock is asked for again before the queue is offered again."""
        if self.locks is None or process_queue.lock_valid(self.instance.now_ms()):
            return True
        self.background.spawn(self._lock_again(process_queue), f"lock {process_queue.queue}")
        return False

    async def _lock_again(self, process_queue: ProcessQueue) -> None:
        assert self.locks is not None
        while not process_queue.dropped:
            try:
                if await self.locks.lock(process_queue.queue):
                    assert isinstance(self.delivery, OrderlyDelivery)
                    self.delivery.offer(process_queue)
                    return
            except CometMQError as error:
                log.warning("group=%s %s is not locked: %s", self.group, process_queue.queue, error)
            await asyncio.sleep(self.options.suspend_s)

    # --- life ---

    async def _join(self) -> None:
        await self.offsets.load()
        await self._check_sql()
        self.started_ms = self.instance.now_ms()
        await self.instance.heartbeat()
        try:
            await self.rebalance.round()
        except CometMQError as error:
            log.warning("group=%s first assignment failed, it is tried again: %s", self.group, error)
            self.rebalance.wake()

    def _begin_background(self) -> None:
        self.background.spawn(self.rebalance.run(), "rebalance")
        self.rebalance.wake()
        interval_s = seconds(self.instance.settings.offset_interval)
        self.background.every(interval_s, self.persist_offsets, "offsets")
        if self.locks is not None:
            self.background.every(RENEW_INTERVAL_S, self.locks.renew, "locks")
        if not self.options.ordered and not self.options.broadcast:
            self.background.every(EXPIRY_CHECK_S, self._expire, "expiry")

    async def _check_sql(self) -> None:
        """Ask a broker whether it takes the SQL filters; raises its answer."""
        for subscription in self.subscriptions.sql():
            if await self.instance.routes.for_reading(subscription.topic) is None:
                continue
            address = self.instance.routes.any_address(subscription.topic)
            if address is not None:
                await self.instance.brokers.check_subscription(
                    address, self.instance.client_id, self.group, subscription
                )

    async def aclose(self, timeout: Duration | None = None) -> None:
        """Drain: stop pulling, let running handlers end (bounded), store offsets with confirmation, leave the group."""
        if self._closed:
            return
        self._closed = True
        self.paused = True
        self.delivery.close()
        for held in self.queues.values():
            if held.pull_task is not None:
                held.pull_task.cancel()
        limit_s = seconds(self.instance.settings.drain_timeout if timeout is None else timeout)
        try:
            await self._drain(limit_s)
        finally:
            await self._leave(limit_s)

    async def _drain(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while self._processing:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning(
                "group=%s %d messages were still in their handlers after %.1f s; they will be delivered again",
                self.plain_group,
                self._processing,
                limit_s,
            )

    async def _leave(self, limit_s: float) -> None:
        if self.workers is not None:
            await self.workers.close()
        await self.background.close()
        if not self._started or not self.instance.started:
            return
        try:
            async with asyncio.timeout(max(1.0, limit_s)):
                await self.offsets.persist(self.queues, confirmed=True)
                for held in self.queues.values():
                    held.dropped = True
                if self.locks is not None:
                    await self.locks.unlock_all(self.queues, confirmed=True)
                await self.instance.remove_consumer(self)
        except TimeoutError:
            log.warning("group=%s brokers did not confirm the leave within %.1f s", self.plain_group, limit_s)
            self.abandon()
        self.queues.clear()

    # --- what the instance asks ---

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_PASSIVELY,
            message_model=BROADCASTING if self.options.broadcast else CLUSTERING,
            consume_from_where=self.options.start.wire_name,
            subscription_data_set=self.subscriptions.all(),
            unit_mode=self.instance.settings.unit_mode,
        )

    def wake(self) -> None:
        self.rebalance.wake()

    # --- taking messages ---

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if not self._started:
            await self.start()
        messages = await self.delivery.next(1)
        if not messages:
            raise StopAsyncIteration
        self._handed_out(messages, iterated=True)
        return messages[0]

    async def take(self, count_max: int, *, iterated: bool = False) -> list[ReceivedMessage]:
        """Up to ``count_max`` messages of one queue; waits for the first; empty when the consumer was closed."""
        messages = await self.delivery.next(count_max)
        self._handed_out(messages, iterated=iterated)
        return messages

    def _handed_out(self, messages: list[ReceivedMessage], *, iterated: bool) -> None:
        """Messages taken by iteration are traced from here until they are settled; handlers trace their own."""
        now_ms = self.instance.now_ms()
        for message in messages:
            message.consume_started_ms = now_ms
            if iterated and self.tracer is not None:
                message.trace_id = self.tracer.before(self.plain_group, [message])

    def _trace_end(self, message: ReceivedMessage, error: BaseException | None) -> None:
        if self.tracer is not None and message.trace_id and not message.finished:
            took_ms = self.instance.now_ms() - message.consume_started_ms
            self.tracer.after(self.plain_group, message.trace_id, [message], took_ms, error)

    async def run(
        self, handler: Any, *, decode: Any = None, home: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Call ``handler`` for every message until the consumer is closed. Plain functions run in threads.

        With ``decode`` the handler gets the decoded body and the message. ``home`` is for isolated clients.
        """
        from cometmq.client.consumer.handlers import HandlerWorkers

        if self.workers is not None:
            raise ClientError(f"consumer of group {self.plain_group!r} already has a handler")
        self.workers = HandlerWorkers(self, handler, decode, home)
        await self.start()
        await self.workers.run()

    def begin_processing(self, count: int = 1) -> None:
        """So many messages more are in work; closing waits for them."""
        self._processing += count

    def end_processing(self, count: int = 1) -> None:
        """So many messages less are in work."""
        self._processing -= count
        if not self._processing:
            self._idle.set()

    # --- settling ---

    def settle_success(self, message: ReceivedMessage) -> None:
        """The message is done. Late results of a queue given up meanwhile are ignored."""
        self._trace_end(message, None)
        self.settlement.success([message])

    async def settle_failure(self, message: ReceivedMessage, reason: BaseException) -> None:
        """Have a message come again, or go where the reason (Retry, Reject) says."""
        self._trace_end(message, reason)
        await self.settlement.failure([message], reason)

    def finish(self, message: ReceivedMessage) -> None:
        """Take a message out of its queue and move the offset as far as that allows."""
        held = message.process_queue
        if held is None or held.dropped:
            message.finished = True
            return
        offset = held.finish(message)
        held.last_consume_ms = self.instance.now_ms()
        if offset != NO_OFFSET:
            self.offsets.update(held.queue, offset, increase_only=not self.options.ordered)
        if held.room is not None and not self.limits.full(held):
            held.room.set()

    async def reply(self, message: ReceivedMessage, body: bytes) -> SendResult:
        """Answer a request that was consumed."""
        from cometmq.client.request_reply import reply

        return await reply(self.instance, message, body)

    # --- offsets ---

    async def persist_offsets(self) -> None:
        """Store how far this member came, now; happens by itself every five seconds."""
        await self.offsets.persist(list(self.queues))

    async def commit(self) -> None:
        """Store the offsets now; returns when the brokers have confirmed."""
        await self.offsets.persist(list(self.queues), confirmed=True)

    async def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker does not have the offset asked for: go on where it says, unless messages are unfinished."""
        queue = process_queue.queue
        log.warning(
            "group=%s %s offset %d is not there; going on at %d",
            self.group,
            queue,
            process_queue.next_pull_offset,
            offset,
        )
        process_queue.dropped = True
        self.offsets.update(queue, offset, increase_only=False)
        await self.offsets.persist([queue], confirmed=True)
        if self.queues.get(queue) is process_queue:
            del self.queues[queue]
        self.rebalance.wake()

    async def reset_offsets(self, offsets: dict[Queue, int]) -> None:
        """An administrator moved the group: drop what is cached and begin again where told."""
        self.paused = True
        try:
            affected = [self.queues.pop(queue) for queue in offsets if queue in self.queues]
            for held in affected:
                held.dropped = True
                if held.pull_task is not None:
                    held.pull_task.cancel()
                held.clear()
                self.offsets.update(held.queue, offsets[held.queue], increase_only=False)
            await self.offsets.persist([held.queue for held in affected], confirmed=True)
        finally:
            self.paused = False
            self.rebalance.wake()

    async def _expire(self) -> None:
        """Send back messages whose handler takes longer than consume_timeout; the handler is not disturbed."""
        limit_ms = seconds(self.options.consume_timeout) * 1000
        for held in list(self.queues.values()):
            first = held.messages[0] if held.messages else None
            if first is None or not first.consume_started_ms or first.finished:
                continue
            if self.instance.now_ms() - first.consume_started_ms > limit_ms:
                log.warning("group=%s %s is in its handler for too long and is sent back", self.group, first)
                await self.send_back(first, 3)
                self.finish(first)

    # --- while running ---

    async def subscribe(self, topic: str, filter: Filter | str | None = None) -> None:
        """Add or replace a subscription; takes effect with the next rebalance, which is woken."""
        check_topic(topic)
        self.subscriptions.subscribe(topic, as_filter(filter))
        await self.instance.heartbeat()
        self.rebalance.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self.subscriptions.unsubscribe(topic)
        await self.instance.heartbeat()
        self.rebalance.wake()

    def pause(self) -> None:
        """Stop pulling; what was pulled is still handed out."""
        self.paused = True

    def resume(self) -> None:
        """Pull again after ``pause()``."""
        self.paused = False
        self.rebalance.wake()

    def assignment(self) -> list[Queue]:
        """The queues this member reads now, retry queues left out."""
        return sorted(
            self.plain_queue(queue)
            for queue, held in self.queues.items()
            if not held.dropped and not queue.topic.startswith(RETRY_PREFIX)
        )
