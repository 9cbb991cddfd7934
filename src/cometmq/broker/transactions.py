"""Transactional messages: half messages, their end by commit or rollback, and the check-back of those without an end.

Theory of operation. A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, where no consumer sees it. Its end
is noted by an *op* record in RMQ_SYS_TRANS_OP_HALF_TOPIC whose body is the half message's queue offset; a commit first
stores the message at its real target. Progress is two ordinary consumer offsets of the group CID_RMQ_SYS_TRANS: all
half messages below the first, and all op records below the second, are settled.

In memory stand ``_ended`` (half offset -> op offset, for half offsets at or above the progress) and ``_moved`` (a half
message that was stored again, old offset -> new one: a check or a renewal moves it to the end of the queue). Both
are rebuilt at start from the two queues. They make the end of a transaction happen once: a repeated commit, a rollback
after a commit, or a late commit of a message that was meanwhile moved finds its transaction here.

A check round walks the half queue from the progress on. A message without an end that is old enough is stored again
with its counter raised, and a producer of its group is asked. Loop thread only.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.broker.copies import copy_of, real_target, send_elsewhere
from cometmq.broker.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from cometmq.protocol import properties as names
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import CheckTransactionStateHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records, encode_message
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
        self._moved: dict[int, int] = {}
        self._given_up: dict[int, None] = {}
        self._round: asyncio.Task[None] | None = None
        self.checks_sent = 0
        self.given_up = 0

    def start(self) -> None:
        self._broker.topics.find_or_create(TRANS_HALF_TOPIC, queue_nums=1)
        self._load()

    def stop(self) -> None:
        if self._round is not None:
            self._round.cancel()

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
        half_offset = self.half_offset
        for op in self._walk(TRANS_OP_HALF_TOPIC, self.op_offset):
            if op.stored_body.isdigit() and int(op.stored_body) >= half_offset:
                self._ended[int(op.stored_body)] = op.queue_offset
        for half in self._walk(TRANS_HALF_TOPIC, half_offset):
            first = _number(half, names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
            if first is not None:
                self._moved[self._newest(first)] = half.queue_offset

    def _walk(self, topic: str, queue_offset: int) -> Iterator[MessageExt]:
        """All messages of a system queue from an offset on."""
        while True:
            result = self._broker.store.get(topic, HALF_QUEUE_ID, queue_offset, READ_COUNT)
            if result.status is GetStatus.FOUND:
                for part in result.slices:
                    yield from decode_records(part)
            elif result.next_offset <= queue_offset:
                return
            queue_offset = result.next_offset

    # -- the life of one transaction ------------------------------------------------------------------------------

    def prepare(self, message: StoreMessage, properties: dict[str, str]) -> None:
        """Redirect a message that is about to be stored into the half queue."""
        send_elsewhere(message, properties, TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        message.sys_flag &= ~TRANSACTION_MASK

    def is_ended(self, half_offset: int) -> bool:
        newest = self._newest(half_offset)
        if newest in self._given_up:
            return False  # late, but the producer has spoken at last
        return newest in self._ended or newest < self.half_offset

    def commit(self, half: MessageExt) -> PutResult | None:
        """Store the message at its real target, once; None when the transaction had its end already."""
        target = real_target(half)
        if target is None or self.is_ended(half.queue_offset):
            return None
        message = copy_of(half, topic=target[0], queue_id=target[1])
        message.sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        message.prepared_transaction_offset = half.physical_offset
        if names.PROPERTY_DELAY in half.properties:
            self._broker.delay.divert(message, dict(half.properties))
        result = self._broker.store.put(message)
        if result.ok:
            self._broker.stats.count_put(target[0], target[1], 1, result.size)
            self._end(half.queue_offset)
        return result

    def rollback(self, half: MessageExt) -> None:
        if not self.is_ended(half.queue_offset):
            self._end(half.queue_offset)

    def _newest(self, half_offset: int) -> int:
        while half_offset in self._moved:
            half_offset = self._moved[half_offset]
        return half_offset

    def _end(self, half_offset: int) -> None:
        newest = self._newest(half_offset)
        self._given_up.pop(newest, None)
        op = StoreMessage(
            topic=TRANS_OP_HALF_TOPIC,
            queue_id=HALF_QUEUE_ID,
            body=str(newest).encode(),
            properties=OP_PROPERTIES,
            born_timestamp_ms=self._broker.now_ms(),
            born_host=self._broker.store_host,
            store_host=self._broker.store_host,
            wait_store_ok=False,
        )
        result = self._broker.store.put(op)
        # Without an op record (full disk) the transaction still has its end, as long as this process lives.
        self._ended[newest] = result.queue_offset if result.ok else self.op_offset
        if not result.ok:
            log.error("op record not stored half_offset=%d status=%s", newest, result.status.name)

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
                self._settle(half_offset)
                await asyncio.sleep(0)
                if self._broker.now_ms() - started > ROUND_MS_MAX:
                    break
        self._settle(half_offset)

    def _verdict(self, half: MessageExt, started_ms: int) -> Verdict:
        config = self._broker.config
        if half.queue_offset in self._ended or half.queue_offset in self._moved:
            return Verdict.SETTLED
        if half.store_timestamp_ms >= started_ms:
            return Verdict.STOP
        now = self._broker.now_ms()
        age_ms = now - half.born_timestamp_ms
        checks = _number(half, names.PROPERTY_TRANSACTION_CHECK_TIMES) or 0
        if checks >= config.transaction_check_max or age_ms > config.file_reserved_time * 3_600_000:
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
        checks = _number(half, names.PROPERTY_TRANSACTION_CHECK_TIMES) or 0
        properties = dict(half.properties)
        properties.setdefault(names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        if verdict is Verdict.CHECK:
            properties[names.PROPERTY_TRANSACTION_CHECK_TIMES] = str(checks + 1)
        again = copy_of(half, topic=TRANS_HALF_TOPIC, queue_id=HALF_QUEUE_ID, properties=properties)
        result = self._broker.store.put(again)
        if not result.ok:
            return False
        self._moved[half.queue_offset] = (
            result.queue_offset
        )  # the offset a producer knows leads to the newest copy
        if verdict is Verdict.CHECK:
            self._ask(half, result, again)
        return True

    def _give_up(self, half: MessageExt) -> bool:
        self._broker.topics.find_or_create(TRANS_CHECK_MAX_TIME_TOPIC, queue_nums=1)
        result = self._broker.store.put(copy_of(half, topic=TRANS_CHECK_MAX_TIME_TOPIC, queue_id=0))
        if result.ok:
            self.given_up += 1
            self._given_up[half.queue_offset] = None
            if len(self._given_up) > GIVEN_UP_COUNT_MAX:
                del self._given_up[next(iter(self._given_up))]
            log.warning("transaction given up msg_id=%s group=%s", half.msg_id, _group(half))
        return result.ok

    def _ask(self, half: MessageExt, stored: PutResult, again: StoreMessage) -> None:
        """CHECK_TRANSACTION_STATE to one producer of the group; nobody there: the next round asks again."""
        producer = self._broker.producers.next_available(_group(half))
        if producer is None:
            return
        record = self._broker.store.read_record(stored.physical_offset)
        target = real_target(half)
        if record is None or target is None:
            return
        (copy,) = decode_records(record)
        header = CheckTransactionStateHeader(
            tran_state_table_offset=stored.queue_offset,
            commit_log_offset=stored.physical_offset,
            msg_id=half.unique_id,
            transaction_id=half.unique_id,
            offset_msg_id=copy.offset_msg_id,
        )
        copy.topic, copy.queue_id = target
        request = RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, encode_message(copy), oneway=True
        )
        request.opaque = producer.connection.next_opaque()
        producer.connection.send(request)
        self.checks_sent += 1

    def _settle(self, half_offset: int) -> None:
        """Everything below half_offset is done: move the two progress marks and forget what lies below."""
        self._ended = {half: op for half, op in self._ended.items() if half >= half_offset}
        # A chain of moves stays until its newest copy is settled.
        self._moved = {old: new for old, new in self._moved.items() if self._newest(new) >= half_offset}
        op_end = self._broker.store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID)
        op_offset = min(self._ended.values(), default=op_end)
        self._broker.offsets.commit(TRANSACTION_GROUP, TRANS_HALF_TOPIC, HALF_QUEUE_ID, half_offset)
        self._broker.offsets.commit(TRANSACTION_GROUP, TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID, op_offset)


def _group(half: MessageExt) -> str:
    return half.properties.get(names.PROPERTY_PRODUCER_GROUP, "")


def _number(message: MessageExt, name: str) -> int | None:
    text = message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
