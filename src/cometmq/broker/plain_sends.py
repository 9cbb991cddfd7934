"""The door between the network and the compiled send path.

``fast_path_cy`` gathers plain sends, lets ``plain_send_cy`` turn them into records in the log, commits them, and writes
their answers. Here is what that asks for seldom: whether sends are taken, and which; answers that wait; statistics.
Everything that is not certain falls through to ``handlers/send.py``.

A topic takes part after a send to it went through the handlers once (``admit``), until it changes (``forget``).
Loop thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.broker.fast_path_cy import SendBatch
from cometmq.broker.plain_send_cy import PlainSends
from cometmq.broker.topics import NO_SEND_TOPICS
from cometmq.protocol.bodies.topic import MULTI_TAG, TopicConfig
from cometmq.protocol.command import FRAME_SIZE_MAX, decode_frame
from cometmq.protocol.names import PERM_WRITE, RETRY_PREFIX
from cometmq.store.model import PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection

log = logging.getLogger(__name__)

RECORD_SIZE_MIN = 91
STORED_CODES = {
    PutStatus.FLUSH_DISK_TIMEOUT: 10,
    PutStatus.SLAVE_NOT_AVAILABLE: 11,
    PutStatus.FLUSH_SLAVE_TIMEOUT: 12,
}

Answers = list[tuple["Connection", bytes]]


class PlainSendPath(SendBatch):
    def __init__(self, broker: Broker) -> None:
        config = broker.config
        sends = PlainSends(
            cluster=config.broker_cluster_name,
            region=config.region_id,
            trace_on=config.trace_on,
            store_host=broker.store_host,
            body_size_max=config.max_message_size,
            frame_size_max=FRAME_SIZE_MAX,
        )
        super().__init__(sends, broker.store.dispatch, broker.now_ms)
        self._broker = broker
        self._store = broker.store
        self._epoch = self._store.offsets_epoch

    # -- which topics ---------------------------------------------------------------------------------------------

    def admit(self, topic: TopicConfig) -> None:
        """A send to this topic was stored by the handlers: the next ones may be plain."""
        name = topic.topic_name.encode()
        if name in self.sends.topics or not self._is_plain(topic):
            return
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        offsets = self._store.queue_offsets(name, queues)
        if len(offsets) < queues:
            queues = len(offsets)
        self.sends.admit(name, queues, offsets)

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
        names = [topic.encode() for topic in topics] or list(self.sends.topics)
        for name in names:
            self.sends.forget(name)

    # -- the seldom parts of a batch ------------------------------------------------------------------------------

    def open(self) -> bool:
        """Are sends taken, and is there room? False while they must take the way through the handlers."""
        store = self._store
        if not self.sends.topics or not self._is_open(self._broker.now_ms()):
            return False
        if store.table.offsets_epoch != self._epoch:
            self.forget(())
            self._epoch = store.table.offsets_epoch
        space = store.reserve(RECORD_SIZE_MIN)
        if space is None:
            return False
        self.sends.open(space.buffer, space.position, space.limit, space.physical_base)
        store.commit_log.finish_batch = self.finish  # before anybody else writes there
        self.at_once = self._broker.durability.at_once
        return True

    def close(self) -> None:
        self._store.commit_log.finish_batch = None

    def fail(self, answers: Answers) -> None:
        log.exception("sends of %s peers are in doubt, their connections are closed", len(answers))
        for connection, _frames in answers:
            connection.fail()

    def _is_open(self, now_ms: int) -> bool:
        broker, config = self._broker, self._broker.config
        return (
            broker.acl is None
            and not config.enable_multi_dispatch  # items of a batch may name light queues
            and bool(config.broker_permission & PERM_WRITE)
            and now_ms >= config.start_accept_send_request_time_stamp
            and broker.flow_control.refusal() is None
        )

    def answer_later(self, answers: Answers, end_offset: int) -> None:
        durability = self._broker.durability
        result = PutResult(PutStatus.PUT_OK, end_offset=end_offset)

        def settled(status: PutStatus) -> None:
            for connection, frames in answers:
                connection.answer(frames if status is PutStatus.PUT_OK else recoded(frames, status))

        if durability.must_wait(result, True):
            durability.when_settled(result, settled)
        else:
            settled(PutStatus.PUT_OK)

    # -- statistics -----------------------------------------------------------------------------------------------

    def note_slow(self, elapsed_ns: int, count: int) -> None:
        self._broker.flow_control.took(elapsed_ns)
        self._broker.count_put_time(elapsed_ns // 1_000, count)

    def collect(self) -> None:
        """Hand what was counted since the last call to the statistics; they call this before they are read."""
        broker = self._broker
        for count, elapsed_us in self.quick_times():
            broker.count_put_time(elapsed_us, count)
        for name, topic in self.sends.topics.items():
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
