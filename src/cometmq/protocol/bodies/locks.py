"""Locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from msgspec import field

from cometmq.protocol.bodies.body import Body
from cometmq.protocol.message import MessageQueue


class LockBatchRequestBody(Body, kw_only=True):
    """Queues that a client wants to have for itself."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockBatchResponseBody(Body, kw_only=True):
    """Queues of the request that the client now holds."""

    lock_ok_mq_set: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class UnlockBatchRequestBody(Body, kw_only=True):
    """Queues that a client gives back."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)
