"""PULL_MESSAGE (11): checks, reading, holding, and the answer without copying a message.

The checks are in ``pull_checks``. A pull that finds nothing and may wait goes to ``HeldPulls``; it
is served again, checks included, when a message arrives or its time is over, and then must be answered. The
offset that a pull commits on the way is stored once, with its first serving.

An answer is one ``writelines``: the head, then slices of the mapped log. When the store says that a range is
not in memory, a thread reads it in first and the store is asked again, so that the loop never waits for the disk.
Event loop only.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from cometmq.broker.cold_reads import ColdReads
from cometmq.broker.flow_control import OVERLOAD
from cometmq.broker.held_pulls import HeldPull
from cometmq.broker.plain_pulls import PlainPulls
from cometmq.broker.pull_answer_cy import PullPlan
from cometmq.broker.pull_checks import Accepted, Refused, check
from cometmq.protocol import json_java
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from cometmq.protocol.command import FLAG_RESPONSE, RemotingCommand
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.names import OFFSET_MOVED_EVENT
from cometmq.protocol.properties import PROPERTY_KEYS, PROPERTY_TAGS, encode_properties
from cometmq.protocol.pull_frames import decode_pull, encode_pull_head
from cometmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from cometmq.store.model import GetResult, GetStatus, MessageFilter, StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
COLD_ROUNDS_MAX = 3  # that a pull waits for the disk: for entries, records, and what left memory since
EMPTY_QUEUE = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


class Pull:
    """One request, kept while it is held."""

    __slots__ = (
        "began_ms",
        "began_ns",
        "commit_offset",
        "connection",
        "oneway",
        "opaque",
        "plan",
        "queue_offset",
        "serialize_type",
        "terms",
    )

    def __init__(
        self,
        connection: Connection,
        terms: PullMessageHeader,
        queue_offset: int,
        commit_offset: int,
        opaque: int,
        began_ms: int,
        plan: PullPlan | None = None,
        serialize_type: SerializeType = SerializeType.JSON,
        oneway: bool = False,
    ) -> None:
        self.connection = connection
        self.terms = terms  # all but its offsets: with a plan this is the header of an earlier pull
        self.queue_offset = queue_offset
        self.commit_offset = commit_offset
        self.opaque = opaque
        self.plan = plan  # how it is served the short way
        self.serialize_type = serialize_type
        self.oneway = oneway
        self.began_ms = began_ms
        self.began_ns = time.monotonic_ns()

    def response(self, code: ResponseCode, remark: str) -> RemotingCommand:
        return RemotingCommand(
            code=int(code),
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            serialize_type=self.serialize_type,
        )


def handlers(broker: Broker) -> dict[int, Handler]:
    return {RequestCode.PULL_MESSAGE: broker.pulls.pull_message}


class Pulls:
    """Serves pulls of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._plain = PlainPulls(broker)
        self._cold_reads = ColdReads()

    def stop(self) -> None:
        """Before the store is closed: its pages may be on their way."""
        self._cold_reads.stop()

    def pull_message(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        header = PullMessageHeader.decode(command.ext_fields)
        return self.serve(
            Pull(
                connection,
                header,
                header.queue_offset,
                header.commit_offset,
                command.opaque,
                self._broker.now_ms(),
                None,
                command.serialize_type,
                command.is_oneway,
            )
        )

    def serve_frame(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        """A pull in the usual form at the front of a receive buffer: its size, or 0 if the handlers must see it."""
        broker = self._broker
        if broker.acl is not None or broker.group is not None:
            return 0
        plan = self._plain.plan(view, start, end)
        if plan is None:
            return self._serve_decoded(connection, view, start, end)
        numbers = self._plain.numbers
        size: int = numbers.size
        pull = Pull(
            connection,
            plan.terms,
            numbers.queue_offset,
            numbers.commit_offset,
            numbers.opaque,
            broker.now_ms(),
            plan,
        )
        if not self._serve_plain(pull, plan):
            self._serve_and_send(pull)
        return size

    def _serve_decoded(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        request = decode_pull(view, start, end)
        if request is None:
            return 0
        size, opaque, header = request
        now_ms = self._broker.now_ms()
        self._serve_and_send(
            Pull(connection, header, header.queue_offset, header.commit_offset, opaque, now_ms)
        )
        return size

    def _serve_and_send(self, pull: Pull) -> None:
        answer = self.serve(pull)
        if answer is not None:
            pull.connection.send(answer)

    def serve(self, pull: Pull) -> RemotingCommand | None:
        """None when the answer was written, or follows later."""
        broker, terms = self._broker, pull.terms
        try:
            accepted = check(broker, terms, pull.connection.peer)
        except Refused as refused:
            return refuse(pull, refused)
        result = self._get(terms, pull.queue_offset, accepted.filter)
        if result is None:
            return pull.response(ResponseCode.SYSTEM_ERROR, "store getMessage return null")
        self._commit(pull)
        if result.cold:
            self._warm(pull, accepted, result, pull.queue_offset)
        elif result.count:
            self._answer(pull, accepted, result, ResponseCode.SUCCESS)
        else:
            code = response_code(result, pull.queue_offset)
            if code is ResponseCode.PULL_NOT_FOUND and terms.sys_flag & PULL_SUSPEND:
                return self._hold(pull)
            self._answer(pull, accepted, result, code)
        broker.counters.pull_times.add((time.monotonic_ns() - pull.began_ns) // 1_000)
        return None

    def _serve_plain(self, pull: Pull, plan: PullPlan) -> bool:
        """The short way of `serve`; False when it must be the long one."""
        if self._plain.waits(plan, pull.queue_offset):  # nothing is there yet
            if not pull.terms.sys_flag & PULL_SUSPEND:
                return False
            self._commit(pull)
            refusal = self._hold(pull)
            if refusal is not None:
                self._send(pull, refusal)
            return True
        if not self._answer_plain(pull, plan, pull.queue_offset):
            return False
        self._commit(pull)
        self._broker.counters.pull_times.add((time.monotonic_ns() - pull.began_ns) // 1_000)
        return True

    def _answer_plain(self, pull: Pull, plan: PullPlan, queue_offset: int) -> bool:
        frame = self._plain.answer(plan, queue_offset, pull.opaque)
        if frame is None:
            return False
        answers = self._plain.answers
        self._count_found(pull, plan, answers.count, answers.size)
        pull.connection.answer(frame)
        return True

    def _commit(self, pull: Pull) -> None:
        broker, terms = self._broker, pull.terms
        if terms.sys_flag & PULL_COMMIT_OFFSET and not broker.config.is_slave:
            broker.offsets.commit(terms.consumer_group, terms.topic, terms.queue_id, pull.commit_offset)

    def _get(
        self,
        terms: PullMessageHeader,
        queue_offset: int,
        message_filter: MessageFilter | None,
        warmed: bool = False,
    ) -> GetResult | None:
        store = self._broker.store
        if not store.readable:
            return None
        count, size = terms.max_msg_nums, terms.max_msg_bytes
        return store.get(
            terms.topic,
            terms.queue_id,
            queue_offset,
            count if count > 0 else 1,
            max_bytes=None if size is None else self._broker.config.pull_bytes(size),
            filter=message_filter,
            warmed=warmed,
        )

    # -- holding ---------------------------------------------------------------------------------------------

    def _hold(self, pull: Pull) -> RemotingCommand | None:
        config = self._broker.config
        held_pulls = self._broker.held_pulls
        if held_pulls.count >= config.pull_thread_pool_queue_capacity:
            return pull.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        terms = pull.terms
        timeout_ms = (
            max(terms.suspend_timeout_millis, 0)
            if config.long_polling_enable
            else config.short_polling_time_mills
        )
        held = HeldPull(
            pull.connection, terms.topic, terms.queue_id, pull.queue_offset, pull, self._wake, self._expire
        )
        held_pulls.hold(held, timeout_ms)
        return None

    def _wake(self, held: HeldPull) -> bool:
        """A message came to the queue: answer, unless nothing in it matches."""
        return self._serve_again(held, must_answer=False)

    def _expire(self, held: HeldPull) -> None:
        self._serve_again(held, must_answer=True)

    def _serve_again(self, held: HeldPull, *, must_answer: bool) -> bool:
        pull: Pull = held.request
        if pull.plan is not None:
            plan = pull.plan if self._plain.is_good(pull.plan) else self._plain.new_plan(pull.terms)
            if plan is not None and self._answer_plain(pull, plan, held.scan_offset):
                return True
        try:
            accepted = check(self._broker, pull.terms, pull.connection.peer)
        except Refused as refused:
            self._send(pull, refuse(pull, refused))
            return True
        result = self._get(pull.terms, held.scan_offset, accepted.filter)
        if result is None:
            self._send(pull, pull.response(ResponseCode.SYSTEM_ERROR, "store getMessage return null"))
            return True
        if result.cold:
            self._warm(pull, accepted, result, held.scan_offset)
            return True
        if result.count:
            self._answer(pull, accepted, result, ResponseCode.SUCCESS)
            return True
        if not must_answer and has_nothing_new(result):
            held.scan_offset = result.next_offset
            return False
        code = response_code(result, pull.queue_offset)
        if code is ResponseCode.PULL_NOT_FOUND and held.scan_offset > pull.queue_offset:
            # Entries went by that did not match: the client must not look at them again.
            result.status, code = GetStatus.NO_MATCHED_MESSAGE, ResponseCode.PULL_RETRY_IMMEDIATELY
        self._answer(pull, accepted, result, code)
        return True

    # -- answering -------------------------------------------------------------------------------------------

    def _answer(self, pull: Pull, accepted: Accepted, result: GetResult, code: ResponseCode) -> None:
        broker, next_offset = self._broker, result.next_offset
        if not result.count and self._keeps_offset(result.status):
            next_offset = pull.queue_offset
            if code is ResponseCode.PULL_OFFSET_MOVED:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._record_moved(pull, next_offset)
        self._count(pull, result)
        if pull.oneway:
            return
        head = encode_head(pull, code, suggest_broker_id(broker, accepted.group, result), next_offset, result)
        pull.connection.write([head, *result.slices])

    def _keeps_offset(self, status: GetStatus) -> bool:
        """A replica that lags must never send consumers back."""
        config = self._broker.config
        return config.is_slave and not config.offset_check_in_slave and _is_corrected(status)

    def _send(self, pull: Pull, response: RemotingCommand) -> None:
        if not pull.oneway:
            pull.connection.send(response)

    def _warm(self, pull: Pull, accepted: Accepted, result: GetResult, queue_offset: int) -> None:
        """A thread reads what is not in memory; then the pull is answered from memory."""
        self._broker.counters.cold_reads += 1
        self._read_in(pull, accepted, result, queue_offset, COLD_ROUNDS_MAX)

    def _read_in(
        self, pull: Pull, accepted: Accepted, result: GetResult, queue_offset: int, rounds: int
    ) -> None:
        def done() -> None:
            found = self._get(pull.terms, queue_offset, accepted.filter, warmed=rounds <= 1)
            if found is None:
                self._send(pull, pull.response(ResponseCode.SYSTEM_ERROR, "store getMessage return null"))
            elif found.cold and rounds > 1:
                self._read_in(pull, accepted, found, queue_offset, rounds - 1)
            else:
                code = ResponseCode.SUCCESS if found.count else response_code(found, pull.queue_offset)
                self._answer(pull, accepted, found, code)

        self._cold_reads.read(result.cold_parts, done)

    def _count(self, pull: Pull, result: GetResult) -> None:
        if result.count:
            self._count_found(pull, None, result.count, result.size)
        else:
            self._broker.counters.gets_missed += 1

    def _count_found(self, pull: Pull, plan: PullPlan | None, messages: int, size: int) -> None:
        broker = self._broker
        counters = broker.counters
        counters.gets_found += 1
        counters.messages_out += messages
        counters.bytes_out += size
        counter = plan.counter if plan is not None else None
        if counter is None:
            terms = pull.terms
            counter = broker.stats.get_counter(terms.consumer_group, terms.topic, terms.queue_id)
            if plan is not None:
                plan.counter = (
                    counter  # what ends a counter, the removal of its topic or group, ends the plan
                )
        counter.add(messages, size, broker.now_ms() - pull.began_ms)

    def _record_moved(self, pull: Pull, offset_new: int) -> None:
        """Leave a message about a consumer whose offset was illegal."""
        broker, terms = self._broker, pull.terms
        broker.counters.offsets_moved += 1
        event = {
            "consumerGroup": terms.consumer_group,
            "messageQueue": {
                "brokerName": broker.config.broker_name,
                "queueId": terms.queue_id,
                "topic": terms.topic,
            },
            "offsetNew": offset_new,
            "offsetRequest": pull.queue_offset,
        }
        properties = {PROPERTY_KEYS: terms.consumer_group, PROPERTY_TAGS: terms.consumer_group}
        broker.store.put(
            StoreMessage(
                topic=OFFSET_MOVED_EVENT,
                queue_id=0,
                body=json_java.dumps(event).encode(),
                properties=encode_properties(properties).encode(),
                born_timestamp_ms=broker.now_ms(),
                born_host=broker.store_host,
                store_host=broker.store_host,
                wait_store_ok=False,
            )
        )


def encode_head(pull: Pull, code: ResponseCode, suggest: int, next_offset: int, result: GetResult) -> bytes:
    """The answer up to its messages."""
    remark = result.status.name
    if pull.serialize_type is SerializeType.JSON:
        return encode_pull_head(
            code, remark, pull.opaque, suggest, next_offset, result.min_offset, result.max_offset, result.size
        )
    response = pull.response(code, remark)
    response.ext_fields = {
        "suggestWhichBrokerId": str(suggest),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
    }
    return response.encode_head(result.size)


def refuse(pull: Pull, refused: Refused) -> RemotingCommand:
    response = pull.response(refused.code, refused.remark)
    response.ext_fields = {}
    return response


def response_code(result: GetResult, queue_offset: int) -> ResponseCode:
    if result.status in EMPTY_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if queue_offset != 0 else ResponseCode.PULL_NOT_FOUND
    return CODES[result.status]


def has_nothing_new(result: GetResult) -> bool:
    """Looked at everything there is, and nothing matched."""
    if result.status is GetStatus.NO_MATCHED_MESSAGE:
        return (
            result.next_offset >= result.max_offset
        )  # else the scan stopped at its limit: let the client go on
    return result.status is GetStatus.OFFSET_OVERFLOW_ONE


def _is_corrected(status: GetStatus) -> bool:
    """The store answered with another offset than the one asked for."""
    return status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, *EMPTY_QUEUE)


def suggest_broker_id(broker: Broker, group: SubscriptionGroupConfig, result: GetResult) -> int:
    """Where the client should pull this queue next."""
    if not broker.config.slave_read_enable:
        return 0
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id
