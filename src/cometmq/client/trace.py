"""Message trace: records of sends and deliveries, sent to the trace topic in RocketMQ's format.

Records queue up (bounded; when full they are dropped, tracing must not stop work) and leave in batches after
half a second or when a message is full. Loop thread only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cometmq.client.instance import Instance
from cometmq.client.message import ReceivedMessage
from cometmq.client.outgoing import Outgoing
from cometmq.client.results import Disposition, SendResult, TransactionState
from cometmq.errors import CometMQError
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.message import Message
from cometmq.protocol.properties import PROPERTY_MSG_REGION, PROPERTY_TRACE_ON

if TYPE_CHECKING:
    from cometmq.client.producer import Producer

log = logging.getLogger(__name__)

FIELD = "\x01"
RECORD = "\x02"
RECORD_COUNT_MAX = 1024
MESSAGE_CHARS_MAX = 118_000
FLUSH_INTERVAL_S = 0.5
SEND_TIMEOUT_S = 5.0
NULL = "null"  # how Java writes a missing text

TYPE_NORMAL, TYPE_HALF, TYPE_COMMIT, TYPE_DELAY = range(4)
CODE_SUCCESS, CODE_TIMEOUT, CODE_EXCEPTION, CODE_NULL, CODE_FAILED = range(5)


class Tracer:
    """Collects trace records of one client and sends them."""

    def __init__(self, instance: Instance, producer: Producer, topic: str) -> None:
        self._instance = instance
        self._producer = producer
        self._topic = topic
        self._records: deque[tuple[str, list[str]]] = deque()
        self.dropped = 0
        self._begun = False

    # --- records ---

    def sent(self, group: str, message: Message, out: Outgoing, result: SendResult, cost_ms: int) -> None:
        if not result.traced or message.topic == self._topic or out.batch:
            return
        kind = TYPE_DELAY if message.delay_level > 0 else TYPE_NORMAL
        if out.sys_flag & flags.TRANSACTION_PREPARED:
            kind = TYPE_HALF
        self._add(
            [
                "Pub",
                str(out.born_ms),
                result.region or NULL,
                group,
                message.topic,
                result.msg_id,
                message.tag or "",
                " ".join(message.keys),
                self._instance.routes.master(result.queue.broker_name) or "",
                str(len(message.body)),
                str(cost_ms),
                str(kind),
                result.offset_msg_id,
                "true",
            ],
            [result.msg_id, *message.keys],
        )

    def before(self, group: str, messages: Sequence[ReceivedMessage]) -> str:
        """A delivery begins; returns the id that joins it with its end."""
        request_id = self._instance.unique_ids.next()
        for message in self._traced(messages):
            self._add(
                [
                    "SubBefore",
                    str(self._instance.now_ms()),
                    message.properties.get(PROPERTY_MSG_REGION, NULL),
                    group,
                    request_id,
                    message.msg_id,
                    str(message.reconsume_times),
                    " ".join(message.keys) or NULL,
                ],
                [message.msg_id, *message.keys],
            )
        return request_id

    def after(
        self,
        group: str,
        request_id: str,
        messages: Sequence[ReceivedMessage],
        cost_ms: float,
        error: BaseException | None,
    ) -> None:
        code = CODE_SUCCESS
        if error is not None:
            code = CODE_FAILED if isinstance(error, Disposition) else CODE_EXCEPTION
        for message in self._traced(messages):
            self._add(
                [
                    "SubAfter",
                    request_id,
                    message.msg_id,
                    str(round(cost_ms / len(messages))),
                    "true" if error is None else "false",
                    " ".join(message.keys) or NULL,
                    str(code),
                    str(self._instance.now_ms()),
                    group,
                ],
                [message.msg_id, *message.keys],
            )

    def ended(
        self, group: str, message: Message, result: SendResult, state: TransactionState, *, from_check: bool
    ) -> None:
        names = {
            TransactionState.COMMIT: "COMMIT_MESSAGE",
            TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
            TransactionState.UNKNOWN: "UNKNOW",
        }
        self._add(
            [
                "EndTransaction",
                str(self._instance.now_ms()),
                result.region or NULL,
                group,
                message.topic,
                result.msg_id,
                message.tag or "",
                " ".join(message.keys),
                self._instance.routes.master(result.queue.broker_name) or "",
                str(TYPE_COMMIT),
                result.msg_id,
                names[state],
                "true" if from_check else "false",
            ],
            [result.msg_id, *message.keys],
        )

    def _traced(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        return [
            message
            for message in messages
            if message.topic != self._topic and message.properties.get(PROPERTY_TRACE_ON) != "false"
        ]

    def _add(self, fields: list[str], keys: list[str]) -> None:
        if len(self._records) >= RECORD_COUNT_MAX:
            self.dropped += 1
            return
        self._records.append((FIELD.join(fields) + RECORD, keys))
        if not self._begun:
            self._begun = True
            self._instance.background.every(FLUSH_INTERVAL_S, self.flush, "trace")

    async def aclose(self) -> None:
        await self.flush()
        await self._producer.aclose()

    # --- sending ---

    async def flush(self) -> None:
        """Send everything collected. Failures are counted and logged, never raised."""
        while self._records:
            text, keys = self._batch()
            try:
                await self._producer.send(
                    Message(self._topic, text.encode(), keys=keys), timeout=SEND_TIMEOUT_S
                )
            except CometMQError as error:
                self.dropped += text.count(RECORD)
                log.warning("trace records were not sent: %s", error)

    def _batch(self) -> tuple[str, list[str]]:
        texts: list[str] = []
        keys: dict[str, None] = {}
        size = 0
        while self._records and size + len(self._records[0][0]) <= MESSAGE_CHARS_MAX:
            text, own = self._records.popleft()
            texts.append(text)
            size += len(text)
            keys.update(dict.fromkeys(key for key in own if key))
        return "".join(texts), list(keys)
