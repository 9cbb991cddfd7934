"""Copies of stored messages: delay, transactions and retry store a message again, elsewhere, slightly changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cometmq.errors import RemoteProtocolError
from cometmq.protocol import properties as names
from cometmq.protocol.message import MessageExt
from cometmq.protocol.properties import join_properties
from cometmq.protocol.record_cy import decode_record
from cometmq.store.model import PutStatus, StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


def stored_message(store: MessageStore, physical_offset: int) -> MessageExt | None:
    """The message whose record begins at an offset; None when none does."""
    record = store.read_record(physical_offset) if physical_offset >= 0 else None
    try:
        message = decode_record(record) if record is not None else None
    except RemoteProtocolError:
        return None
    return message if message is not None and message.physical_offset == physical_offset else None


def properties_text(properties: Mapping[str, str]) -> bytes:
    return join_properties(dict(properties)).encode("utf-8", "surrogatepass")


def copy_of(
    message: MessageExt,
    *,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str] | None = None,
    store_host: bytes | None = None,
) -> StoreMessage:
    """The same body, flags and birth at another place. Nobody waits for such a copy to reach the disk."""
    return StoreMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.stored_body,
        properties=message.stored_properties if properties is None else properties_text(properties),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host_bytes,
        store_host=message.store_host_bytes if store_host is None else store_host,
        reconsume_times=message.reconsume_times,
        wait_store_ok=False,
    )


def send_elsewhere(message: StoreMessage, properties: dict[str, str], topic: str, queue_id: int) -> None:
    """Redirect a message that is about to be stored; it carries its real target with it."""
    properties[names.PROPERTY_REAL_TOPIC] = message.topic
    properties[names.PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    message.properties = properties_text(properties)
    message.topic = topic
    message.queue_id = queue_id


def real_target(message: MessageExt) -> tuple[str, int] | None:
    """Where a redirected message wants to go; None when it does not say so."""
    topic = message.properties.get(names.PROPERTY_REAL_TOPIC)
    queue_id = message.properties.get(names.PROPERTY_REAL_QUEUE_ID, "")
    return (topic, int(queue_id)) if topic and queue_id.isdecimal() else None


def deliver_copy(broker: Broker, message: MessageExt, topic: str, queue_id: int) -> bool:
    """Store a waiting message at its target; False when it must be tried again.

    A message that the store will never take (maxMessageSize was lowered meanwhile) is left behind with a word in the
    log: it must not hold up those behind it.
    """
    result = broker.store.put(copy_of(message, topic=topic, queue_id=queue_id))
    if result.ok:
        broker.stats.count_put(topic, queue_id, 1, result.size)
    elif result.status in NEVER_STORED:
        log.error(
            "waiting message cannot be stored topic=%s id=%s physical_offset=%d status=%s",
            topic, message.msg_id, message.physical_offset, result.status.name,
        )  # fmt: skip
        return True
    return result.ok
