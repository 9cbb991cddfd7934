"""The properties string of a message: ``name 0x01 value 0x02 name 0x01 value``.

There is no escaping. A trailing separator is legal (older clients), later duplicates win, a property
without a name or with an empty value does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.errors import LocalProtocolError, MessageInvalid

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT = "WAIT"
PROPERTY_DELAY = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_BUYER_ID = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_ON = "TRACE_ON"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIME = "CONSUME_START_TIME"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_TTL = "TTL"
PROPERTY_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_MSG_TYPE = "MSG_TYPE"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID = "__transactionId__"

KEYS_SEPARATOR = " "

# What the system has a meaning for, and yet applications set: further queues, and when to ask about a transaction.
SETTABLE_PROPERTIES = frozenset((PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_CHECK_IMMUNITY_TIME))
# Names that an application may not set as its own property.
RESERVED_PROPERTIES = (
    frozenset(value for name, value in globals().items() if name.startswith("PROPERTY_"))
    - SETTABLE_PROPERTIES
    - {PROPERTY_SEPARATOR}
)
# Reserved names that have an argument of their own.
ARGUMENT_OF_PROPERTY = {
    PROPERTY_TAGS: "tag",
    PROPERTY_KEYS: "keys",
    PROPERTY_DELAY: "delay_level",
    PROPERTY_WAIT: "wait_store_ok",
}


def check_user_properties(properties: Mapping[str, str]) -> None:
    """What an application may give as its own properties: names that are not reserved, text, nothing blank."""
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise MessageInvalid(f"property {name!r} is {value!r}; names and values are text: use str()")
        if name in RESERVED_PROPERTIES:
            raise MessageInvalid(f"property {name!r} is reserved for the system; {_instead(name)}")
        if not name.strip() or not value.strip():
            raise MessageInvalid(f"property {name!r} is {value!r}; neither may be blank, leave it out")


def _instead(name: str) -> str:
    argument = ARGUMENT_OF_PROPERTY.get(name)
    return f"use the argument {argument}" if argument else "choose another name"


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that :func:`check_user_properties` takes: what the application gave, without the system's."""
    return {
        name: value
        for name, value in properties.items()
        if name not in RESERVED_PROPERTIES and name.strip() and value.strip()
    }


def join_properties(properties: Mapping[str, str]) -> str:
    """The properties string of what :func:`decode_properties` gave; a value may hold U+0001 again."""
    return PROPERTY_SEPARATOR.join(
        [name + NAME_VALUE_SEPARATOR + value for name, value in properties.items()]
    )


def encode_properties(properties: Mapping[str, str]) -> str:
    """The properties string, without a trailing separator. A separator inside a name or value is refused."""
    text = join_properties(properties)
    count = len(properties)
    if count and (text.count(NAME_VALUE_SEPARATOR) != count or text.count(PROPERTY_SEPARATOR) != count - 1):
        raise LocalProtocolError(
            "A property name or value contains the character U+0001 or U+0002, which separates properties; "
            "remove it."
        )
    return text


def decode_properties(text: str) -> dict[str, str]:
    """The properties in a string. Pieces that are no property are left out."""
    properties: dict[str, str] = {}
    for item in text.split(PROPERTY_SEPARATOR):
        name, _, value = item.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def decode_properties_bytes(data: bytes) -> dict[str, str]:
    """As :func:`decode_properties`, from stored bytes. Bytes that are no UTF-8 become U+FFFD, as in Java."""
    return decode_properties(data.decode("utf-8", "replace")) if data else {}


def find_property(data: bytes, name: bytes) -> bytes | None:
    """Value of one property in the stored bytes, without decoding the others. The last one wins."""
    prefix = name + b"\x01"
    end = len(data) if name else 0
    while end >= len(prefix):
        start = data.rfind(prefix, 0, end)
        if start < 0:
            return None
        if start == 0 or data[start - 1] == 2:
            value_start = start + len(prefix)
            value_end = data.find(b"\x02", value_start)
            value = data[value_start : len(data) if value_end < 0 else value_end]
            if value:
                return value
        end = start + len(prefix) - 1
    return None
