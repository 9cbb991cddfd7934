"""Transactional messages: half messages, their end by commit or rollback, and the check-back of those without an end.

Theory of operation. A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, where no consumer sees it. Its end
is noted by an *op* record in RMQ_SYS_TRANS_OP_HALF_TOPIC whose body is the half message's queue offset; a commit
stores the message at its real target together with the op record, both or none. Progress is two ordinary consumer
offsets of the group CID_RMQ_SYS_TRANS: all half messages below the first, and all op records below the second, are
settled.

A check or a renewal stores a half message again, at the end of the queue; TRAN_PREPARED_QUEUE_OFFSET says where it
stood first, and that first offset is the transaction's identity. In memory stand ``_ended`` (half offset -> op offset)
and ``_newest`` (first offset -> offset of the newest copy), both for what lies at or above the progress; they are
rebuilt at start from the two queues. They make the end of a transaction happen once: a repeated commit, a rollback
after a commit, or a commit of an old copy finds its transaction here.

A check round walks the half queue from the progress on. A message without an end that is old enough is stored again
with its counter raised, and a producer of its group is asked. After ``transactionCheckMax`` questions it is given up:
a copy goes to TRANS_CHECK_MAX_TIME_TOPIC, and only the producer itself can still commit it. Loop thread only.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.broker.copies import copy_of, real_target, send_elsewhere
from cometmq.protocol import properties as names
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import CheckTransactionStateHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from cometmq.protocol.record_cy import decode_record, decode_records, encode_message
from cometmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from cometmq.store.model import GetStatus, PutResult, StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
HALF_QUEUE_ID = 0
OP_TAG = "d"
OP_PROPERTIES = f"TAGS\x01{OP_TAG}\x02WAIT\x01true".encode()
READ_COUNT = 64
MESSAGES_PER_TURN = 100
ROUND_MS_MAX = 60_000
GIVEN_UP_COUNT_MAX = 10_000  # of which a late commit is still taken
HOUR_MS = 3_600_000
UNKNOWN = -1
FAR_FUTURE_MS = 2**62
NUMBER_LENGTH_MAX = 18  # digits

# What only the broker writes into a half message.
OWN_PROPERTIES = (names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, names.PROPERTY_TRANSACTION_CHECK_TIMES)


class Verdict(enum.Enum):
    """What a check round does with one half message."""

    SETTLED = enum.auto()
    GIVE_UP = enum.auto()
    RENEW = enum.auto()
    CHECK = enum.auto()
    STOP = enum.auto()  # this one and all behind it are too young


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ended: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        self._given_up: dict[str, None] = {}  # by identity(), oldest first
        self._round: asyncio.Task[None] | None = None
        self.checks_sent = 0
        self.given_up = 0

    def start(self) -> None:
        self._broker.topics.find_or_create(TRANS_HALF_TOPIC, queue_nums=1)
        self._load()

    def stop(self) -> None:
        if self._round is not None:
            self._round.cancel()

    @property
    def pending(self) -> int:
        """Half messages without an end, roughly: copies and what is settled already may be among them."""
        stored = self._broker.store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID) - self.half_offset
        return max(stored - len(self._ended), 0)

    # -- progress -------------------------------------------------------------------------------------------------

    @property
    def half_offset(self) -> int:
        return self._progress(TRANS_HALF_TOPIC)

    @property
    def op_offset(self) -> int:
        return self._progress(TRANS_OP_HALF_TOPIC)

    def _progress(self, topic: str) -> int:
        committed = self._broker.offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE_ID)
        return max(committed, self._broker.store.min_offset(topic, HALF_QUEUE_ID))

    def _load(self) -> None:
        self._ended, self._newest, self._given_up = {}, {}, {}
        # A log that was cut, or queues that were removed: what comes now must not look settled.
        half_end = self._broker.store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        op_end = self._broker.store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID)
        half_offset, op_offset = min(self.half_offset, half_end), min(self.op_offset, op_end)
        self._commit_progress(half_offset, op_offset)
        for op in self._walk(TRANS_OP_HALF_TOPIC, op_offset):
            if op.stored_body.isdigit() and int(op.stored_body) >= half_offset:
                self._ended[int(op.stored_body)] = op.queue_offset
        stored_last: dict[str, int] = {}
        for half in self._walk(TRANS_HALF_TOPIC, half_offset):
            stored_last[identity(half)] = half.physical_offset
            if first_offset(half) != half.queue_offset:
                self._newest[first_offset(half)] = half.queue_offset
        given_up_end = self._broker.store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, HALF_QUEUE_ID)
        for given_up in self._walk(TRANS_CHECK_MAX_TIME_TOPIC, max(given_up_end - GIVEN_UP_COUNT_MAX, 0)):
            if given_up.physical_offset > stored_last.get(identity(given_up), -1):  # it was not resumed since
                self._given_up[identity(given_up)] = None

    def _walk(self, topic: str, queue_offset: int) -> Iterator[MessageExt]:
        """The messages of a system queue from an offset on, up to the present end."""
        end = self._broker.store.max_offset(topic, HALF_QUEUE_ID)
        while queue_offset < end:
            count = min(READ_COUNT, end - queue_offset)
            result = self._broker.store.get(topic, HALF_QUEUE_ID, queue_offset, count, warmed=True)
            if result.status is GetStatus.FOUND:
                for part in result.slices:
                    yield from decode_records(part)
            elif result.status is GetStatus.OFFSET_FOUND_NULL:
                queue_offset += 1  # its record is damaged
            elif result.next_offset <= queue_offset:
                return
            queue_offset = max(result.next_offset, queue_offset)

    def _settle(self, half_offset: int) -> None:
        """Everything below half_offset is done: move the two progress marks and forget what lies below."""
        self._ended = {half: op for half, op in self._ended.items() if half >= half_offset}
        self._newest = {first: newest for first, newest in self._newest.items() if newest >= half_offset}
        op_end = self._broker.store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID)
        self._commit_progress(half_offset, min(self._ended.values(), default=op_end))

    def _commit_progress(self, half_offset: int, op_offset: int) -> None:
        """Only what has changed: a broker without transactions has no offsets of them."""
        for topic, offset in ((TRANS_HALF_TOPIC, half_offset), (TRANS_OP_HALF_TOPIC, op_offset)):
            if offset != self._progress(topic):
                self._broker.offsets.commit(TRANSACTION_GROUP, topic, HALF_QUEUE_ID, offset)

    # -- the life of one transaction ------------------------------------------------------------------------------

    def prepare(self, message: StoreMessage, properties: dict[str, str]) -> None:
        """Redirect a message that is about to be stored into the half queue."""
        for name in OWN_PROPERTIES:  # of a message that was consumed and is sent again
            properties.pop(name, None)
        send_elsewhere(message, properties, TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        message.sys_flag &= ~TRANSACTION_MASK

    def is_half(self, message: MessageExt) -> bool:
        """The message stands in the half queue where it says."""
        entries = self._broker.store.queue_entries(TRANS_HALF_TOPIC, HALF_QUEUE_ID, message.queue_offset, 1)
        return message.topic == TRANS_HALF_TOPIC and any(
            entry.physical_offset == message.physical_offset for entry in entries
        )

    def is_ended(self, half: MessageExt) -> bool:
        if identity(half) in self._given_up:
            return self._was_delivered(half)  # if not: late, but the producer has spoken at last
        newest = self._newest_of(half)
        return newest in self._ended or newest < self.half_offset

    def commit(self, half: MessageExt) -> PutResult | None:
        """Store the message at its real target, once; None when the transaction had its end already."""
        target = real_target(half)
        if target is None or self.is_ended(half):
            return None
        message = copy_of(half, topic=target[0], queue_id=target[1])
        message.sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        message.prepared_transaction_offset = half.physical_offset
        properties = dict(half.properties)
        if not self._broker.delay.divert(message, properties):
            self._broker.timers.divert(message, properties)
        result, op_result = self._broker.store.put_all([message, self._op(half)])
        if result.ok:
            self._broker.stats.count_put(target[0], target[1], 1, result.size)
            self._note_end(half, op_result)
        return result

    def rollback(self, half: MessageExt) -> PutResult | None:
        """Note that the message is never delivered; None when the transaction had its end already."""
        if self.is_ended(half):
            return None
        result = self._broker.store.put(self._op(half))
        if result.ok:
            self._note_end(half, result)
        return result

    def resume(self, message: MessageExt) -> bool:
        """Check an open half message, or one that was given up, from the start again; False when it is neither."""
        if message.topic == TRANS_HALF_TOPIC:
            resumable = not self.is_ended(message)
        else:
            resumable = message.topic == TRANS_CHECK_MAX_TIME_TOPIC and identity(message) in self._given_up
        if not resumable or self._again(message, {names.PROPERTY_TRANSACTION_CHECK_TIMES: "0"}) is None:
            return False
        self._given_up.pop(identity(message), None)
        return True

    def rescue(self, physical_offset: int) -> bool:
        """The log is about to lose what lies below an offset: store half messages without an end anew."""
        for half in self._walk(TRANS_HALF_TOPIC, self.half_offset):
            if half.physical_offset >= physical_offset:
                break
            if not self._is_settled(half) and self._again(half, {}) is None:
                return False
        return True

    def _was_delivered(self, half: MessageExt) -> bool:
        """Look for the committed message in the index: those given up are known by name only after a restart."""
        target = real_target(half)
        if target is None or half.unique_id is None:
            return False
        found = self._broker.store.query(target[0], half.unique_id, READ_COUNT, 0, FAR_FUTURE_MS)
        return any(decode_record(bytes(record)).sys_flag & TRANSACTION_COMMIT for record in found.records)

    def _newest_of(self, half: MessageExt) -> int:
        return self._newest.get(first_offset(half), half.queue_offset)

    def _is_settled(self, half: MessageExt) -> bool:
        newest = self._newest_of(half)
        return newest != half.queue_offset or newest in self._ended or identity(half) in self._given_up

    def _op(self, half: MessageExt) -> StoreMessage:
        return StoreMessage(
            topic=TRANS_OP_HALF_TOPIC,
            queue_id=HALF_QUEUE_ID,
            body=str(self._newest_of(half)).encode(),
            properties=OP_PROPERTIES,
            born_timestamp_ms=self._broker.now_ms(),
            born_host=self._broker.store_host,
            store_host=self._broker.store_host,
            wait_store_ok=False,
        )

    def _note_end(self, half: MessageExt, op_result: PutResult) -> None:
        self._ended[self._newest_of(half)] = op_result.queue_offset
        self._given_up.pop(identity(half), None)

    # -- check rounds ---------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Start a check round unless one is running; called every transactionCheckInterval."""
        if self._round is None or self._round.done():
            self._round = asyncio.get_running_loop().create_task(self.check())

    async def check(self) -> None:
        """One round: settle, give up, renew or ask, from the progress on."""
        started = self._broker.now_ms()
        half_offset = self.half_offset
        for done, half in enumerate(self._walk(TRANS_HALF_TOPIC, half_offset), 1):
            verdict = self._verdict(half, started)
            if verdict is Verdict.STOP or not self._apply(verdict, half):
                break
            half_offset = half.queue_offset + 1
            if done % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)
                if self._broker.now_ms() - started > ROUND_MS_MAX:
                    break
        self._settle(half_offset)

    def _verdict(self, half: MessageExt, started_ms: int) -> Verdict:
        config = self._broker.config
        if self._is_settled(half):
            return Verdict.SETTLED
        if half.store_timestamp_ms >= started_ms:
            return Verdict.STOP
        age_ms = self._broker.now_ms() - half.born_timestamp_ms
        checks = _number(half, names.PROPERTY_TRANSACTION_CHECK_TIMES) or 0
        if checks >= config.transaction_check_max or age_ms > config.file_reserved_time * HOUR_MS:
            return Verdict.GIVE_UP
        immunity_s = _number(half, names.PROPERTY_CHECK_IMMUNITY_TIME)
        if immunity_s is not None and age_ms < immunity_s * 1000:
            return Verdict.RENEW
        if immunity_s is None and 0 <= age_ms < config.transaction_time_out:
            return Verdict.STOP
        return Verdict.CHECK

    def _apply(self, verdict: Verdict, half: MessageExt) -> bool:
        """False when the store refused: the round ends, the message is looked at again in the next."""
        if verdict is Verdict.SETTLED:
            return True
        if verdict is Verdict.GIVE_UP:
            return self._give_up(half)
        if verdict is Verdict.RENEW:
            return self._again(half, {}) is not None
        checks = _number(half, names.PROPERTY_TRANSACTION_CHECK_TIMES) or 0
        stored = self._again(half, {names.PROPERTY_TRANSACTION_CHECK_TIMES: str(checks + 1)})
        if stored is not None:
            self._ask(stored)
        return stored is not None

    def _again(self, half: MessageExt, changes: dict[str, str]) -> PutResult | None:
        """Store a half message at the end of its queue; None when that is not possible."""
        first = first_offset(half)
        properties = {**half.properties, **changes}
        if first != UNKNOWN:
            properties[names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET] = str(first)
        again = copy_of(half, topic=TRANS_HALF_TOPIC, queue_id=HALF_QUEUE_ID, properties=properties)
        result = self._broker.store.put(again)
        if not result.ok:
            return None
        if first != UNKNOWN:
            self._newest[first] = result.queue_offset
        return result

    def _give_up(self, half: MessageExt) -> bool:
        self._broker.topics.find_or_create(TRANS_CHECK_MAX_TIME_TOPIC, queue_nums=1)
        first = {names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: str(first_offset(half))}
        copy = copy_of(
            half, topic=TRANS_CHECK_MAX_TIME_TOPIC, queue_id=0, properties={**half.properties, **first}
        )
        if not self._broker.store.put(copy).ok:
            return False
        self.given_up += 1
        self._given_up[identity(half)] = None
        if len(self._given_up) > GIVEN_UP_COUNT_MAX:
            del self._given_up[next(iter(self._given_up))]
        log.warning("transaction given up msg_id=%s group=%s", half.msg_id, _group(half))
        return True

    def _ask(self, stored: PutResult) -> None:
        """CHECK_TRANSACTION_STATE to one producer of the group; nobody there: the next round asks again."""
        record = self._broker.store.read_record(stored.physical_offset)
        assert record is not None  # it was stored just now
        half = decode_record(record)
        producer = self._broker.producers.next_available(_group(half))
        target = real_target(half)
        if producer is None or target is None:
            return
        header = CheckTransactionStateHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=half.unique_id,
            transaction_id=half.unique_id,
            offset_msg_id=half.offset_msg_id,
        )
        half.topic, half.queue_id = target
        request = RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, encode_message(half), oneway=True
        )
        request.opaque = producer.connection.next_opaque()
        producer.connection.send(request)
        self.checks_sent += 1


def first_offset(half: MessageExt) -> int:
    """Queue offset at which a half message was stored first; UNKNOWN for one that a Java broker gave up."""
    first = _number(half, names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
    if first is not None:
        return first
    return half.queue_offset if half.topic == TRANS_HALF_TOPIC else UNKNOWN


def identity(half: MessageExt) -> str:
    """What all copies of a transaction share, also those that a Java broker made and those outside the half queue."""
    return half.unique_id or str(first_offset(half))


def _group(half: MessageExt) -> str:
    return half.properties.get(names.PROPERTY_PRODUCER_GROUP, "")


def _number(message: MessageExt, name: str) -> int | None:
    text = message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= NUMBER_LENGTH_MAX else None
