"""Messages as applications see them: what they send, what they receive, and the queue a message lives in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from cometmq.protocol import sys_flag as flags
from cometmq.protocol.host import HostPort, decode_host
from cometmq.protocol.properties import (
    KEYS_SEPARATOR,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    check_user_properties,
    decode_properties_bytes,
)


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    """One queue of a topic on one broker. The order is that of rebalancing: topic, broker name, queue id."""

    topic: str = msgspec.field(name="topic")
    broker_name: str = msgspec.field(name="brokerName")
    queue_id: int = msgspec.field(name="queueId")

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


class Message:
    """A message to be sent. Tag, keys, delay level and the wait switch are properties with reserved names.

    The argument ``properties`` takes none of the reserved names; the attribute holds them all, as they are sent.
    """

    __slots__ = ("body", "flag", "properties", "topic", "transaction_id")

    def __init__(
        self,
        topic: str,
        body: bytes = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        wait_store_ok: bool = True,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.transaction_id: str | None = None
        self.properties: dict[str, str] = {}
        if properties:
            check_user_properties(properties)
            self.properties.update(properties)
        if tag:
            self.properties[PROPERTY_TAGS] = tag
        if keys:
            self.keys = [keys] if isinstance(keys, str) else list(keys)
        if delay_level:
            self.delay_level = delay_level
        if not wait_store_ok:
            self.wait_store_ok = False

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes, {self.properties!r})"

    def copy(self) -> Self:
        """A message of its own with the same content; the body is shared."""
        other = type(self).__new__(type(self))
        other.topic, other.body, other.flag = self.topic, self.body, self.flag
        other.transaction_id = self.transaction_id
        other.properties = dict(self.properties)
        return other

    @property
    def tag(self) -> str | None:
        """What consumers filter by; one per message."""
        return self.properties.get(PROPERTY_TAGS)

    @tag.setter
    def tag(self, value: str | None) -> None:
        _put(self.properties, PROPERTY_TAGS, value)

    tags = tag

    @property
    def keys(self) -> list[str]:
        """Words by which the message can be found; no blanks inside one."""
        return self.properties.get(PROPERTY_KEYS, "").split()

    @keys.setter
    def keys(self, value: Iterable[str]) -> None:
        _put(self.properties, PROPERTY_KEYS, KEYS_SEPARATOR.join(value))

    @property
    def delay_level(self) -> int:
        """1 to 18 (1s 5s 10s 30s 1m ... 2h), or 0: at once."""
        return _int(self.properties.get(PROPERTY_DELAY))

    @delay_level.setter
    def delay_level(self, value: int) -> None:
        _put(self.properties, PROPERTY_DELAY, str(value) if value else None)

    @property
    def wait_store_ok(self) -> bool:
        """Whether the broker's answer waits for the flush and for slaves as configured."""
        return self.properties.get(PROPERTY_WAIT, "true").lower() == "true"

    @wait_store_ok.setter
    def wait_store_ok(self, value: bool) -> None:
        self.properties[PROPERTY_WAIT] = "true" if value else "false"

    @property
    def unique_id(self) -> str | None:
        """The id that the producer gives it; None before it is sent."""
        return self.properties.get(PROPERTY_UNIQ_KEY)


class MessageExt(msgspec.Struct, eq=False):
    """A message as it was stored: all fields of its record.

    Made by :func:`cometmq.protocol.record_cy.decode_records`. What is rarely looked at (properties, hosts,
    ids, the body of a compressed message) is decoded at first use.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    flag: int
    reconsume_times: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int
    born_host_bytes: bytes
    store_host_bytes: bytes
    stored_body: bytes
    stored_properties: bytes
    broker_name: str = ""
    _properties: dict[str, str] | None = None
    _body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The body as the producer gave it, decompressed."""
        if self._body is None:
            if self.sys_flag & flags.COMPRESSED and self.stored_body:
                from cometmq.protocol.compression import decompress

                self._body = decompress(self.stored_body, self.sys_flag)
            else:
                self._body = self.stored_body
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        """All properties; the dictionary belongs to the message and may be changed."""
        if self._properties is None:
            self._properties = decode_properties_bytes(self.stored_properties)
        return self._properties

    @property
    def tag(self) -> str | None:
        return self.properties.get(PROPERTY_TAGS)

    tags = tag

    @property
    def keys(self) -> list[str]:
        return self.properties.get(PROPERTY_KEYS, "").split()

    @property
    def delay_level(self) -> int:
        return _int(self.properties.get(PROPERTY_DELAY))

    @property
    def retry_topic(self) -> str | None:
        """The topic a message was first sent to, if this is a retry."""
        return self.properties.get(PROPERTY_RETRY_TOPIC)

    @property
    def unique_id(self) -> str | None:
        return self.properties.get(PROPERTY_UNIQ_KEY)

    @property
    def born_host(self) -> HostPort:
        return decode_host(self.born_host_bytes)

    @property
    def store_host(self) -> HostPort:
        return decode_host(self.store_host_bytes)

    @property
    def offset_msg_id(self) -> str:
        """The id that says where the message is stored."""
        return self.store_host_bytes.hex().upper() + f"{self.physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"

    @property
    def msg_id(self) -> str:
        """The id the producer gave, or else the offset id."""
        return self.unique_id or self.offset_msg_id

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def _put(properties: dict[str, str], name: str, value: str | None) -> None:
    if value:
        properties[name] = value
    else:
        properties.pop(name, None)


def _int(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0
