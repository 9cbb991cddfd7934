"""Address patterns of white lists: ``192.168.1.*``, ``10.0.0.{1,2}``, ``10.1-5.*``, ``::1``, comma lists. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from cometmq.errors import ConfigError

ANYWHERE = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
V4_PARTS, V6_PARTS = 4, 8

Matches = Callable[[str], bool]


def never(_address: str) -> bool:
    return False


def always(_address: str) -> bool:
    return True


def address_pattern(text: str) -> Matches:
    """The test of a pattern; raises ConfigError for a pattern that means nothing."""
    text = text.strip()
    if not text:
        return never
    if text in ANYWHERE:
        return always
    if "{" in text:
        return _one_of(_expand_braces(text))
    if "," in text:
        return _one_of([part.strip() for part in text.split(",") if part.strip()])
    if "*" in text or "-" in text:
        return _by_parts(text)
    return _one_of([text])


def _one_of(texts: list[str]) -> Matches:
    addresses = {_address(text) for text in texts}
    return lambda address: _known(address) in addresses


def _expand_braces(text: str) -> list[str]:
    head, _, rest = text.partition("{")
    if not rest.endswith("}") or head[-1:] not in (".", ":"):
        raise ConfigError(
            f"The address pattern {text!r} is wrong: braces enclose the last part, as in 10.0.0.{{1,2}}."
        )
    return [head + part.strip() for part in rest[:-1].split(",")]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ConfigError(f"The address {text!r} of a white list is neither IPv4 nor IPv6.") from None


def _known(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _by_parts(text: str) -> Matches:
    """``*`` or ``n-m`` in a part; what follows such a part is free."""
    separator, count, base = (":", V6_PARTS, 16) if ":" in text else (".", V4_PARTS, 10)
    parts = text.split(separator)
    if len(parts) > count or (len(parts) < count and parts[-1] != "*"):
        raise ConfigError(f"The address pattern {text!r} has {len(parts)} parts; {count} are expected.")
    ranges = [_range(part, text, base) for part in parts]

    def matches(address: str) -> bool:
        known = _known(address)
        if known is None or known.version != (6 if separator == ":" else 4):
            return False
        numbers = [int(part, base) for part in known.exploded.split(separator)]
        return all(low <= number <= high for number, (low, high) in zip(numbers, ranges, strict=False))

    return matches


def _range(part: str, text: str, base: int) -> tuple[int, int]:
    top = 255 if base == 10 else 0xFFFF
    if part == "*":
        return 0, top
    low, _, high = part.partition("-")
    try:
        bounds = int(low, base), int(high or low, base)
    except ValueError:
        raise ConfigError(
            f"The part {part!r} of the address pattern {text!r} is not a number, a range or *."
        ) from None
    if not 0 <= bounds[0] <= bounds[1] <= top:
        raise ConfigError(f"The range {part!r} of the address pattern {text!r} is not within 0 to {top}.")
    return bounds
