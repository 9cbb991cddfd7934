"""JSON as fastjson writes it: a tolerant reader and exact writers.

fastjson writes map keys that are numbers without quotes and keys that are objects as raw objects, which no
strict parser reads::

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":2}},"levels":{1:5}}

:func:`to_strict` rewrites such text into JSON in one pass: a number gets quotes, an object key becomes a
string that holds the object's text, which is also the quoted form that Java accepts for such keys. So a
reader sees string keys only. Keys are not nested in keys by anyone, and quoting inside quoting would double
the text at each level, so that is refused. Text that is strict JSON from the start (nearly all of it) is
decoded by msgspec and never rewritten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from cometmq.errors import RemoteProtocolError
from cometmq.protocol.limits import (
    JSON_DEPTH_MAX,
    JSON_REFERENCE_COUNT_MAX,
    JSON_SIZE_MAX,
    JSON_TOLERANT_SIZE_MAX,
)

Text = bytes | bytearray | memoryview | str

_TOKEN = re.compile(r'\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]|[^\s"{}\[\]:,]++)', re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_REPAIR = re.compile(r"[\x00-\x1f]|\\u[dD][89a-fA-F]")

# What the reader expects next: inside an object a key, its colon, its value, then a comma or the end.
_KEY, _COLON, _VALUE, _NEXT = range(4)


def loads(data: Text, tolerant_size_max: int = JSON_TOLERANT_SIZE_MAX) -> Any:
    """Decode JSON or fastjson text. All keys of the result are strings, an object key is its JSON text."""
    try:
        return msgspec.json.decode(_bytes(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.json.decode(to_strict(data, tolerant_size_max))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RemoteProtocolError(f"A JSON text cannot be read: {error}.") from error


def _bytes(data: Text) -> bytes | bytearray | memoryview:
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    if len(data) > JSON_SIZE_MAX:
        raise RemoteProtocolError(f"A JSON text of {len(data)} bytes is larger than {JSON_SIZE_MAX} bytes.")
    return data


def to_strict(data: Text, size_max: int = JSON_TOLERANT_SIZE_MAX) -> str:
    """Rewrite fastjson text as strict JSON. What is wrong in other ways stays wrong; the decoder says so."""
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    if len(text) > size_max:
        raise RemoteProtocolError(
            f"A text of {len(text)} characters is not strict JSON and is larger than {size_max} characters."
        )
    rewriter = _Rewriter()
    position, end = 0, len(text)
    while match := _TOKEN.match(text, position):
        rewriter.take(match[1])
        position = match.end()
    if text[position:end].strip():
        raise RemoteProtocolError(f"A JSON text has no meaning from character {position} on.")
    return "".join(rewriter.pieces)


class _Rewriter:
    """Follows the nesting of one text, token by token, and collects the strict form."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._levels: list[str] = []  # the closing bracket of each open level
        self._expect = _VALUE
        self._key_start = -1  # index in pieces of an object key that is open
        self._key_depth = -1

    def take(self, token: str) -> None:
        if token in ("{", "["):
            self._open(token)
        elif token in ("}", "]"):
            self._close(token)
        elif token == ":":
            self.pieces.append(token)
            self._expect = _VALUE
        elif token == ",":
            self.pieces.append(token)
            self._expect = _KEY if self._levels and self._levels[-1] == "}" else _VALUE
        elif self._expect == _KEY:
            self.pieces.append(f'"{token}"' if _INTEGER.fullmatch(token) else _repaired(token))
            self._expect = _COLON
        else:
            self.pieces.append(_repaired(token))
            self._expect = _NEXT

    def _open(self, token: str) -> None:
        if self._expect == _KEY and token == "{":
            if self._key_start >= 0:
                raise RemoteProtocolError("A JSON text has an object key inside an object key.")
            self._key_start, self._key_depth = len(self.pieces), len(self._levels)
        if len(self._levels) >= JSON_DEPTH_MAX:
            raise RemoteProtocolError(f"A JSON text is nested deeper than {JSON_DEPTH_MAX} levels.")
        self.pieces.append(token)
        self._levels.append("}" if token == "{" else "]")
        self._expect = _KEY if token == "{" else _VALUE

    def _close(self, token: str) -> None:
        if not self._levels or self._levels.pop() != token:
            raise RemoteProtocolError("The brackets of a JSON text do not match.")
        self.pieces.append(token)
        self._expect = _NEXT
        if len(self._levels) == self._key_depth and self._key_start >= 0:
            key = "".join(self.pieces[self._key_start :])
            self.pieces[self._key_start :] = [_quote(key)]
            self._key_start = self._key_depth = -1
            self._expect = _COLON


