"""LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42. Event loop only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler


def handlers(broker: Broker) -> dict[int, Handler]:
    return {
        RequestCode.LOCK_BATCH_MQ: partial(lock_batch_mq, broker),
        RequestCode.UNLOCK_BATCH_MQ: partial(unlock_batch_mq, broker),
    }


def lock_batch_mq(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    body = LockBatchRequestBody.decode(request.body)
    locked = broker.locks.lock(body.consumer_group, body.client_id, body.mq_set)
    return request.response(body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())


def unlock_batch_mq(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    body = UnlockBatchRequestBody.decode(request.body)
    broker.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
    return request.response()
