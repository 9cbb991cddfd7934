"""Java's ``String.hashCode``: the tags code of a message and the start of every index hash."""

from __future__ import annotations

from functools import lru_cache


def java_string_hash(text: str) -> int:
    """Hash over UTF-16 code units with 32-bit wrap-around (signed result)."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str | None) -> int:
    """What a ConsumeQueue entry holds for a tag: its hash, 0 without a tag."""
    return java_string_hash(tags) if tags else 0


tag_hash = tags_code
