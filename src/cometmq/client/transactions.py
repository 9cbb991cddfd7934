"""Transactions: a message that becomes visible only if local work succeeds.

``async with tx.begin(message)`` sends a half message, runs the block, and commits at its end; an exception
rolls back. If the process dies in between, the broker asks any live producer of the group what became of it:
that is what ``check`` answers. The group must therefore belong to one service. Loop thread only; a plain ``check``
function runs in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from cometmq.client.instance import Instance
from cometmq.client.message import ReceivedMessage
from cometmq.client.outgoing import Outgoing
from cometmq.client.producer import Producer
from cometmq.client.results import SendResult, SendStatus, TransactionState
from cometmq.client.settings import Duration
from cometmq.errors import ClientError, CometMQError
from cometmq.net.connection import Connection
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import CheckTransactionStateHeader, EndTransactionHeader
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import parse_offset_message_id
from cometmq.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_PREPARED,
)
from cometmq.protocol.record_cy import decode_records

log = logging.getLogger(__name__)

CHECKS_AT_A_TIME_MAX = 32

Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState | None] | None]


class HalfMessage:
    """A message that is stored and not yet visible; the ``as`` of ``tx.begin``."""

    def __init__(self, message: Message, result: SendResult) -> None:
        self.message = message
        self.result = result
        self.state: TransactionState | None = None

    @property
    def transaction_id(self) -> str:
        """Store it with the local work: ``check`` gets the same id."""
        return self.result.msg_id

    def commit(self) -> None:
        """Commit at the end of the block (which is the default)."""
        self.state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Roll back at the end of the block, without an exception."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Leave it to a later check."""
        self.state = TransactionState.UNKNOWN


class Transaction:
    """The block of ``tx.begin(message)``."""

    def __init__(self, producer: TransactionalProducer, message: Message) -> None:
        self._producer = producer
        self._message = message
        self._half: HalfMessage | None = None

    async def __aenter__(self) -> HalfMessage:
        self._half = await self._producer.prepare(self._message)
        return self._half

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._half is not None
        if error is None:
            state = self._half.state or TransactionState.COMMIT
        elif isinstance(error, Exception):
            state = TransactionState.ROLLBACK
        else:
            state = TransactionState.UNKNOWN  # cancelled: nobody knows how far the local work came
        await asyncio.shield(self._producer.finish(self._half, state, error))


class TransactionalProducer(Producer):
    """A producer of transactional messages. Made by ``client.transactional(group, check=...)``."""

    def __init__(self, instance: Instance, group: str, *, check: Check, **options: Any) -> None:
        super().__init__(instance, group, **options)
        self._checker = check
        self._checking = asyncio.Semaphore(CHECKS_AT_A_TIME_MAX)
        self._checks: set[asyncio.Task[None]] = set()
        instance.checkers[self._wire_group] = self

    def begin(self, message: Message) -> Transaction:
        """``async with tx.begin(message) as half:`` around the local work."""
        return Transaction(self, message)

    async def aclose(self, timeout: Duration | None = None) -> None:
        """Answer the checks under way (bounded), then close: without its answer a message stays half until the
        broker finds another member of the group to ask.
        """
        self.instance.checkers.pop(self._wire_group, None)
        running = self._checks - {asyncio.current_task()}
        if running:
            await asyncio.wait(running, timeout=self._drain_s(timeout))
        await super().aclose(timeout)

    async def prepare(self, message: Message) -> HalfMessage:
        """Send the half message. Anything but a complete store rolls it back and raises."""
        self.check()
        copy = message.copy()
        copy.properties.pop(PROPERTY_DELAY, None)
        copy.properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        copy.properties[PROPERTY_PRODUCER_GROUP] = self._wire_group
        out = await self._half(copy)
        result = await self._send_anywhere(out, self.timeout_s)
        half = HalfMessage(message, result)
        message.transaction_id = result.msg_id
        if result.status is not SendStatus.SEND_OK:
            await self.finish(half, TransactionState.ROLLBACK)
            raise ClientError(
                f"the half message was not stored as wished ({result.status.name}); rolled back"
            )
        return half

    async def _half(self, message: Message) -> Outgoing:
        topic = self.instance.wire(message.topic)
        out = self._outbox.prepare(message, topic, self.instance.now_ms())
        if self._outbox.wants_compression(out):
            await self._outbox.compress(out)
        out.sys_flag |= flags.TRANSACTION_PREPARED
        return out

    async def finish(
        self, half: HalfMessage, state: TransactionState, error: BaseException | None = None
    ) -> None:
        """Tell the broker. One-way by protocol: if it gets lost, a check repairs it."""
        half.state = state
        result = half.result
        header = EndTransactionHeader(
            producer_group=self._wire_group,
            tran_state_table_offset=result.offset,
            commit_log_offset=parse_offset_message_id(result.offset_msg_id).physical_offset,
            commit_or_rollback=state.value,
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=result.msg_id,
            broker_name=result.queue.broker_name,
        )
        remark = None if error is None else f"executeLocalTransactionBranch exception: {error!r}"
        try:
            topic = self.instance.wire(half.message.topic)
            address = await self.instance.routes.master_of(result.queue.broker_name, topic)
            await self.instance.brokers.end_transaction(address, header, remark)
        except CometMQError as failure:
            log.warning(
                "transaction %s: %s was not told, a check will ask: %s", result.msg_id, state.name, failure
            )
        if self._tracer is not None:
            self._tracer.ended(self.group, half.message, result, state, from_check=False)

    def check_soon(self, address: str, header: CheckTransactionStateHeader, message: ReceivedMessage) -> None:
        """Ask the application in a task of its own, which closing waits for."""
        task = self.instance.background.spawn(self.checked(address, header, message), "transaction check")
        if task is not None:
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def checked(
        self, address: str, header: CheckTransactionStateHeader, message: ReceivedMessage
    ) -> None:
        """The broker asks what became of a transaction."""
        async with self._checking:
            state, remark = await self._ask(message)
        answer = EndTransactionHeader(
            producer_group=self._wire_group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.record.unique_id or message.msg_id,
            transaction_id=header.transaction_id,
        )
        try:
            await self.instance.brokers.end_transaction(address, answer, remark)
        except CometMQError as error:
            log.warning("transaction check %s was not answered: %s", message.msg_id, error)

    async def _ask(self, message: ReceivedMessage) -> tuple[TransactionState, str | None]:
        try:
            if inspect.iscoroutinefunction(self._checker):
                state = await self._checker(message)
            else:
                outcome = await asyncio.to_thread(self._checker, message)
                state = await outcome if inspect.isawaitable(outcome) else outcome
        except Exception as error:
            log.exception("check of transaction %s failed; the broker will ask again", message.msg_id)
            return TransactionState.UNKNOWN, f"checkLocalTransactionState Exception: {error!r}"
        return state or TransactionState.UNKNOWN, None


def check_requested(instance: Instance, connection: Connection, command: RemotingCommand) -> None:
    """CHECK_TRANSACTION_STATE, one-way: the answer goes back to the address it came from."""
    header = CheckTransactionStateHeader.decode(command.ext_fields)
    records = decode_records(command.body)
    if not records:
        return
    message = ReceivedMessage(records[0], instance.plain(records[0].topic))
    producer = instance.checkers.get(message.properties.get(PROPERTY_PRODUCER_GROUP, ""))
    if producer is None:
        log.warning("the broker asks for a transaction of a group this client does not have: %s", message)
        return
    producer.check_soon(instance.address_of(connection), header, message)
