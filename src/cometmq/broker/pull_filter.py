"""What a pull wants to see, as the store asks it: tags by hash, SQL92 by properties.

The store asks ``matches_tags_code`` with the queue entry alone; only filters that need the record are shown
it. Pure, loop thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from cometmq.protocol.properties import PROPERTY_RETRY_TOPIC, decode_properties_bytes
from cometmq.protocol.sys_flag import born_host_size, store_host_size

Evaluate = Callable[[Mapping[str, str]], bool | None]

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
SYS_FLAG_POSITION = 36
HOSTS_POSITION = 48  # born host starts here
# store timestamp 8, reconsume times 4, prepared offset 8 lie around the two hosts before the body length
BETWEEN_HOSTS_AND_BODY_SIZE = 8 + 4 + 8


class TagFilter:
    """Messages whose tag has one of these hashes. Collisions pass; clients compare the tags themselves."""

    __slots__ = ("tags_codes",)
    needs_record = False

    def __init__(self, codes: Iterable[int]) -> None:
        self.tags_codes = frozenset(codes)

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code in self.tags_codes

    def matches_record(self, record: memoryview) -> bool:
        return True


class PropertyFilter:
    """Messages whose properties make an expression true; unknown and failing count as false."""

    __slots__ = ("_evaluate",)
    needs_record = True

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: memoryview) -> bool:
        return self._evaluate(record_properties(record)) is True


class BloomedPropertyFilter(PropertyFilter):
    """The filter of a registered group: bits in the queue's extension may tell that it does not want a message."""

    __slots__ = ("_may_want",)

    def __init__(self, evaluate: Evaluate, may_want: Callable[[int, bytes], bool]) -> None:
        super().__init__(evaluate)
        self._may_want = may_want

    def matches_ext(self, tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> bool:
        return self._may_want(store_timestamp_ms, bit_map)


class RetryPropertyFilter:
    """For retry topics with filterSupportRetry: the expression of the group on the original topic decides."""

    __slots__ = ("_evaluate_of",)
    needs_record = True

    def __init__(self, evaluate_of: Callable[[str], Evaluate | None]) -> None:
        self._evaluate_of = evaluate_of

    def matches_tags_code(self, tags_code: int) -> bool:
        return True

    def matches_record(self, record: memoryview) -> bool:
        properties = record_properties(record)
        evaluate = self._evaluate_of(properties.get(PROPERTY_RETRY_TOPIC, ""))
        return evaluate is None or evaluate(properties) is True


def record_properties(record: memoryview) -> dict[str, str]:
    """The properties of a stored record."""
    (sys_flag,) = _INT.unpack_from(record, SYS_FLAG_POSITION)
    position = (
        HOSTS_POSITION + born_host_size(sys_flag) + store_host_size(sys_flag) + BETWEEN_HOSTS_AND_BODY_SIZE
    )
    (body_size,) = _INT.unpack_from(record, position)
    position += 4 + body_size
    position += 1 + record[position]
    (size,) = _SHORT.unpack_from(record, position)
    return decode_properties_bytes(bytes(record[position + 2 : position + 2 + size]))
