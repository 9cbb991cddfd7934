"""Ext fields of sends, of what comes back for another try, of transactions and of replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import field as wire

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.header import Header, Int32, Int64

if TYPE_CHECKING:
    from cometmq.protocol.command import RemotingCommand


class SendMessageHeader(Header, kw_only=True):
    """SEND_MESSAGE 10 and SEND_REPLY_MESSAGE 324 (long names); see SendMessageV2Header for the others."""

    producer_group: str = wire(name="producerGroup")
    topic: str = wire(name="topic")
    default_topic: str = wire(name="defaultTopic")
    default_topic_queue_nums: Int32 = wire(name="defaultTopicQueueNums")
    queue_id: Int32 = wire(name="queueId")
    sys_flag: Int32 = wire(name="sysFlag")
    born_timestamp: Int64 = wire(name="bornTimestamp")
    flag: Int32 = wire(name="flag")
    properties: str | None = wire(name="properties", default=None)
    reconsume_times: Int32 | None = wire(name="reconsumeTimes", default=None)
    unit_mode: bool | None = wire(name="unitMode", default=None)
    max_reconsume_times: Int32 | None = wire(name="maxReconsumeTimes", default=None)
    batch: bool | None = wire(name="batch", default=None)
    broker_name: str | None = wire(name="bname", default=None)

    @staticmethod
    def decode_any(command: RemotingCommand) -> SendMessageHeader:
        """Read long or short names, as the request code says."""
        kind = SendMessageV2Header if command.code in V2_SEND_CODES else SendMessageHeader
        return kind.decode(command.ext_fields)

    def encode_v2(self) -> dict[str, str]:
        """The ext fields with one-letter names."""
        return {V2_NAMES.get(name, name): value for name, value in self.encode().items()}


class SendMessageV2Header(SendMessageHeader, kw_only=True):
    """The same header with one-letter names: SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, reply 325."""

    producer_group: str = wire(name="a")
    topic: str = wire(name="b")
    default_topic: str = wire(name="c")
    default_topic_queue_nums: Int32 = wire(name="d")
    queue_id: Int32 = wire(name="e")
    sys_flag: Int32 = wire(name="f")
    born_timestamp: Int64 = wire(name="g")
    flag: Int32 = wire(name="h")
    properties: str | None = wire(name="i", default=None)
    reconsume_times: Int32 | None = wire(name="j", default=None)
    unit_mode: bool | None = wire(name="k", default=None)
    max_reconsume_times: Int32 | None = wire(name="l", default=None)
    batch: bool | None = wire(name="m", default=None)
    broker_name: str | None = wire(name="n", default=None)


V2_SEND_CODES = frozenset(
    (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
)
V2_NAMES = {
    long.encode_name: short.encode_name
    for long, short in zip(
        msgspec.structs.fields(SendMessageHeader), msgspec.structs.fields(SendMessageV2Header), strict=True
    )
}


class SendMessageResponseHeader(Header, kw_only=True):
    """Answer to all sends. Errors carry only the region and the trace switch."""

    msg_id: str | None = wire(name="msgId", default=None)
    queue_id: Int32 | None = wire(name="queueId", default=None)
    queue_offset: Int64 | None = wire(name="queueOffset", default=None)
    transaction_id: str | None = wire(name="transactionId", default=None)
    msg_region: str | None = wire(name="MSG_REGION", default=None)
    trace_on: bool | None = wire(name="TRACE_ON", default=None)


class ConsumerSendMsgBackHeader(Header, kw_only=True):
    """CONSUMER_SEND_MSG_BACK 36. ``offset`` is the physical offset of the message."""

    offset: Int64 = wire(name="offset")
    group: str = wire(name="group")
    delay_level: Int32 = wire(name="delayLevel")
    origin_msg_id: str | None = wire(name="originMsgId", default=None)
    origin_topic: str | None = wire(name="originTopic", default=None)
    unit_mode: bool | None = wire(name="unitMode", default=None)
    max_reconsume_times: Int32 | None = wire(name="maxReconsumeTimes", default=None)
    broker_name: str | None = wire(name="bname", default=None)


class EndTransactionHeader(Header, kw_only=True):
    """END_TRANSACTION 37."""

    producer_group: str = wire(name="producerGroup")
    tran_state_table_offset: Int64 = wire(name="tranStateTableOffset")
    commit_log_offset: Int64 = wire(name="commitLogOffset")
    commit_or_rollback: Int32 = wire(name="commitOrRollback")
    from_transaction_check: bool | None = wire(name="fromTransactionCheck", default=None)
    msg_id: str = wire(name="msgId")
    transaction_id: str | None = wire(name="transactionId", default=None)
    broker_name: str | None = wire(name="bname", default=None)


class CheckTransactionStateHeader(Header, kw_only=True):
    """CHECK_TRANSACTION_STATE 39, broker to producer."""

    tran_state_table_offset: Int64 = wire(name="tranStateTableOffset")
    commit_log_offset: Int64 = wire(name="commitLogOffset")
    msg_id: str | None = wire(name="msgId", default=None)
    transaction_id: str | None = wire(name="transactionId", default=None)
    offset_msg_id: str | None = wire(name="offsetMsgId", default=None)


class ResumeCheckHalfMessageHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE 323."""

    msg_id: str | None = wire(name="msgId", default=None)


class ReplyMessageHeader(Header, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT 326, broker to requester."""

    producer_group: str = wire(name="producerGroup")
    topic: str = wire(name="topic")
    default_topic: str = wire(name="defaultTopic")
    default_topic_queue_nums: Int32 = wire(name="defaultTopicQueueNums")
    queue_id: Int32 = wire(name="queueId")
    sys_flag: Int32 = wire(name="sysFlag")
    born_timestamp: Int64 = wire(name="bornTimestamp")
    flag: Int32 = wire(name="flag")
    properties: str | None = wire(name="properties", default=None)
    reconsume_times: Int32 | None = wire(name="reconsumeTimes", default=None)
    unit_mode: bool | None = wire(name="unitMode", default=None)
    born_host: str = wire(name="bornHost")
    store_host: str = wire(name="storeHost")
    store_timestamp: Int64 = wire(name="storeTimestamp")
