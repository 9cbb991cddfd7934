"""How option texts become values. Each parser takes the text and raises ValueError with what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Offsets = dict[str, dict[str, dict[int, int]]]  # topic -> broker name -> queue id -> queue offset

_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
_DURATION_MS = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"\s*(\d+)\s*(?:([kmg])(?:i?b)?|b)?\s*", re.IGNORECASE)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
OFFSET_EARLIEST = -2
OFFSET_LATEST = -1


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def number(low: int, high: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            parsed = int(value)
        except ValueError:
            parsed = low - 1
        if not low <= parsed <= high:
            raise ValueError(f"a whole number from {low}" + (f" to {high}" if high < 2**62 else ""))
        return parsed

    return parse


def rate(value: str) -> float:
    try:
        parsed = float(value)
    except ValueError:
        parsed = 0.0
    if not 0 < parsed < 1e9:
        raise ValueError("messages a second, a number above 0")
    return parsed


def switch(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.strip().lower() == "true"


def choice(*allowed: str) -> Callable[[str], str]:
    folded = {name.lower(): name for name in allowed}

    def parse(value: str) -> str:
        if value.strip().lower() not in folded:
            raise ValueError(" or ".join(allowed))
        return folded[value.strip().lower()]

    return parse


def duration_ms(value: str) -> int:
    found = _DURATION.fullmatch(value)
    if not found:
        raise ValueError("a duration like 500ms, 30s, 15m")
    return int(found[1]) * _DURATION_MS[found[2]]


def size(value: str) -> int:
    found = _SIZE.fullmatch(value)
    if not found or not int(found[1]):
        raise ValueError("a size in bytes, or like 512k, 4m")
    return int(found[1]) * _SIZES[(found[2] or "").lower()]


def names(value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not found:
        raise ValueError("names with commas between them")
    return found


def addresses(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in re.split("[;,]", value) if part.strip())
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            found = ()
            break
    if not found:
        raise ValueError("host:port;host:port")
    return found


def pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return value


def instant_ms(value: str) -> int:
    """Milliseconds since 1970, or ISO 8601 (UTC unless it names an offset)."""
    stripped = value.strip()
    if re.fullmatch(r"-?\d+", stripped):
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError as error:
        raise ValueError("milliseconds since 1970, or a time like 2026-01-31T12:00:00Z") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def assignment(value: str) -> dict[str, dict[str, tuple[int, ...]]]:
    expected = 'JSON like {"T":{"broker-a":[0,1]}}'
    parsed = _json_object(value, expected)
    result: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, brokers in parsed.items():
        if not isinstance(brokers, dict):
            raise ValueError(expected)
        result[topic] = {broker: _queue_ids(ids, expected) for broker, ids in brokers.items()}
    if not result:
        raise ValueError(expected)
    return result


def _queue_ids(ids: Any, expected: str) -> tuple[int, ...]:
    if not isinstance(ids, list) or not all(isinstance(queue, int) and queue >= 0 for queue in ids):
        raise ValueError(expected)
    return tuple(sorted(set(ids)))


def offsets(value: str) -> Offsets:
    """The JSON of offsets; -2 and -1 stand for earliest and latest."""
    expected = 'JSON like {"T":{"broker-a":{"0":100,"1":-1}}}'
    parsed = _json_object(value, expected)
    try:
        return {
            topic: {
                broker: {int(queue): _offset(offset) for queue, offset in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in parsed.items()
        }
    except (AttributeError, ValueError) as error:
        raise ValueError(expected) from error


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < OFFSET_EARLIEST:
        raise ValueError(value)
    return value


def place(*words: str) -> Callable[[str], str | Offsets]:
    """One of the words, or the JSON of offsets."""

    def parse(value: str) -> str | Offsets:
        if value.strip().lower() in words:
            return value.strip().lower()
        try:
            return offsets(value)
        except ValueError as error:
            raise ValueError(f"{', '.join(words)} or {error}") from error

    return parse


def times(value: str) -> dict[str, dict[str, dict[int, int]]]:
    """As offsets, with times (ms or ISO 8601) in place of them."""
    expected = 'JSON like {"T":{"broker-a":{"0":1767225600000}}}'
    parsed = _json_object(value, expected)
    try:
        return {
            topic: {
                broker: {int(queue): instant_ms(str(moment)) for queue, moment in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in parsed.items()
        }
    except (AttributeError, ValueError) as error:
        raise ValueError(expected) from error


def _json_object(value: str, expected: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"{expected} ({error})") from error
    if not isinstance(parsed, dict):
        raise ValueError(expected)
    return parsed