def _repaired(token: str) -> str:
    """A string token without raw control characters; halves of characters cannot be stored: U+FFFD."""
    if token[0] != '"' or not _REPAIR.search(token):
        return token
    try:
        text: str = json.loads(token, strict=False)
    except ValueError as error:
        raise RemoteProtocolError(f"A JSON text has a broken string: {error}.") from error
    return _quote(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def resolve_references(value: Any) -> Any:
    """Replace ``{"$ref":"$.a[0].b"}``, which fastjson writes instead of an object that it wrote before.

    What is pointed to may itself hold no reference, and their number is limited, so the result stays small.
    """
    references = list(_references(value))
    if len(references) > JSON_REFERENCE_COUNT_MAX:
        raise RemoteProtocolError(f"A JSON text has more than {JSON_REFERENCE_COUNT_MAX} references.")
    targets = [_target(value, path) for _, _, path in references]
    if any(next(_references(target), None) for target in targets):
        raise RemoteProtocolError("A JSON text has a reference to a reference.")
    for (holder, key, _), target in zip(references, targets, strict=True):
        holder[key] = target
    return value


def _references(value: Any) -> Iterator[tuple[Any, Any, str]]:
    """Where references stand: the object or list that holds each, its place there, and its path."""
    open_values = [value] if isinstance(value, dict | list) else []
    while open_values:
        holder = open_values.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, item in items:
            if isinstance(item, dict) and len(item) == 1 and isinstance(item.get("$ref"), str):
                yield holder, key, item["$ref"]
            elif isinstance(item, dict | list):
                open_values.append(item)


_PATH_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]{1,9})\]")


def _target(value: Any, path: str) -> Any:
    position = 1 if path.startswith("$") else len(path)
    try:
        while step := _PATH_STEP.match(path, position):
            value = value[step[1]] if step[1] else value[int(step[2])]
            position = step.end()
    except (LookupError, TypeError):
        position = 0
    if position != len(path) or not isinstance(value, dict | list):
        raise RemoteProtocolError(f"A JSON text refers to {path[:64]!r}, which is not in it.")
    return value


def text_of(value: Any) -> str:
    """A scalar as the text Java would make of it; anything else as JSON."""
    if isinstance(value, str):
        return value
    return dumps(value)


# writers ------------------------------------------------------------------------------------------


def dumps(value: Any) -> str:
    """fastjson's compact form: bare integer keys, raw object keys."""
    return _Writer().write(value)


def dumps_strict(value: Any) -> str:
    """Valid JSON in ASCII, as Java answers to those who ask for it: quoted keys, ``\\uXXXX`` beyond ASCII."""
    return _Writer(strict=True).write(value)


def dumps_pretty(value: Any) -> str:
    """The layout of the broker's config files: tabs, one member a line, integer keys in one line."""
    return _Writer(pretty=True).write(value)


@cache
def _members(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Attribute and wire name of each field, in alphabetical order of the latter as Java writes them."""
    fields = [(field.name, field.encode_name) for field in msgspec.structs.fields(kind)]
    return sorted(fields, key=lambda field: field[1])


class _Writer:
    """Writes one value. Values are ours, so their depth is not limited beyond Python's own."""

    def __init__(self, *, strict: bool = False, pretty: bool = False) -> None:
        self._strict = strict
        self._pretty = pretty
        self._quote = _quote_ascii if strict else _quote
        self._indent = "\n"
        self._parts: list[str] = []

    def write(self, value: Any) -> str:
        self._value(value)
        return "".join(self._parts)

    def _value(self, value: Any) -> None:
        if isinstance(value, str) and not isinstance(value, Enum):
            self._parts.append(self._quote(value))
        elif isinstance(value, dict):
            self._object(value)
        elif isinstance(value, msgspec.Struct):
            self._object(_struct_members(value))
        elif isinstance(value, list | tuple | set | frozenset):
            self._array(value)
        else:
            self._parts.append(_scalar(value))

    def _array(self, values: Any) -> None:
        self._parts.append("[")
        for index, value in enumerate(values):
            if index:
                self._parts.append(",")
            self._value(value)
        self._parts.append("]")

    def _object(self, members: dict[Any, Any]) -> None:
        parts = self._parts
        if not members:
            parts.append("{}")
            return
        outer = self._indent
        self._indent = outer + "\t"
        separator = "{"
        for key, value in members.items():
            parts.append(separator)
            self._key(key)
            parts.append(":")
            self._value(value)
            separator = ","
        self._indent = outer
        parts.append(f"{outer}}}" if self._pretty else "}")

    def _key(self, key: Any) -> None:
        if isinstance(key, str):
            if self._pretty:
                self._parts.append(self._indent)
            self._parts.append(self._quote(key))
        elif self._strict:
            self._parts.append(self._quote(_Writer().write(key)))
        else:
            self._value(key)


def _struct_members(value: msgspec.Struct) -> dict[str, Any]:
    members = {}
    for attribute, name in _members(type(value)):
        member = getattr(value, attribute)
        if member is not None:
            members[name] = member
    return members


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, Enum):
        return f'"{value.name}"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_double(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def java_double(value: float) -> str:
    """``Double.toString``: always a point, an exponent below 1e-3 and from 1e7 on; no infinities in JSON."""
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)) if "e" not in repr(value) else f"{value:f}"
    digits, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            digits, _, exponent = text.partition("e")
            break
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b"}
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_SPECIAL_OR_WIDE = re.compile("[^ !#-\\[\\]-~]")


def _quote(text: str) -> str:
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _quote_ascii(text: str) -> str:
    return f'"{_SPECIAL_OR_WIDE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if short := _ESCAPES.get(character):
        return short
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
