"""Rules that a topic, a group or a message must meet before anything is sent. Pure."""

from __future__ import annotations

import re

from cometmq.errors import ClientError, MessageInvalid
from cometmq.protocol.limits import GROUP_SIZE_MAX, TOPIC_SIZE_MAX
from cometmq.protocol.message import Message
from cometmq.protocol.names import RETRY_PREFIX

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
NOT_FOR_SENDING = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
RESERVED_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})
_TEXT = "letters, digits and % | _ -"


def check_topic(topic: str) -> None:
    if not _NAME.fullmatch(topic):
        raise MessageInvalid(f"topic {topic!r} is not allowed: use {_TEXT}")
    if len(topic) > TOPIC_SIZE_MAX:
        raise MessageInvalid(f"topic {topic[:20]!r}... has {len(topic)} characters; at most {TOPIC_SIZE_MAX}")


def check_group(group: str) -> None:
    if not _NAME.fullmatch(group):
        raise ClientError(f"group {group!r} is not allowed: use {_TEXT}")
    if len(group) > GROUP_SIZE_MAX:
        raise ClientError(f"group {group[:20]!r}... has {len(group)} characters; at most {GROUP_SIZE_MAX}")
    if group in RESERVED_GROUPS:
        raise ClientError(f"group {group!r} is reserved; choose a name of your own")


def check_message(message: Message, body_size_max: int) -> None:
    check_topic(message.topic)
    if message.topic in NOT_FOR_SENDING:
        raise MessageInvalid(f"topic {message.topic!r} belongs to the broker; nobody may send to it")
    body = message.body
    if not isinstance(body, bytes | bytearray | memoryview):
        raise MessageInvalid(f"the body must be bytes, not {type(body).__name__}; encode it first")
    if not body:
        raise MessageInvalid(f"a message to {message.topic!r} has an empty body")
    if len(body) > body_size_max:
        raise MessageInvalid(
            f"a body of {len(body)} bytes is larger than {body_size_max}; raise message_bytes_max here and "
            "maxMessageSize at the broker, or send less"
        )


def check_batch(messages: list[Message]) -> None:
    """One batch: one topic, one wait switch, no delays, no retry topic."""
    if not messages:
        raise MessageInvalid("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise MessageInvalid(f"one batch has one topic, not {first.topic!r} and {message.topic!r}")
        if message.wait_store_ok != first.wait_store_ok:
            raise MessageInvalid("all messages of a batch must have the same wait_store_ok")
        if message.delay_level > 0:
            raise MessageInvalid("delayed messages cannot be sent in a batch; send them one by one")
    if first.topic.startswith(RETRY_PREFIX):
        raise MessageInvalid("retry topics take no batches")
