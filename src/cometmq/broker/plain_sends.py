"""The door between the network and the compiled send path.

``RemotingServer`` offers every receive buffer to ``PlainSendPath.serve`` first. It lets ``plain_send_cy`` turn the
plain sends at its front into records in the log, commits them, and writes (or holds back) their answers. Everything
that is not certain falls through to ``handlers/send.py``.

A topic takes part after a send to it went through the handlers once (``admit``), until it changes (``forget``).
Loop thread only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.broker.counters import LATENCY_BOUNDS_US
from cometmq.broker.plain_send_cy import PlainSends
from cometmq.broker.topics import NO_SEND_TOPICS
from cometmq.net.metrics import CloseReason
from cometmq.protocol.bodies.topic import MULTI_TAG, TopicConfig
from cometmq.protocol.command import FRAME_SIZE_MAX, decode_frame
from cometmq.protocol.names import PERM_WRITE, RETRY_PREFIX
from cometmq.store.model import AppendSpace, PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection

log = logging.getLogger(__name__)

RECORD_SIZE_MIN = 91
QUICK_NS = LATENCY_BOUNDS_US[0] * 1_000  # what lies in the first class of the histograms
STORED_CODES = {
    PutStatus.FLUSH_DISK_TIMEOUT: 10,
    PutStatus.SLAVE_NOT_AVAILABLE: 11,
    PutStatus.FLUSH_SLAVE_TIMEOUT: 12,
}

Answers = list[tuple["Connection", bytes]]


class PlainSendPath:
    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self._store = broker.store
        self._sends = PlainSends(
            cluster=config.broker_cluster_name,
            region=config.region_id,
            trace_on=config.trace_on,
            store_host=broker.store_host,
            body_size_max=config.max_message_size,
            frame_size_max=FRAME_SIZE_MAX,
        )
        self._epoch = self._store.offsets_epoch
        self._space: AppendSpace | None = None  # of the batch that was begun
        self._position = 0  # its end so far
        self._taken = 0  # messages in it
        self._answers: Answers = []
        self._began_ns = self._now_ms = 0
        self.batches = 0
        self.messages = 0
        self._quick = 0  # messages of batches that were stored within QUICK_NS
        self._quick_ns = 0  # and their times, added up

    # -- which topics ---------------------------------------------------------------------------------------------

    def admit(self, topic: TopicConfig) -> None:
        """A send to this topic was stored by the handlers: the next ones may be plain."""
        name = topic.topic_name.encode()
        if name in self._sends.topics or not self._is_plain(topic):
            return
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        offsets = self._store.queue_offsets(name, queues)
        if len(offsets) < queues:
            queues = len(offsets)
        self._sends.admit(name, queues, offsets)

    def _is_plain(self, topic: TopicConfig) -> bool:
        return not (
            topic.order  # its write permission is checked with every send
            or topic.topic_filter_type == MULTI_TAG
            or topic.topic_name in NO_SEND_TOPICS
            or topic.topic_name.startswith(RETRY_PREFIX)
        )

    def forget(self, topics: Iterable[str]) -> None:
        """Settings changed; an empty list means that all may have."""
        self.collect()
        names = [topic.encode() for topic in topics] or list(self._sends.topics)
        for name in names:
            self._sends.forget(name)

    # -- a receive buffer -----------------------------------------------------------------------------------------

    def serve(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        """Store and answer the plain sends at the front of ``view[start:end]``; how many bytes they took."""
        taken = self.take(connection, view, start, end)
        self.finish()
        return taken

    def take(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        """Write the plain sends at the front of ``view[start:end]``; how many bytes they took.

        They are in the log, and answered, after ``finish``, which the log calls when somebody else wants to append.
        """
        sends = self._sends
        space = self._space or self._begin()
        if space is None:
            return 0
        taken = sends.consume(
            view, start, end, connection.born_host, space.buffer, self._position, space.limit, space.physical_base,
            self._now_ms,
        )  # fmt: skip
        if sends.count:
            self._position = sends.position
            self._taken += sends.count
            if sends.responses:
                self._answers.append((connection, sends.responses))
        return taken

    def _begin(self) -> AppendSpace | None:
        """Room for a batch; None while sends must take the way through the handlers."""
        store = self._store
        now_ms = self._broker.now_ms()
        if not self._sends.topics or not self._is_open(now_ms):
            return None
        if store.table.offsets_epoch != self._epoch:
            self.forget(())
            self._epoch = store.table.offsets_epoch
        space = store.reserve(RECORD_SIZE_MIN)
        if space is not None:
            self._space, self._position = space, space.position
            store.commit_log.finish_batch = self.finish  # before anybody else writes there
            self._began_ns, self._now_ms = time.monotonic_ns(), now_ms
        return space

    def finish(self) -> None:
        """Commit what was taken since the last call, and answer it."""
        if self._space is None:
            return
        self._space = self._store.commit_log.finish_batch = None
        if not self._taken:
            return
        count, answers = self._taken, self._answers
        self._taken, self._answers = 0, []
        try:
            end_offset = self._store.commit(self._position)
        except Exception:
            log.exception("sends=%s are in doubt, their connections are closed", count)
            for connection, _frames in answers:
                connection.close(CloseReason.INTERNAL_ERROR)
            return
        self._answer(answers, end_offset)
        self._count(count, time.monotonic_ns() - self._began_ns)

    def _is_open(self, now_ms: int) -> bool:
        broker, config = self._broker, self._broker.config
        return (
            broker.acl is None
            and not config.enable_multi_dispatch  # items of a batch may name light queues
            and bool(config.broker_permission & PERM_WRITE)
            and now_ms >= config.start_accept_send_request_time_stamp
            and broker.flow_control.refusal() is None
        )

    def _answer(self, answers: Answers, end_offset: int) -> None:
        durability = self._broker.durability
        result = None if durability.at_once else PutResult(PutStatus.PUT_OK, end_offset=end_offset)
        if result is None or not durability.must_wait(result, True):
            for connection, frames in answers:
                connection.answer(frames)
            return

        def settled(status: PutStatus) -> None:
            for connection, frames in answers:
                connection.answer(frames if status is PutStatus.PUT_OK else recoded(frames, status))

        durability.when_settled(result, settled)

    # -- statistics -----------------------------------------------------------------------------------------------

    def _count(self, count: int, elapsed_ns: int) -> None:
        self.batches += 1
        self.messages += count
        if elapsed_ns < QUICK_NS:  # nearly all: noted here, told to the statistics when they are read
            self._quick += count
            self._quick_ns += elapsed_ns * count
        else:
            self._broker.flow_control.took(elapsed_ns)
            self._broker.count_put_time(elapsed_ns // 1_000, count)

    def collect(self) -> None:
        """Hand what was counted since the last call to the statistics; they call this before they are read."""
        broker = self._broker
        if self._quick:
            broker.count_put_time(self._quick_ns // self._quick // 1_000, self._quick)
            self._quick = self._quick_ns = 0
        for name, topic in self._sends.topics.items():
            messages, size = topic.take_counts()
            if messages:
                broker.counters.puts += messages
                broker.counters.put_bytes += size
                broker.stats.put_counter(name.decode(), 0).add(messages, size, calls=messages)


def recoded(responses: bytes, status: PutStatus) -> bytes:
    """The same answers with another code: stored, but not as durable as asked for."""
    frames = []
    view = memoryview(responses)
    while view:
        size = 4 + int.from_bytes(view[:4], "big")
        answer = decode_frame(view[:size])
        answer.code = STORED_CODES[status]
        frames.append(answer.encode())
        view = view[size:]
    return b"".join(frames)
