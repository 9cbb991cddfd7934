"""Tag expressions: ``TagA || TagB``.

The broker compares hashes, which is cheap and lets messages through whose tag merely hashes alike; the consumer
compares texts.
"""

from __future__ import annotations

from cometmq.errors import LocalProtocolError
from cometmq.protocol.bodies.heartbeat import SUBSCRIBE_ALL, SubscriptionData
from cometmq.protocol.hashing import tags_code

TAG_SEPARATOR = "||"


def parse_tags(expression: str | None) -> list[str]:
    """The tags of an expression, each once, in order; empty for "all"."""
    if expression is None or not expression or expression == SUBSCRIBE_ALL:
        return []
    tags = [tag.strip() for tag in expression.split(TAG_SEPARATOR)]
    found = list(dict.fromkeys(tag for tag in tags if tag))
    if not found:
        raise LocalProtocolError(f"The tag expression {expression[:64]!r} names no tag; write '*' for all.")
    return found


def subscription(topic: str, expression: str | None, *, version: int = 0) -> SubscriptionData:
    """The subscription that a tag expression means. The text is kept as it was given."""
    tags = parse_tags(expression)
    return SubscriptionData(
        topic=topic,
        sub_string=expression or SUBSCRIBE_ALL,
        tags_set=tags,
        code_set=[tags_code(tag) for tag in tags],
        sub_version=version,
    )


class TagFilter:
    """Judges ConsumeQueue entries by the hash of the tag; an empty set of codes lets all through."""

    __slots__ = ("codes",)
    needs_record = False

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes = codes

    @classmethod
    def of(cls, data: SubscriptionData) -> TagFilter:
        return cls(frozenset(data.code_set) if data.sub_string != SUBSCRIBE_ALL else frozenset())

    def matches_tags_code(self, code: int) -> bool:
        return not self.codes or code in self.codes

    def matches_record(self, _record: memoryview) -> bool:
        return True
