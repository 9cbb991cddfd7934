"""Sending many messages from one task: batches per queue, several under way, order kept within a queue.

A queue has at most one request under way (a Java broker would answer two in any order), the task ``sendInFlight``. A
request that fails is sent again to the same queue, so a message may come twice; its id tells. Unless ``stored_ids`` is
given (exactly once): then the ids behind the fence are asked for first, and what is there is not sent again.
"""

from __future__ import annotations

import logging
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from cometmq.clock import now_ms as wall_clock_ms
from cometmq.errors import BrokerError, ClientError, CometMQError
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import SendMessageV2Header
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.sys_flag import COMPRESSED
from cometmq.spark.cluster import Cluster, Route, is_transient, master_address, pause
from cometmq.spark.link import Link, link_to
from cometmq.spark.options import BATCH_BYTES_MAX, WriteOptions
from cometmq.spark.sink_rows import OutgoingMessage

log = logging.getLogger(__name__)

# The message is stored; only a copy or a flush is late.
STORED = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    )
)
REFUSED_FOR_NOW = frozenset(
    (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR)
)
COMPRESSION_LEVEL = 5
BATCH_COUNT_MAX = 2000  # messages
# Bytes a message of a batch costs besides body and properties, on the wire and stored
ITEM_EXTRA_SIZE = 22 + 91
_ITEM_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


@dataclass(slots=True)
class Request:
    """Messages that are sent together."""

    queue: MessageQueue
    sys_flag: int
    messages: list[OutgoingMessage] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    size: int = 0
    attempts: int = 0
    link: Link | None = None
    opaque: int = 0


