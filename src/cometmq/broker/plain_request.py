"""Which sends are plain: the specification of what send_header.pxd and send_properties.pxd read for the compiled twin.

The header of a plain send has nothing but the fields below, each once, as text, with numbers that are numbers; and
none of its properties makes it special. Pure.
"""

from __future__ import annotations

import msgspec

PROPERTY_COUNT_MAX = 32  # more are not plain; bounds the search for doubles

# Position of a field in the V2 alphabet a..n, and its V1 name
FIELD_TOPIC = 1
FIELD_QUEUE_ID = 4
FIELD_SYS_FLAG = 5
FIELD_BORN = 6
FIELD_FLAG = 7
FIELD_PROPERTIES = 8
FIELD_RECONSUME = 9
FIELD_BATCH = 12
V1_NAMES = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
    "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
)  # fmt: skip
V1_FIELDS = {name: index for index, name in enumerate(V1_NAMES)}
V2_FIELDS = {chr(ord("a") + index): index for index in range(len(V1_NAMES))}
NUMBERS = (FIELD_QUEUE_ID, FIELD_SYS_FLAG, FIELD_BORN, FIELD_FLAG, FIELD_RECONSUME)

# A message with one of these is never plain: it is stored elsewhere or otherwise (WAIT is looked at by value).
SPECIAL_PROPERTIES = frozenset(
    [b"DELAY", b"TRAN_MSG", b"CLUSTER", b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"]
)
SPECIAL_PREFIX = b"TIMER_"


class PlainHeader(msgspec.Struct):
    code: int
    opaque: int
    flag: int = 0
    extFields: dict[str, str] = {}


def plain_header(text: bytes) -> tuple[PlainHeader, dict[int, str]] | None:
    """The header of a send with its fields by position, or None."""
    try:
        header = msgspec.json.decode(text, type=PlainHeader)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if header.code not in (10, 310, 320) or not -(2**31) <= header.opaque < 2**31:
        return None
    names = V1_FIELDS if header.code == 10 else V2_FIELDS
    values = {names[key]: value for key, value in header.extFields.items() if key in names}
    return (header, values) if len(values) == len(header.extFields) else None


def plain_numbers(values: dict[int, str]) -> dict[int, int] | None:
    """The numeric fields, or None when one is missing, malformed or out of range."""
    numbers = {FIELD_RECONSUME: 0}
    for field in NUMBERS:
        text = values.get(field)
        if text is None:
            if field == FIELD_RECONSUME:
                continue
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            return None
        numbers[field] = int(text)
        if field != FIELD_BORN and not -(2**31) <= numbers[field] < 2**31:
            return None
    return numbers


def stored_properties(text: bytes, keep_wait: bool) -> bytes | None:
    """What is stored of a client's properties: all but WAIT (a batch keeps it); None: one makes the send special."""
    kept: dict[bytes, bytes] = {}
    for item in text.removesuffix(b"\x02").split(b"\x02") if text else ():
        name, separator, value = item.partition(b"\x01")
        if not separator or not name or not value or name in kept:
            return None
        if name in SPECIAL_PROPERTIES or name.startswith(SPECIAL_PREFIX):
            return None
        if name == b"WAIT":
            if value != b"true":
                return None
            if not keep_wait:
                continue
        kept[name] = item
    return b"\x02".join(kept.values()) if len(kept) <= PROPERTY_COUNT_MAX else None
