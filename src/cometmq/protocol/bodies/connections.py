"""Who is connected: ConsumerConnection (203), ProducerConnection (204), ProducerTableInfo (328)."""

from __future__ import annotations

from msgspec import field

from cometmq.protocol.bodies.body import Body
from cometmq.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


class ClientConnection(Body, kw_only=True):
    """One connection of a client."""

    client_addr: str = ""
    client_id: str = ""
    language: str | None = None
    version: int = 0


class ConsumerConnection(Body, kw_only=True):
    """The members of a consumer group and what they subscribe."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body, kw_only=True):
    """The members of a producer group."""

    connection_set: list[ClientConnection] = field(default_factory=list)


class ProducerInfo(Body, kw_only=True):
    """A producer as the broker knows it. ``remote_ip`` begins with a slash."""

    client_id: str = ""
    language: str | None = None
    last_update_timestamp: int = 0
    remote_ip: str = field(name="remoteIP", default="")
    version: int = 0


class ProducerTableInfo(Body, kw_only=True):
    """All producers by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