class Sender:
    """Sends the messages of one task. ``flush()`` waits for all answers."""

    def __init__(
        self,
        options: WriteOptions,
        *,
        stored_ids: Callable[[str], frozenset[str]] | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._options = options
        self._stored_ids = stored_ids
        self._now_ms = now_ms
        self._timeout_s = options.send_timeout_ms / 1000
        self._cluster = Cluster(options, timeout_ms=max(options.send_timeout_ms, 1), retries=options.retries)
        self._routes: dict[str, tuple[Route, list[MessageQueue]]] = {}
        self._open: dict[MessageQueue, Request] = {}  # being filled
        self._ready: deque[Request] = deque()
        self._under_way: dict[MessageQueue, Request] = {}
        self._doubtful: deque[Request] = deque()  # failed; nobody knows whether they are stored
        self._turn = 0
        self.sent_count = 0

    def send(self, message: OutgoingMessage) -> None:
        queue = self._queue_for(message)
        body, sys_flag = self._packed(message.body)
        size = len(body) + len(message.properties) + ITEM_EXTRA_SIZE
        if size > BATCH_BYTES_MAX:
            raise ClientError(
                f"A message for {message.topic} has {len(message.body)} bytes, more than brokers take."
            )
        request = self._open.get(queue)
        if request is not None and (
            request.sys_flag != sys_flag
            or request.size + size > self._options.send_batch_bytes
            or len(request.messages) >= BATCH_COUNT_MAX
            or message.is_delayed
        ):
            self._finish(queue)
            request = None
        if request is None:
            request = self._open[queue] = Request(queue, sys_flag)
        request.messages.append(message)
        request.bodies.append(body)
        request.size += size
        if message.is_delayed:
            self._finish(queue)

    def flush(self) -> None:
        """Send what is left and wait for every answer."""
        for queue in list(self._open):
            self._finish(queue)
        while self._ready or self._under_way or self._doubtful:
            self._start_ready()
            self._receive()

    # -- choosing --------------------------------------------------------------------------------------------

    def _queue_for(self, message: OutgoingMessage) -> MessageQueue:
        queues = self.queues(message.topic)
        if message.queue_id is not None:
            return queues[message.queue_id % len(queues)]
        if message.sharding_key is not None:
            return queues[zlib.crc32(message.sharding_key.encode()) % len(queues)]
        chosen = queues[self._turn % len(queues)]
        filling = self._open.get(chosen)
        if filling is not None and filling.size * 2 > self._options.send_batch_bytes:
            self._turn += 1  # one queue is filled after the other: larger batches
        return chosen

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that may be written, always in the same order."""
        if topic not in self._routes:
            route = self._cluster.route(topic)
            queues = [
                MessageQueue(topic, broker, queue_id)
                for broker, count in sorted(route.write_queues.items())
                for queue_id in range(count)
            ]
            if not queues:
                raise ClientError(f"No queue of the topic {topic} may be written.")
            self._routes[topic] = route, queues
        return self._routes[topic][1]

    def _packed(self, body: bytes) -> tuple[bytes, int]:
        threshold = self._options.compress_threshold
        if threshold and len(body) >= threshold:
            packed = zlib.compress(body, COMPRESSION_LEVEL)
            if len(packed) < len(body):
                return packed, COMPRESSED
        return body, 0

    # -- requests --------------------------------------------------------------------------------------------

    def _finish(self, queue: MessageQueue) -> None:
        self._ready.append(self._open.pop(queue))
        self._start_ready()
        while len(self._ready) >= self._options.send_in_flight:
            self._receive()
            self._start_ready()

    def _start_ready(self) -> None:
        """Start what may start: oldest first, one request a queue."""
        if self._doubtful:
            if self._under_way:
                return  # the check would use their connections
            self._check_doubtful()
        waiting: deque[Request] = deque()
        blocked: set[MessageQueue] = set()
        for request in self._ready:
            free = request.queue not in self._under_way and request.queue not in blocked
            if free and len(self._under_way) < self._options.send_in_flight:
                self._start(request)
            else:
                blocked.add(request.queue)
                waiting.append(request)
        self._ready = waiting

    def _start(self, request: Request) -> None:
        route, _ = self._routes[request.queue.topic]
        request.link = link_to(master_address(route.addresses, request.queue.broker_name), self._options)
        request.opaque = request.link.post(self._command(request))
        self._under_way[request.queue] = request
        try:
            request.link.flush(self._timeout_s)
        except CometMQError as error:
            self._failed(request.link, error)

    def _command(self, request: Request) -> RemotingCommand:
        first = request.messages[0]
        is_batch = len(request.messages) > 1
        header = SendMessageV2Header(
            producer_group=self._options.group,
            topic=request.queue.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=request.queue.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=self._now_ms(),
            flag=0 if is_batch else first.flag,
            properties="" if is_batch else first.properties.decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=is_batch,
        )
        if not is_batch:
            return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, request.bodies[0])
        pieces: list[bytes] = []
        for message, body in zip(request.messages, request.bodies, strict=True):
            size = 22 + len(body) + len(message.properties)
            pieces += (
                _ITEM_HEAD.pack(size, 0, 0, message.flag, len(body)),
                body,
                _SHORT.pack(len(message.properties)),
                message.properties,
            )
        return RemotingCommand.request(RequestCode.SEND_BATCH_MESSAGE, header, b"".join(pieces))

    def _receive(self) -> None:
        """Take one answer."""
        if not self._under_way:
            return
        link = next(iter(self._under_way.values())).link
        assert link is not None
        try:
            answer = link.receive(self._timeout_s)
        except CometMQError as error:
            self._failed(link, error)
            return
        for request in self._under_way.values():
            if request.link is link and request.opaque == answer.opaque:
                self._answered(request, answer)
                return

    def _answered(self, request: Request, answer: RemotingCommand) -> None:
        del self._under_way[request.queue]
        if answer.code in STORED:
            self.sent_count += len(request.messages)
            return
        assert request.link is not None
        error = BrokerError(answer.code, answer.remark, request.link.address)
        self._again(request, error, answer.code in REFUSED_FOR_NOW)

    def _failed(self, link: Link, error: CometMQError) -> None:
        """A connection broke: everything under way on it is sent again."""
        for request in [request for request in self._under_way.values() if request.link is link]:
            del self._under_way[request.queue]
            self._again(request, error, is_transient(error))

    def _again(self, request: Request, error: CometMQError, may_try: bool) -> None:
        if not may_try or request.attempts >= self._options.retries:
            raise error
        log.warning("send attempt %d to %s failed: %s", request.attempts + 1, request.queue, error)
        pause(request.attempts)
        request.attempts += 1
        (self._ready if self._stored_ids is None else self._doubtful).appendleft(request)

    def _check_doubtful(self) -> None:
        """Leave out of failed requests what is stored; the rest is sent again, before everything else."""
        assert self._stored_ids is not None
        stored = {topic: self._stored_ids(topic) for topic in {item.queue.topic for item in self._doubtful}}
        while self._doubtful:
            request = self._doubtful.popleft()
            known = stored[request.queue.topic]
            kept = [number for number, item in enumerate(request.messages) if item.message_id not in known]
            self.sent_count += len(request.messages) - len(kept)
            request.messages = [request.messages[number] for number in kept]
            request.bodies = [request.bodies[number] for number in kept]
            if kept:
                self._ready.appendleft(request)


class Pace:
    """At most so many messages a second."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._next_s = clock()

    def wait(self) -> None:
        if self._rate is None:
            return
        now = self._clock()
        self._next_s = max(self._next_s, now - 1) + 1 / self._rate
        if self._next_s > now:
            time.sleep(self._next_s - now)
