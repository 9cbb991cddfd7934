"""Reading ranges of queues with many pulls under way. Runs in Spark's workers.

Theory of operation. The ranges are known, and without a filter every offset in them is a message. So the reader cuts
them into cursors of as many offsets as one pull brings, keeps ``pullInFlight`` cursors on the wire and gives their
messages in order. How many messages a pull brings is up to the broker (a 4.9 broker: at most 32 from memory, 8 from
disk, and 256 KiB): the first pull finds out, and later ones adapt. An answer that is shorter than its cursor costs one
more pull for the rest. With a filter a cursor is a larger stretch of offsets that advances by nextBeginOffset.

Never waits at the broker (no long polling). A broken connection loses only what was under way; cursors on it are asked
again. Missing messages are data loss only if a reachable broker says so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from cometmq.errors import BrokerError, CometMQError, StoreError
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import PullMessageHeader, PullMessageResponseHeader
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.sys_flag import PULL_SUBSCRIPTION
from cometmq.spark.cluster import MASTER, Addresses, Cluster, is_transient, pause
from cometmq.spark.link import Link, link_to
from cometmq.spark.offsets import QueueRange
from cometmq.spark.options import ReadOptions

log = logging.getLogger(__name__)

FILTERED_STEP = 1024  # offsets of a cursor when the broker filters
GROW_AFTER = 32  # full answers in a row before a larger step is tried
ANSWER_SIZE = 1 << 20  # bytes that a pull asks for, about a batch; a 4.9 broker gives 256 KiB
EMPTY_ANSWERS = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class DataLoss(StoreError):
    """Messages that were asked for are not there any more."""


@dataclass(slots=True)
class Piece:
    """One answer with messages: those of [start, end) count."""

    queue: MessageQueue
    body: bytes
    start: int
    end: int


@dataclass(slots=True)
class Cursor:
    """A stretch of one queue that is read pull by pull."""

    queue: MessageQueue
    position: int
    end: int
    link: Link | None = None
    opaque: int = 0
    asked: int = 0
    on_slave: bool = False
    pieces: list[Piece] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.position >= self.end


class RangeReader:
    """Reads ranges in order. One use only."""

    def __init__(self, options: ReadOptions, addresses: Addresses, ranges: list[QueueRange]) -> None:
        self._options = options
        self._addresses = addresses
        self._feed = deque(ranges)
        self._window: deque[Cursor] = deque()
        self._timeout_s = options.pull_timeout_ms / 1000
        self._step = FILTERED_STEP if options.is_filtered else 0  # 0: not known yet
        self._full_answers = 0
        self._met_limit = False  # answers were shorter than asked for: the step is about right
        self._failures = 0
        self._use_slave: set[str] = set()  # brokers that suggest it
        self._no_slave: set[str] = set()  # brokers whose slave lags or fails
        self.lost_count = 0

    def pieces(self) -> Iterator[Piece]:
        """All messages of the ranges, in order."""
        while self._feed or self._window:
            self._fill()
            head = self._window[0]
            while not head.is_done and not head.pieces:
                self._advance(head)
            yield from head.pieces
            head.pieces.clear()
            if head.is_done:
                self._window.popleft()

    def _fill(self) -> None:
        while self._feed and len(self._window) < self._options.pull_in_flight:
            if not self._step and self._window:
                return  # the first pull is to tell how many messages come at once
            item = self._feed.popleft()
            end = min(item.start + (self._step or self._options.pull_batch_size), item.end)
            if end < item.end:
                self._feed.appendleft(QueueRange(item.queue, end, item.end))
            cursor = Cursor(item.queue, item.start, end)
            self._window.append(cursor)
            self._ask(cursor)

    # -- asking ----------------------------------------------------------------------------------------------

    def _ask(self, cursor: Cursor) -> None:
        address, cursor.on_slave = self._address(cursor.queue.broker_name)
        cursor.link = link_to(address, self._options)
        cursor.asked = min(cursor.end - cursor.position, self._options.pull_batch_size)
        options = self._options
        header = PullMessageHeader(
            consumer_group=options.group,
            topic=cursor.queue.topic,
            queue_id=cursor.queue.queue_id,
            queue_offset=cursor.position,
            max_msg_nums=cursor.asked,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=options.tags if options.sql92 is None else options.sql92,
            sub_version=0,
            expression_type=None if options.sql92 is None else "SQL92",
            max_msg_bytes=ANSWER_SIZE,
        )
        cursor.opaque = cursor.link.post(RemotingCommand.request(RequestCode.PULL_MESSAGE, header))

    def _address(self, broker: str) -> tuple[str, bool]:
        known = self._addresses.get(broker, {})
        slaves = [number for number in known if number != MASTER]
        if broker in self._no_slave and MASTER in known:
            return known[MASTER], False
        wants_slave = self._options.read_from == "slave" or broker in self._use_slave
        if slaves and (wants_slave or MASTER not in known):
            return known[min(slaves)], True
        if MASTER not in known:
            raise StoreError(f"No address of the broker {broker} is known; is it down?")
        return known[MASTER], False

    def _advance(self, head: Cursor) -> None:
        """Take one answer from the connection of the first cursor; it may belong to any cursor on it."""
        try:
            if head.link is None:
                self._ask(head)
            assert head.link is not None
            for link in {cursor.link for cursor in self._window if cursor.link is not None}:
                link.flush(self._timeout_s)
            answer = head.link.receive(self._timeout_s)
            for cursor in self._window:
                if cursor.link is head.link and cursor.opaque == answer.opaque:
                    self._take(cursor, answer)
                    break
        except CometMQError as error:
            self._recover(error)

    def _recover(self, error: CometMQError) -> None:
        """Ask again for everything that is not there, unless it failed too often."""
        if not is_transient(error) or self._failures >= self._options.retries:
            raise error
        log.warning("pull attempt %d failed: %s", self._failures + 1, error)
        pause(self._failures)
        self._failures += 1
        for cursor in self._window:
            if cursor.link is not None:
                cursor.link.close()
                cursor.link = None
            if cursor.on_slave:
                self._no_slave.add(cursor.queue.broker_name)
        self._refresh_addresses()
        for cursor in self._window:
            if not cursor.is_done:
                self._ask(cursor)

    def _refresh_addresses(self) -> None:
        """The broker may have come back at another address."""
        cluster = Cluster(self._options, timeout_ms=self._options.pull_timeout_ms, retries=0)
        for topic in {cursor.queue.topic for cursor in self._window}:
            try:
                self._addresses = {**self._addresses, **cluster.route(topic).addresses}
            except CometMQError as error:
                log.warning("route of %s not refreshed: %s", topic, error)

    # -- answers ---------------------------------------------------------------------------------------------

    def _take(self, cursor: Cursor, answer: RemotingCommand) -> None:
        if answer.code not in (ResponseCode.SUCCESS, *EMPTY_ANSWERS):
            self._refused(cursor, answer)
            return
        header = PullMessageResponseHeader.decode(answer.ext_fields)
        if self._options.read_from == "auto":
            self._follow(cursor.queue.broker_name, header.suggest_which_broker_id)
        if answer.code == ResponseCode.SUCCESS and header.next_begin_offset > cursor.position:
            self._take_messages(cursor, bytes(answer.body), header.next_begin_offset)
        elif self._nothing_matched(cursor, answer.code, header.next_begin_offset):
            cursor.position = header.next_begin_offset
        elif cursor.on_slave:  # what a slave does not have the master may
            self._leave_slave(cursor, StoreError(f"The slave lacks messages of {cursor.queue}."))
            return
        else:
            self._miss(cursor, header)
        self._failures = 0
        if not cursor.is_done:
            self._ask(cursor)

    def _refused(self, cursor: Cursor, answer: RemotingCommand) -> None:
        assert cursor.link is not None
        error = BrokerError(answer.code, answer.remark, cursor.link.address)
        if cursor.on_slave:
            self._leave_slave(cursor, error)  # it may not know the topic yet
        elif is_gone(answer):
            self._lose(cursor, cursor.end, loss_sentence_of_queue(cursor.queue, cursor.position, cursor.end))
        else:
            raise error

    def _nothing_matched(self, cursor: Cursor, code: int, next_offset: int) -> bool:
        is_empty = code == ResponseCode.PULL_RETRY_IMMEDIATELY and next_offset > cursor.position
        return is_empty and self._options.is_filtered

    def _take_messages(self, cursor: Cursor, body: bytes, next_offset: int) -> None:
        start, count = cursor.position, next_offset - cursor.position
        cursor.position = min(next_offset, cursor.end)
        cursor.pieces.append(Piece(cursor.queue, body, start, cursor.position))
        if not self._options.is_filtered:
            self._adapt(cursor, count)

    def _adapt(self, cursor: Cursor, count: int) -> None:
        if not self._step:
            self._step = max(count, 1)
            if not cursor.is_done:  # the rest of the first cursor goes back, to be cut anew
                self._feed.appendleft(QueueRange(cursor.queue, cursor.position, cursor.end))
                cursor.end = cursor.position
        elif count < cursor.asked:
            self._step = max((self._step + count) // 2, 1)
            self._full_answers, self._met_limit = 0, True
        else:
            self._full_answers += 1
            if self._full_answers >= GROW_AFTER:
                larger = self._step * 2 if not self._met_limit else self._step + self._step // 8 + 1
                self._step = min(larger, self._options.pull_batch_size)
                self._full_answers = 0

    def _follow(self, broker: str, broker_id: int) -> None:
        if broker_id == MASTER:
            self._use_slave.discard(broker)
        elif broker_id in self._addresses.get(broker, {}):
            self._use_slave.add(broker)

    def _leave_slave(self, cursor: Cursor, reason: CometMQError) -> None:
        """Go on at the master; without one the reason is an error."""
        broker = cursor.queue.broker_name
        if MASTER not in self._addresses.get(broker, {}):
            raise reason
        log.warning("slave of %s left: %s", broker, reason)
        self._no_slave.add(broker)
        self._ask(cursor)

    def _miss(self, cursor: Cursor, header: PullMessageResponseHeader) -> None:
        """The broker answered, and the messages are not there."""
        position = header.next_begin_offset if header.next_begin_offset > cursor.position else cursor.end
        position = min(position, cursor.end)
        lost = position - cursor.position
        sentence = loss_sentence(
            cursor.queue, cursor.position, position, header.min_offset, header.max_offset, lost
        )
        self._lose(cursor, position, sentence)

    def _lose(self, cursor: Cursor, position: int, sentence: str) -> None:
        """Go on behind what is lost, if that is allowed."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{sentence} Set failOnDataLoss=false to go on without them.")
        log.warning("%s", sentence)
        self.lost_count += position - cursor.position
        cursor.position = position


def is_gone(answer: RemotingCommand) -> bool:
    """The broker is there, and the topic or the queue is not."""
    if answer.code == ResponseCode.SYSTEM_ERROR:
        remark = answer.remark or ""
        return remark.startswith("queueId[") and "is illegal" in remark
    return answer.code == ResponseCode.TOPIC_NOT_EXIST


def loss_sentence_of_queue(queue: MessageQueue, start: int, end: int) -> str:
    return f"The queue {queue} is gone, and with it the messages [{start}, {end})."


def loss_sentence(queue: MessageQueue, start: int, end: int, low: int, high: int, lost: int) -> str:
    return (
        f"Messages of {queue} are gone: wanted are offsets [{start}, {end}), "
        f"available are [{low}, {high}), {lost} are lost."
    )
