"""What a consumer tells on request: ConsumerRunningInfo (307), a message consumed on demand (309)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from cometmq.protocol.bodies.body import Body, one_of
from cometmq.protocol.bodies.heartbeat import SubscriptionData
from cometmq.protocol.message import MessageQueue

CR_SUCCESS = "CR_SUCCESS"
CR_LATER = "CR_LATER"
CR_ROLLBACK = "CR_ROLLBACK"
CR_COMMIT = "CR_COMMIT"
CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
CR_RETURN_NULL = "CR_RETURN_NULL"
ConsumeResult = Annotated[
    str, one_of(CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION, CR_RETURN_NULL)
]


class ProcessQueueInfo(Body, kw_only=True):
    """What a consumer has of one queue. ``droped`` is spelled so on the wire."""

    cached_msg_count: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_size_in_mib: int = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: int = 0
    dropped: bool = field(name="droped", default=False)
    last_consume_timestamp: int = 0
    last_lock_timestamp: int = 0
    last_pull_timestamp: int = 0
    locked: bool = False
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class ConsumeStatus(Body, kw_only=True):
    """Rates of a consumer for one topic."""

    consume_failed_msgs: int = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


class ConsumerRunningInfo(Body, kw_only=True):
    """Answer of a client to GET_CONSUMER_RUNNING_INFO."""

    jstack: str | None = None
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)


class ConsumeMessageDirectlyResult(Body, kw_only=True):
    """Answer of a client to CONSUME_MESSAGE_DIRECTLY."""

    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: int = 0
