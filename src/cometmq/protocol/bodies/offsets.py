"""Tables of offsets: 43, 45, 220-223, 308, and the event of a moved offset."""

from __future__ import annotations

from typing import Any, Self

from msgspec import field

from cometmq.protocol import json_java
from cometmq.protocol.bodies.body import Body
from cometmq.protocol.message import MessageQueue


class ConsumerOffsetTable(Body, kw_only=True):
    """GET_ALL_CONSUMER_OFFSET and consumerOffset.json: ``topic@group`` to queue id to next offset."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)


class DelayOffsetTable(Body, kw_only=True):
    """GET_ALL_DELAY_OFFSET and delayOffset.json: delay level to next queue offset."""

    offset_table: dict[int, int] = field(default_factory=dict)


class QueryCorrectionOffsetBody(Body, kw_only=True):
    """Answer to QUERY_CORRECTION_OFFSET: queue id to offset."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


class ResetOffsetBody(Body, kw_only=True):
    """Body of RESET_CONSUMER_CLIENT_OFFSET and answer to INVOKE_BROKER_TO_RESET_OFFSET."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    def encode_for_cpp(self) -> bytes:
        """The form for CPP clients: a list of queues, each with its offset."""
        entries = [
            {"brokerName": q.broker_name, "offset": offset, "queueId": q.queue_id, "topic": q.topic}
            for q, offset in self.offset_table.items()
        ]
        return json_java.dumps({"offsetTable": entries}).encode()

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Also read the CPP form and the pair form ``[[queue, offset]]`` of Go."""
        table = value.get("offsetTable") if isinstance(value, dict) else None
        if isinstance(table, list):
            value = {"offsetTable": dict(map(_entry, table))}
        return super().from_json(value)


def _entry(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, dict):
        return json_java.dumps(entry), entry.get("offset")
    if isinstance(entry, list) and len(entry) == 2:
        return json_java.dumps(entry[0]), entry[1]
    return json_java.dumps(entry), None


class GetConsumerStatusBody(Body, kw_only=True):
    """Offsets a consumer has reached: its own answer (221), and all clients' together (223)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)


class OffsetMovedEvent(Body, kw_only=True):
    """Body of the messages in topic OFFSET_MOVED_EVENT."""

    consumer_group: str = ""
    message_queue: MessageQueue | None = None
    offset_new: int = 0
    offset_request: int = 0
