"""Numbers for administrators: 28, 202, 208, 303, 315, 317, 321 and the KV tables of 103 and 219."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import field

from cometmq.protocol.bodies.body import Body
from cometmq.protocol.bodies.heartbeat import SubscriptionData
from cometmq.protocol.message import MessageQueue


class KVTable(Body, kw_only=True):
    """Texts by name."""

    table: dict[str, str] = field(default_factory=dict)


class TopicOffset(Body, kw_only=True):
    """What a queue holds."""

    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0


class TopicStatsTable(Body, kw_only=True):
    """Answer to GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


class OffsetWrapper(Body, kw_only=True):
    """How far a group is in a queue."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body, kw_only=True):
    """Answer to GET_CONSUME_STATS."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)


class ConsumeStatsList(Body, kw_only=True):
    """Answer to GET_BROKER_CONSUME_STATS: one small map per group."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: int = 0


class QueueTimeSpan(Body, kw_only=True):
    """Times of the first, the last and the last consumed message of a queue; -1 for none."""

    consume_time_stamp: int = -1
    consume_time_stamp_str: str | None = None
    delay_time: int = 0
    max_time_stamp: int = -1
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue | None = None
    min_time_stamp: int = -1
    min_time_stamp_str: str | None = None

    def with_texts(self) -> QueueTimeSpan:
        """Fill in the texts that Java derives from the times; returns itself."""
        self.consume_time_stamp_str = time_text(self.consume_time_stamp)
        self.max_time_stamp_str = time_text(self.max_time_stamp)
        self.min_time_stamp_str = time_text(self.min_time_stamp)
        return self


def time_text(timestamp_ms: int) -> str:
    """Local time as ``yyyy-MM-dd#HH:mm:ss:SSS``."""
    moment = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{moment.microsecond // 1000:03d}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    """Answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class BrokerStatsItem(Body, kw_only=True):
    """A counter over one period: average per call, sum, rate per second."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """Answer to VIEW_BROKER_STATS_DATA."""

    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class ConsumeQueueData(Body, kw_only=True):
    """One ConsumeQueue entry, and whether a filter would let it through."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """Answer to QUERY_CONSUME_QUEUE."""

    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None
