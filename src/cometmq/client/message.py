"""A received message: what a handler or an iteration gets, and the three things that can be done with it.

``ReceivedMessage`` wraps the decoded record. Until it is acknowledged, retried or rejected, the offset of its
group does not pass it, so forgetting loses nothing. Loop thread only; the values may be read anywhere.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING

from cometmq.client.queue import Queue
from cometmq.client.results import Disposition, Reject, Retry, SendResult
from cometmq.errors import ClientError
from cometmq.protocol.message import MessageExt
from cometmq.protocol.properties import PROPERTY_CORRELATION_ID, user_properties

if TYPE_CHECKING:
    from typing import Protocol

    from cometmq.client.consumer.process_queue import ProcessQueue

    class Settler(Protocol):
        """What settles messages: a consumer."""

        def settle_success(self, message: ReceivedMessage) -> None: ...
        async def settle_failure(self, message: ReceivedMessage, reason: BaseException) -> None: ...
        def begin_processing(self, count: int = 1) -> None: ...
        def end_processing(self, count: int = 1) -> None: ...
        async def reply(self, message: ReceivedMessage, body: bytes) -> SendResult: ...


log = logging.getLogger(__name__)


class ReceivedMessage:
    """One message out of a queue."""

    __slots__ = (
        "_settler",
        "consume_started_ms",
        "finished",
        "offset",
        "process_queue",
        "record",
        "topic",
        "trace_id",
    )

    def __init__(self, record: MessageExt, topic: str | None = None) -> None:
        self.record = record
        self.topic = record.topic if topic is None else topic
        self.offset = record.queue_offset
        self.finished = False
        self.process_queue: ProcessQueue | None = None
        self._settler: Settler | None = None
        self.consume_started_ms = 0
        self.trace_id = ""

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.topic}/{self.record.queue_id}@{self.offset} {self.msg_id}>"

    # --- what it says ---

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed if it came compressed."""
        return self.record.body

    @property
    def stored_body_size(self) -> int:
        """Bytes of the body as it came, maybe compressed."""
        return len(self.record.stored_body)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, those of the system included."""
        return self.record.properties

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that the sending application gave; what a copy of the message may be sent with."""
        return user_properties(self.record.properties)

    @property
    def tag(self) -> str | None:
        """What it was filtered by."""
        return self.record.tag

    @property
    def keys(self) -> list[str]:
        """The words by which it can be found."""
        return self.record.keys

    @property
    def msg_id(self) -> str:
        """The id the producer gave; equal in every copy of a retried message. Deduplicate with it."""
        return self.record.msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id by place: broker address and position in its log."""
        return self.record.offset_msg_id

    @property
    def queue(self) -> Queue:
        """Where it was read."""
        return Queue(self.topic, self.record.broker_name, self.record.queue_id)

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.record.reconsume_times

    @property
    def flag(self) -> int:
        """The free number that the sender gave."""
        return self.record.flag

    @property
    def born_time(self) -> float:
        """When it was sent, seconds since the epoch."""
        return self.record.born_timestamp_ms / 1000

    @property
    def store_time(self) -> float:
        """When the broker stored it, seconds since the epoch."""
        return self.record.store_timestamp_ms / 1000

    @property
    def transaction_id(self) -> str | None:
        """For the check of a transaction: the id that ``half.transaction_id`` had."""
        return self.record.unique_id

    @property
    def wants_reply(self) -> bool:
        """Does its sender wait for an answer?"""
        return PROPERTY_CORRELATION_ID in self.properties

    # --- what can be done with it ---

    def process(self, *, reraise: bool = False) -> Processing:
        """``async with msg.process():`` acknowledges at the end of the block; an exception sends the message back.

        ``Retry`` and ``Reject`` say how. Other exceptions mean "retry" and are logged; with ``reraise=True`` they go on
        to the caller as well. A cancelled block leaves the message as it was: it comes again.
        """
        return Processing(self, reraise)

    async def ack(self) -> None:
        """Done; the offset of the group may pass this message."""
        self._owner().settle_success(self)

    async def retry(self, *, delay_level: int = 0) -> None:
        """Deliver it again later (level 0: the broker decides, longer each time)."""
        await self._owner().settle_failure(self, Retry(delay_level=delay_level))

    async def reject(self, reason: str = "") -> None:
        """Put it into the dead-letter topic of the group."""
        await self._owner().settle_failure(self, Reject(reason))

    async def reply(self, body: bytes) -> SendResult:
        """Answer a request (the sender waits in ``producer.request``)."""
        return await self._owner().reply(self, body)

    def _owner(self) -> Settler:
        if self._settler is None:
            raise ClientError(
                "this message came without a consumer group (stream or query): nothing to settle"
            )
        return self._settler


class Processing:
    """The block of ``msg.process()``."""

    __slots__ = ("_message", "_reraise")

    def __init__(self, message: ReceivedMessage, reraise: bool) -> None:
        self._message = message
        self._reraise = reraise

    async def __aenter__(self) -> ReceivedMessage:
        self._message._owner().begin_processing()
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return await self._settle(error)
        finally:
            self._message._owner().end_processing()

    async def _settle(self, error: BaseException | None) -> bool:
        message = self._message
        if error is None:
            if not message.finished:
                message._owner().settle_success(message)
            return False
        if not isinstance(error, Exception):
            return False
        if not message.finished:
            await message._owner().settle_failure(message, error)
        if isinstance(error, Disposition):
            return True
        log.warning(
            "msg_id=%s topic=%s failed and will be retried", message.msg_id, message.topic, exc_info=error
        )
        return not self._reraise


def received(records: list[MessageExt], settler: Settler | None = None) -> list[ReceivedMessage]:
    made = [ReceivedMessage(record) for record in records]
    for message in made:
        message._settler = settler
    return made
