"""The door between the network and the compiled send path.

``RemotingServer`` offers every receive buffer to ``PlainSendPath.serve`` first. It lets ``plain_send_cy`` turn the
plain sends at its front into records in the log, commits them, and writes (or holds back) their answers. Everything
that is not certain falls through to ``handlers/send.py``.

A topic takes part after a send to it went through the handlers once (``admit``), until it changes (``forget``).
Loop thread only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.broker.counters import LATENCY_BOUNDS_US
from cometmq.broker.plain_send_cy import PlainSends
from cometmq.broker.topics import NO_SEND_TOPICS, PERM_WRITE, RETRY_PREFIX
from cometmq.protocol.bodies.topic import TopicConfig
from cometmq.protocol.command import FRAME_SIZE_MAX, decode_frame
from cometmq.store.model import PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection

RECORD_SIZE_MIN = 91
QUICK_NS = LATENCY_BOUNDS_US[0] * 1_000  # what lies in the first class of the histograms
MULTI_TAG = "MULTI_TAG"
STORED_CODES = {
    PutStatus.FLUSH_DISK_TIMEOUT: 10,
    PutStatus.SLAVE_NOT_AVAILABLE: 11,
    PutStatus.FLUSH_SLAVE_TIMEOUT: 12,
}


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
        """Store the plain sends at the front of ``view[start:end]``; answer how many bytes they took."""
        store, sends = self._store, self._sends
        began_ns, now_ms = time.monotonic_ns(), self._broker.now_ms()
        if not sends.topics or not self._is_open(now_ms):
            return 0
        if store.table.offsets_epoch != self._epoch:
            self.forget(())
            self._epoch = store.table.offsets_epoch
        space = store.reserve(RECORD_SIZE_MIN)
        if space is None:
            return 0
        consumed = sends.consume(
            view, start, end, connection.born_host, space.buffer, space.position, space.limit, space.physical_base,
            now_ms,
        )  # fmt: skip
        if sends.count:
            count, responses = sends.count, sends.responses
            end_offset = store.commit(sends.position)
            self._answer(connection, responses, end_offset)
            self._count(count, time.monotonic_ns() - began_ns)
        return consumed

    def _is_open(self, now_ms: int) -> bool:
        broker, config = self._broker, self._broker.config
        return (
            broker.acl is None
            and not config.enable_multi_dispatch  # items of a batch may name light queues
            and bool(config.broker_permission & PERM_WRITE)
            and now_ms >= config.start_accept_send_request_time_stamp
            and broker.flow_control.refusal() is None
        )

    def _answer(self, connection: Connection, responses: bytes, end_offset: int) -> None:
        durability = self._broker.durability
        if durability.at_once:
            if responses:
                connection.write([responses])
            return
        result = PutResult(PutStatus.PUT_OK, end_offset=end_offset)
        if not durability.must_wait(result, True):
            if responses:
                connection.write([responses])
            return

        def settled(status: PutStatus) -> None:
            if responses:
                connection.write([responses if status is PutStatus.PUT_OK else recoded(responses, status)])

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
