"""The expression types of a subscription, and tag expressions: ``TagA || TagB``.

The broker compares hashes, which is cheap and lets messages through whose tag merely hashes alike; the consumer
compares texts.
"""

from __future__ import annotations

from cometmq.protocol.hashing import tags_code

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"
TAG_SEPARATOR = "||"


def is_tag_type(expression_type: str | None) -> bool:
    """A missing type means TAG (clients before 4.1)."""
    return not expression_type or expression_type == TAG


def tag_codes(expression: str | None) -> frozenset[int]:
    """Hashes of the tags in ``A || B``; empty when everything is wanted."""
    if not expression or expression == ALL:
        return frozenset()
    tags = (tag.strip() for tag in expression.split(TAG_SEPARATOR))
    return frozenset(tags_code(tag) for tag in tags if tag)
