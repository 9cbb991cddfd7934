"""Ext fields of pulls, of queries for messages and of questions about the offsets of a queue."""

from __future__ import annotations

from msgspec import field as wire

from cometmq.protocol.header import Header, Int32, Int64


class PullMessageHeader(Header, kw_only=True):
    """PULL_MESSAGE 11."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    queue_offset: Int64 = wire(name="queueOffset")
    max_msg_nums: Int32 = wire(name="maxMsgNums")
    sys_flag: Int32 = wire(name="sysFlag")
    commit_offset: Int64 = wire(name="commitOffset")
    suspend_timeout_millis: Int64 = wire(name="suspendTimeoutMillis")
    subscription: str | None = wire(name="subscription", default=None)
    sub_version: Int64 = wire(name="subVersion")
    expression_type: str | None = wire(name="expressionType", default=None)
    broker_name: str | None = wire(name="bname", default=None)
    max_msg_bytes: Int32 | None = wire(
        name="maxMsgBytes", default=None
    )  # a field of RocketMQ 5; 4.9 ignores it


class PullMessageResponseHeader(Header, kw_only=True):
    """Answer to PULL_MESSAGE that is no error."""

    suggest_which_broker_id: Int64 = wire(name="suggestWhichBrokerId")
    next_begin_offset: Int64 = wire(name="nextBeginOffset")
    min_offset: Int64 = wire(name="minOffset")
    max_offset: Int64 = wire(name="maxOffset")


class QueryMessageHeader(Header, kw_only=True):
    """QUERY_MESSAGE 12."""

    topic: str = wire(name="topic")
    key: str = wire(name="key")
    max_num: Int32 = wire(name="maxNum")
    begin_timestamp: Int64 = wire(name="beginTimestamp")
    end_timestamp: Int64 = wire(name="endTimestamp")
    unique_key_query: bool | None = wire(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponseHeader(Header, kw_only=True):
    """Answer to QUERY_MESSAGE."""

    index_last_update_timestamp: Int64 = wire(name="indexLastUpdateTimestamp")
    index_last_update_phyoffset: Int64 = wire(name="indexLastUpdatePhyoffset")


class ViewMessageHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID 33. ``offset`` is a physical offset."""

    offset: Int64 = wire(name="offset")


class QueueHeader(Header, kw_only=True):
    """GET_MAX_OFFSET 30, GET_MIN_OFFSET 31, GET_EARLIEST_MSG_STORETIME 32."""

    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    broker_name: str | None = wire(name="bname", default=None)


class SearchOffsetHeader(Header, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP 29."""

    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    timestamp: Int64 = wire(name="timestamp")
    broker_name: str | None = wire(name="bname", default=None)


class OffsetResponseHeader(Header, kw_only=True):
    """Answer to 14, 29, 30, 31: a queue offset."""

    offset: Int64 | None = wire(name="offset", default=None)


class TimestampResponseHeader(Header, kw_only=True):
    """Answer to GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64 = wire(name="timestamp")


class QueryConsumeQueueHeader(Header, kw_only=True):
    """QUERY_CONSUME_QUEUE 321."""

    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    index: Int64 = wire(name="index")
    count: Int32 = wire(name="count")
    consumer_group: str | None = wire(name="consumerGroup", default=None)
