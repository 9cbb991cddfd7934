"""What a consumer wants of a topic: everything, some tags, or an SQL expression over properties.

A filter is a value. The text of a tag filter is compared literally between members of a group by RocketMQ's tools, so
``TagFilter`` writes tags in the order given, joined by `` || ``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cometmq.errors import ClientError
from cometmq.protocol.filters.tag import ALL, SQL92, TAG, TAG_SEPARATOR


class TagFilter:
    """Messages that carry one of these tags; no tag at all means every message.

    >>> TagFilter("paid", "refund").expression
    'paid || refund'
    >>> sorted(TagFilter.parse(" a || b||").tags)
    ['a', 'b']
    """

    __slots__ = ("expression", "tags")
    type = TAG

    def __init__(self, *tags: str) -> None:
        for tag in tags:
            if not tag.strip() or TAG_SEPARATOR in tag:
                raise ClientError(f"{tag!r} is not a tag; give each tag as an argument of its own")
        self.tags = frozenset(tag.strip() for tag in tags if tag != ALL)
        self.expression = " || ".join(tags) if self.tags else ALL

    @classmethod
    def parse(cls, expression: str) -> TagFilter:
        """From RocketMQ's text (``a || b``); the text is kept as typed, because tools compare it."""
        made = cls(*(part.strip() for part in expression.split(TAG_SEPARATOR) if part.strip()))
        if made.tags:
            made.expression = expression
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagFilter) and other.expression == self.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Messages whose properties fulfil an SQL-92 condition, evaluated by the broker.

    The broker must run with ``enablePropertyFilter=true``.

    >>> SqlFilter("amount > 100").expression
    'amount > 100'
    """

    expression: str
    tags: frozenset[str] = field(default=frozenset(), init=False)
    type = SQL92

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise ClientError("an SqlFilter needs an expression such as 'amount > 100'")


Filter = TagFilter | SqlFilter
Subscriptions = str | Mapping[str, Filter | str | None]


def as_filter(value: Filter | str | None) -> Filter:
    if isinstance(value, TagFilter | SqlFilter):
        return value
    return TagFilter.parse(value or ALL)


def as_subscriptions(value: Subscriptions) -> dict[str, Filter]:
    """``"orders"`` or ``{"orders": TagFilter("paid"), "ledger": "a || b", "audit": None}``."""
    if isinstance(value, str):
        return {value: TagFilter()}
    return {topic: as_filter(filter_) for topic, filter_ in value.items()}
