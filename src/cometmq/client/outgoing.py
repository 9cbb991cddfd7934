"""A message made ready to be sent: checked, compressed, with its id and its properties as text.

Done once per send; retries send the same thing, so consumers can recognise duplicates by the id.
"""

from __future__ import annotations

import asyncio

import msgspec

from cometmq.client.send_frames import properties_text
from cometmq.client.settings import Settings
from cometmq.client.validation import check_batch, check_message
from cometmq.errors import ClientError, MessageInvalid
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.compression import compress
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import UniqueIds
from cometmq.protocol.names import RETRY_PREFIX
from cometmq.protocol.properties import (
    PROPERTY_INSTANCE_ID,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from cometmq.protocol.record_cy import encode_batch

# Larger bodies are compressed in a thread, so that the loop goes on.
COMPRESS_INLINE_BYTES = 64 * 1024
COMPRESSION_KINDS = {kind.name.lower(): kind for kind in flags.CompressionType}


class Outgoing(msgspec.Struct, gc=False):
    """What a send request needs of its message. The topic is the wire name."""

    topic: str
    unique_id: str
    properties: str
    body: bytes | bytearray | memoryview
    flag: int
    born_ms: int
    sys_flag: int = 0
    batch: bool = False
    reconsume_times: int | None = None  # only for messages to a retry topic
    max_reconsume_times: int | None = None


class Outbox:
    """Makes messages ready by the settings of a client."""

    def __init__(self, settings: Settings, unique_ids: UniqueIds) -> None:
        if settings.compression not in COMPRESSION_KINDS:
            raise ClientError(
                f"compression {settings.compression!r} is unknown; use one of {', '.join(COMPRESSION_KINDS)}"
            )
        self._settings = settings
        self._unique_ids = unique_ids
        self._compress_over = settings.compress_over_bytes
        self._body_max = settings.message_bytes_max
        self._kind = COMPRESSION_KINDS[settings.compression]

    def prepare(self, message: Message, topic: str, now_ms: int) -> Outgoing:
        """``topic`` is the wire name of the message's topic. The message itself is not changed."""
        check_message(message, self._body_max)
        properties = message.properties
        unique_id = properties.get(PROPERTY_UNIQ_KEY) if properties else None
        if unique_id is None:
            unique_id = self._unique_ids.next()
        if self._settings.namespace:
            message = message.copy()
            message.properties[PROPERTY_INSTANCE_ID] = self._settings.namespace
        out = Outgoing(
            topic, unique_id, properties_text(message, unique_id), message.body, message.flag, now_ms
        )
        if topic.startswith(RETRY_PREFIX):
            _move_counters(out, message, unique_id)
        return out

    def wants_compression(self, out: Outgoing) -> bool:
        return len(out.body) >= self._compress_over and not out.batch

    async def compress(self, out: Outgoing) -> None:
        body = bytes(out.body)
        level = self._settings.compression_level
        if len(body) > COMPRESS_INLINE_BYTES:
            out.body = await asyncio.to_thread(compress, body, self._kind, level)
        else:
            out.body = compress(body, self._kind, level)
        out.sys_flag |= flags.compression_bits(self._kind)

    def prepare_batch(self, messages: list[Message], topic: str, now_ms: int) -> Outgoing:
        check_batch(messages)
        copies = []
        for message in messages:
            check_message(message, self._body_max)
            copy = message.copy()
            copy.properties.setdefault(PROPERTY_UNIQ_KEY, self._unique_ids.next())
            copy.wait_store_ok = message.wait_store_ok
            if self._settings.namespace:
                copy.properties[PROPERTY_INSTANCE_ID] = self._settings.namespace
            copies.append(copy)
        body = encode_batch(copies)
        if len(body) > self._body_max:
            raise MessageInvalid(
                f"the batch of {len(messages)} messages has {len(body)} bytes; at most {self._body_max}: split it"
            )
        unique_ids = ",".join(copy.properties[PROPERTY_UNIQ_KEY] for copy in copies)
        wait = f"WAIT\x01{'true' if messages[0].wait_store_ok else 'false'}"
        return Outgoing(topic, unique_ids, wait, body, 0, now_ms, batch=True)


def _move_counters(out: Outgoing, message: Message, unique_id: str) -> None:
    """For a retry topic two properties travel in the header instead."""
    properties = {**message.properties, PROPERTY_UNIQ_KEY: unique_id}
    times = properties.pop(PROPERTY_RECONSUME_TIME, None)
    limit = properties.pop(PROPERTY_MAX_RECONSUME_TIMES, None)
    out.properties = encode_properties(properties)
    out.reconsume_times = int(times) if times else None
    out.max_reconsume_times = int(limit) if limit else None
