"""What a client says about itself: HeartbeatData (34) and CheckClientRequestBody (46)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from cometmq.protocol.bodies.body import Body, one_of
from cometmq.protocol.filters.tag import TAG

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
ConsumeType = Annotated[str, one_of(CONSUME_ACTIVELY, CONSUME_PASSIVELY)]

BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
MessageModel = Annotated[str, one_of(BROADCASTING, CLUSTERING)]

CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
ConsumeFromWhere = Annotated[
    str,
    one_of(
        CONSUME_FROM_LAST_OFFSET,
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        CONSUME_FROM_FIRST_OFFSET,
        CONSUME_FROM_TIMESTAMP,
    ),
]


class SubscriptionData(Body, kw_only=True):
    """A subscription of a group to a topic. ``code_set`` has the hashes of the tags in ``tags_set``."""

    class_filter_mode: bool = False
    code_set: list[int] = field(default_factory=list)
    expression_type: str = TAG
    sub_string: str | None = None
    sub_version: int = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str = ""


class ConsumerData(Body, kw_only=True):
    """A consumer group as one client runs it."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: str = ""
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class ProducerData(Body, kw_only=True):
    """A producer group of a client."""

    group_name: str = ""


class HeartbeatData(Body, kw_only=True):
    """Body of HEART_BEAT."""

    client_id: str = field(name="clientID", default="")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    producer_data_set: list[ProducerData] = field(default_factory=list)


class CheckClientRequestBody(Body, kw_only=True):
    """Body of CHECK_CLIENT_CONFIG: may this subscription be made?"""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData = field(default_factory=SubscriptionData)
    namespace: str | None = None
