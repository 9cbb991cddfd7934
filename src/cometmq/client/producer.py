"""The producer: sends messages, retries on another broker, and never says "sent" before a broker said so.

Delivery is at least once: a send that failed or was cancelled may have been stored ("outcome unknown"), and a
retry may store it twice; both copies carry the same ``msg_id``. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cometmq.client import failover
from cometmq.client.instance import Instance
from cometmq.client.lifetime import Lifetime
from cometmq.client.outgoing import Outbox, Outgoing
from cometmq.client.plain_send import PlainSends, Started, Target
from cometmq.client.queue import Queue
from cometmq.client.queue_selection import BrokerHealth, by_key
from cometmq.client.results import SendResult, SendStatus
from cometmq.client.routes import Route
from cometmq.client.send_pipe import SendAnswer
from cometmq.client.sender import Sender, result_of
from cometmq.client.settings import Duration, seconds
from cometmq.client.validation import check_group
from cometmq.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    CometMQError,
    ConnectionLost,
    NoMaster,
    SendFailed,
    Timeout,
    TopicNotFound,
)
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.message import Message

if TYPE_CHECKING:
    from cometmq.client.message import ReceivedMessage
    from cometmq.client.trace import Tracer

log = logging.getLogger(__name__)

RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
ACCESS_DENIED = "AclException"  # in the remark of code 1
IN_FLIGHT_MAX = 4096  # sends of send_soon() on the wire at a time
# Before the n-th attempt, when there is no other broker to turn to.
SAME_BROKER_PAUSES_S = (0.0, 0.05, 0.2, 0.5)
PROVISIONAL_REFRESH_S = 1.0

Selector = Callable[[Sequence[Queue], Message], Queue]


class First(NamedTuple):
    """A first attempt that failed."""

    broker_name: str
    cause: CometMQError | None


class Producer(Lifetime):
    """Sends messages of one producer group. Made by ``client.producer(group)``; usable at once."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        timeout: Duration = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        avoid_slow_brokers: bool = False,
        in_flight_max: int = IN_FLIGHT_MAX,
        tracer: Tracer | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.timeout_s = seconds(timeout)
        self.retries = retries
        self.instance = instance
        self._wire_group = instance.wire(group)
        self._sender = Sender(instance, self._wire_group)
        self._outbox = Outbox(instance.settings, instance.unique_ids)
        self._health = BrokerHealth() if avoid_slow_brokers else None
        self._retry_not_stored = retry_not_stored
        self._slots = asyncio.Semaphore(in_flight_max)
        self._soon: set[asyncio.Task[SendResult]] = set()
        self._failures: list[BaseException] = []
        self._tracer = tracer
        plain = not (tracer or avoid_slow_brokers or instance.namespace or instance.settings.access_key)
        self.plain = PlainSends(instance, self._wire_group) if plain else None
        self._registered = False
        self._closed = False

    # --- life ---

    async def start(self) -> None:
        """Announce the group to the brokers. Happens by itself with the first send."""
        self.check()

    async def aclose(self, timeout: Duration | None = None) -> None:
        """Wait for pending sends (bounded), then take leave. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._soon:
            _, late = await asyncio.wait(self._soon, timeout=self._drain_s(timeout))
            for task in late:
                task.cancel()
        for error in self._failures:
            log.warning("group=%s a message of send_soon() was not sent: %s", self.group, error)
        if self._registered:
            await self.instance.remove_producer(self._wire_group)

    def _drain_s(self, timeout: Duration | None) -> float:
        """How long closing may wait for work under way."""
        return seconds(self.instance.settings.drain_timeout if timeout is None else timeout)

    def check(self) -> None:
        """Raise unless this producer can be used; announces the group with the first use."""
        self.instance.check_usable()
        if self._closed:
            raise ClientClosed(f"producer {self.group!r} is closed")
        if not self._registered:
            self._registered = True
            self.instance.add_producer(self._wire_group)

    # --- sending ---

    async def send(
        self,
        message: Message,
        *,
        ordering_key: str | None = None,
        hash: str = "java",
        queue: Queue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send and wait until a broker has stored it.

        ``ordering_key`` keeps messages of one key in one queue, by Java's hash or with ``hash="fnv"`` by the Go
        client's; ``queue`` or ``selector`` choose a queue outright. Such sends are not retried elsewhere.
        """
        self.check()
        if ordering_key is None and queue is None and selector is None and self.plain is not None:
            started = self.plain.begin(message, self.timeout_s if timeout is None else seconds(timeout))
            if started is not None:
                return await self._finish_plain(message, started, timeout)
        return await self._send(message, ordering_key, hash, queue, selector, timeout)

    async def _finish_plain(self, message: Message, started: Started, timeout: Duration | None) -> SendResult:
        """Wait for the answer of a plain send; whatever is not success goes on as the second attempt."""
        target = started.target
        try:
            answer = await started.future
        except (Timeout, ConnectionLost) as error:
            outcome: SendAnswer | Exception = error
        else:
            if answer.code == 0:
                return result_of(answer, target.queue, started.unique_id, target.address)
            outcome = answer
        return await self.after_plain(message, target, started.unique_id, started.born_ms, outcome, timeout)

    async def after_plain(
        self,
        message: Message,
        target: Target,
        unique_id: str,
        born_ms: int,
        outcome: SendAnswer | Exception,
        timeout: Duration | None,
    ) -> SendResult:
        """A plain send did not simply succeed: raise, return what there is, or try elsewhere."""
        if isinstance(outcome, Timeout):
            self._look_again(self.instance.wire(message.topic))  # another one may be master by now
            raise _timed_out(message.topic, outcome) from outcome
        cause: CometMQError | None = None
        try:
            if isinstance(outcome, Exception):
                raise outcome
            result = result_of(outcome, target.queue, unique_id, target.address)
            if not self._retry_not_stored:
                return result
        except (ConnectionLost, BrokerError) as error:
            if not _worth_another_attempt(error):
                raise
            cause = error
        out = PlainSends.outgoing(message, unique_id, born_ms)
        timeout_s = self.timeout_s if timeout is None else seconds(timeout)
        return await self._send_anywhere(out, timeout_s, First(target.queue.broker_name, cause))

    async def _send(
        self,
        message: Message,
        ordering_key: str | None = None,
        hash: str = "java",
        queue: Queue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        now_ms = self.instance.now_ms()
        topic = self.instance.wire(message.topic)
        out = self._outbox.prepare(message, topic, now_ms)
        if self._outbox.wants_compression(out):
            await self._outbox.compress(out)
        timeout_s = self.timeout_s if timeout is None else seconds(timeout)
        if ordering_key is None and queue is None and selector is None:
            result = await self._send_anywhere(out, timeout_s)
        else:
            chosen = await self._choose(message, topic, ordering_key, hash, queue, selector, timeout_s)
            result = await self._send_there(chosen, out, timeout_s)
        if self._tracer is not None:
            self._tracer.sent(self.group, message, out, result, self.instance.now_ms() - now_ms)
        return result

    async def _send_there(self, queue: Queue, out: Outgoing, timeout_s: float) -> SendResult:
        """To one queue only: again when it was surely not stored because its group has no master at the moment."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        wait = failover.MasterWait(self.instance.routes, queue.topic)
        while True:
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                return await self._sender.once(queue, out, max(left_s, 0.001))
            except (BrokerError, NoMaster) as error:
                retry = isinstance(error, NoMaster) or failover.surely_not_stored(error)
                if not retry or left_s <= 0 or not failover.possible(self.instance.routes, queue.topic):
                    raise
                await wait.once(left_s)

    async def send_oneway(self, message: Message, *, ordering_key: str | None = None) -> None:
        """Send without waiting for an answer: fast, and nobody knows whether it arrived."""
        self.check()
        topic = self.instance.wire(message.topic)
        out = self._outbox.prepare(message, topic, self.instance.now_ms())
        if self._outbox.wants_compression(out):
            await self._outbox.compress(out)
        route = await self.instance.routes.for_sending(topic)
        if ordering_key is None:
            queue = self._next_queue(route, None)
        else:
            queue = by_key(route.write_queues, ordering_key)
        await self._sender.oneway(queue, out, self.timeout_s)

    async def send_batch(
        self, messages: Iterable[Message], *, queue: Queue | None = None, timeout: Duration | None = None
    ) -> SendResult:
        """Send messages of one topic in one request, to one queue; ``msg_id`` lists their ids, comma separated."""
        self.check()
        listed = list(messages)
        topic = self.instance.wire(listed[0].topic) if listed else ""
        out = self._outbox.prepare_batch(listed, topic, self.instance.now_ms())
        timeout_s = self.timeout_s if timeout is None else seconds(timeout)
        if queue is None:
            return await self._send_anywhere(out, timeout_s)
        return await self._send_there(self._wire_queue(queue), out, timeout_s)

    def send_soon(self, message: Message, **options: Any) -> asyncio.Task[SendResult]:
        """Begin to send and return a task. ``flush()`` waits for all of them; a failure nobody looked at
        shows there.
        """
        self.check()
        task = asyncio.ensure_future(self._send_bounded(message, options))
        self._soon.add(task)
        task.add_done_callback(self._sent_soon)
        return task

    async def flush(self) -> None:
        """Wait for everything that ``send_soon`` began; raises the first failure."""
        while self._soon:
            await asyncio.wait(self._soon)
        failures, self._failures = self._failures, []
        if failures:
            raise failures[0]

    async def _send_bounded(self, message: Message, options: dict[str, Any]) -> SendResult:
        async with self._slots:
            return await self._send(message, **options)

    def _sent_soon(self, task: asyncio.Task[SendResult]) -> None:
        self._soon.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._failures.append(error)

    # --- attempts ---

    async def _send_anywhere(self, out: Outgoing, timeout_s: float, first: First | None = None) -> SendResult:
        """Attempt after attempt, each on another broker if there is one, within one limit of time.

        ``first`` is an attempt that was made before and failed.
        """
        loop = self.instance.loop
        assert loop is not None
        deadline = loop.time() + timeout_s
        avoid = None if first is None else first.broker_name
        cause = None if first is None else first.cause
        stored: SendResult | None = None
        attempt = -1 if first is None else 0
        routes, wait = self.instance.routes, failover.MasterWait(self.instance.routes, out.topic)
        if cause is not None and failover.possible(routes, out.topic):
            await wait.once(deadline - loop.time())
        while attempt < self.retries or (stored is None and failover.possible(routes, out.topic)):
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            attempt += 1
            try:
                queue = await self._next(out.topic, avoid, min(attempt, self.retries), left_s)
            except TopicNotFound as error:
                if not failover.possible(routes, out.topic):
                    raise
                cause = error
                await wait.once(left_s)
                continue
            started = loop.time()
            try:
                result = await self._sender.once(queue, out, deadline - started)
            except Timeout as error:
                self._note(queue.broker_name, None)
                self._look_again(out.topic)
                raise _timed_out(out.topic, error) from error
            except (ConnectionLost, BrokerError) as error:
                if not _worth_another_attempt(error):
                    raise
                cause, avoid = error, queue.broker_name
                self._note(queue.broker_name, None)
                if failover.possible(routes, out.topic):
                    await wait.once(deadline - loop.time())
                else:
                    self._look_again(out.topic)
                continue
            self._note(queue.broker_name, (loop.time() - started) * 1000)
            if result.status is SendStatus.SEND_OK or not self._retry_not_stored:
                self._succeeded(out.topic)
                return result
            stored, avoid = result, queue.broker_name
        if stored is not None:
            return stored
        raise _failed(out.topic, attempt + 1, cause) from cause

    def _succeeded(self, topic: str) -> None:
        route = self.instance.routes.known(topic)
        if self.plain is not None and route is not None:
            self.plain.learn(route)

    async def _next(self, topic: str, avoid: str | None, attempt: int, left_s: float) -> Queue:
        route = self.instance.routes.known(topic)
        if route is None or not route.write_queues:
            route = await self._route(topic, left_s)
        only_one = avoid is not None and all(queue.broker_name == avoid for queue in route.write_queues)
        if only_one and not failover.possible(self.instance.routes, topic):  # else MasterWait has paused
            pause_s = SAME_BROKER_PAUSES_S[min(attempt, len(SAME_BROKER_PAUSES_S) - 1)]
            await asyncio.sleep(min(pause_s, left_s))
        return self._next_queue(route, avoid)

    def _next_queue(self, route: Route, avoid: str | None) -> Queue:
        if route.provisional:
            self._look_again(route.topic, PROVISIONAL_REFRESH_S)
        if self._health is not None:
            return route.turn.next_healthy(route.write_queues, self._health, self.instance.now_ms())
        return route.turn.next(route.write_queues, avoid)

    async def _route(self, topic: str, timeout_s: float) -> Route:
        try:
            async with asyncio.timeout(timeout_s):
                return await self.instance.routes.for_sending(topic)
        except TimeoutError as error:
            if isinstance(error, CometMQError):
                raise
            raise Timeout(f"no NameServer said within {timeout_s:.1f} s where topic {topic!r} is") from None

    def _note(self, broker_name: str, latency_ms: float | None) -> None:
        if self._health is None:
            return
        now_ms = self.instance.now_ms()
        if latency_ms is None:
            self._health.isolate(broker_name, now_ms)
        else:
            self._health.record(broker_name, latency_ms, now_ms)

    def _look_again(self, topic: str, delay_s: float = 0.0) -> None:
        """Have the route refreshed beside the send; one at a time per topic."""
        self.instance.refresh_soon(topic, delay_s)

    async def _choose(
        self,
        message: Message,
        topic: str,
        ordering_key: str | None,
        hash_name: str,
        queue: Queue | None,
        selector: Selector | None,
        timeout_s: float,
    ) -> Queue:
        if queue is not None:
            await self._route(topic, timeout_s)
            return self._wire_queue(queue)
        route = await self._route(topic, timeout_s)
        if ordering_key is not None:
            return by_key(route.write_queues, ordering_key, hash_name)
        assert selector is not None
        plain = [self._plain_queue(one) for one in route.write_queues]
        chosen = selector(plain, message)
        if chosen not in plain:
            raise ClientError(f"the selector must return one of the queues it was given, not {chosen!r}")
        return self._wire_queue(chosen)

    async def queues(self, topic: str) -> list[Queue]:
        """The queues that messages of a topic are spread over."""
        self.check()
        route = await self._route(self.instance.wire(topic), self.timeout_s)
        return [self._plain_queue(queue) for queue in route.write_queues]

    def _wire_queue(self, queue: Queue) -> Queue:
        return Queue(self.instance.wire(queue.topic), queue.broker_name, queue.queue_id)

    def _plain_queue(self, queue: Queue) -> Queue:
        return Queue(self.instance.plain(queue.topic), queue.broker_name, queue.queue_id)

    # --- request and reply ---

    async def request(self, message: Message, *, timeout: Duration = 3.0) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it."""
        self.check()
        from cometmq.client.request_reply import request

        return await request(self.instance, self, message, seconds(timeout))


def _worth_another_attempt(error: CometMQError) -> bool:
    """A lost connection is; of refusals those that another broker may not repeat, and never one of access control."""
    if not isinstance(error, BrokerError):
        return True
    return error.code in RETRY_CODES and ACCESS_DENIED not in error.remark


def _timed_out(topic: str, error: Timeout) -> Timeout:
    return Timeout(f"sending to topic {topic!r}: {error}; outcome unknown")


def _failed(topic: str, attempts: int, cause: CometMQError | None) -> SendFailed:
    code = cause.code if isinstance(cause, BrokerError) else None
    return SendFailed(f"sending to topic {topic!r} failed {attempts} times; last: {cause}", attempts, code)
