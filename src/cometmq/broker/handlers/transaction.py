"""END_TRANSACTION (37): a producer commits or rolls back a half message. Event loop only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.broker.copies import stored_message
from cometmq.broker.handlers.send import refusal_of
from cometmq.protocol import properties as names
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import EndTransactionHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

SLAVE = "SLAVE"
SLAVE_REMARK = "Message store is slave mode, so end transaction is forbidden. "
NOT_SET = "not set any response code"  # what the original answers to a rollback


def handlers(broker: Broker) -> dict[int, Handler]:
    def end(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        return end_transaction(broker, command)

    return {RequestCode.END_TRANSACTION: end}


def end_transaction(broker: Broker, command: RemotingCommand) -> RemotingCommand | None:
    if broker.config.broker_role == SLAVE:
        return command.response(ResponseCode.SLAVE_NOT_AVAILABLE, SLAVE_REMARK)
    header = EndTransactionHeader.decode(command.ext_fields)
    if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return None  # unknown: the check-back decides; clients expect no answer
    half = stored_message(broker.store, header.commit_log_offset)
    problem = _problem(broker, half, header)
    if half is None or problem:
        log.warning("transaction not ended msg_id=%s: %s", header.msg_id, problem)
        return command.response(ResponseCode.SYSTEM_ERROR, problem)
    rollback = header.commit_or_rollback == TRANSACTION_ROLLBACK
    result = broker.transactions.rollback(half) if rollback else broker.transactions.commit(half)
    if result is not None and not result.ok:
        refusal = refusal_of(broker, result.status)
        return command.response(refusal.code, refusal.remark)
    return command.response(ResponseCode.SUCCESS, NOT_SET if rollback else None)


def _problem(broker: Broker, half: MessageExt | None, header: EndTransactionHeader) -> str | None:
    if half is None:
        return "Find prepared transaction message failed"
    if half.properties.get(names.PROPERTY_PRODUCER_GROUP) != header.producer_group:
        return "The producer group wrong"
    if half.queue_offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if not broker.transactions.is_half(half):
        return "The commit log offset wrong"
    return None
