"""Base of the typed headers: how ext fields become values and values become ext fields.

A header is a Struct whose fields carry their wire names. Java's rules hold: None is left out, booleans are ``true`` and
anything else is false, numbers are decimal text. A required field that is missing or not readable raises BadHeader; an
optional one then has its default.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, Self, Union, get_args, get_origin

import msgspec

from cometmq.errors import RemoteProtocolError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Fields = Mapping[str, str]


class BadHeader(RemoteProtocolError):
    """A required ext field is missing or cannot be read."""

    def __init__(self, field: str, value: str | None = None) -> None:
        self.field = field
        self.value = value
        what = "is missing" if value is None else f"has the value {value[:64]!r}, which cannot be read"
        super().__init__(f"The required field {field} of the request {what}.")


class Header(msgspec.Struct, kw_only=True):
    """Base of all headers."""

    @classmethod
    def decode(cls, ext_fields: Fields | None) -> Self:
        """Read the ext fields of a command; those of other names are passed over.

        msgspec reads what is in order (and, unlike Java, whole numbers written as 1.0); the rest is looked at field
        by field.
        """
        fields = ext_fields or {}
        try:
            header = msgspec.convert(fields, cls, strict=False)
        except msgspec.ValidationError:
            return cls(**_read(_plan(cls), fields))
        for attribute, name in _switches(cls):
            if fields.get(name) == "1":  # true for msgspec, not for Java
                setattr(header, attribute, False)
        return header

    def encode(self) -> dict[str, str]:
        """The ext fields of a command."""
        names, values_of = _writer(type(self))
        return {
            name: value if type(value) is str else _text_of(value)
            for name, value in zip(names, values_of(self), strict=True)
            if value is not None
        }


class _Field(NamedTuple):
    attribute: str
    name: str
    read: Callable[[str], Any]
    required: bool


@cache
def _plan(kind: type[Header]) -> list[_Field]:
    return [
        _Field(field.name, field.encode_name, _reader(field.type), field.required)
        for field in msgspec.structs.fields(kind)
    ]


@cache
def _switches(kind: type[Header]) -> list[tuple[str, str]]:
    """Attribute and wire name of the boolean fields."""
    return [(field.attribute, field.name) for field in _plan(kind) if field.read is _read_bool]


@cache
def _writer(kind: type[Header]) -> tuple[list[str], Callable[[Header], Iterable[Any]]]:
    """The wire names, and a function that gives the values of a header in the same order."""
    plan = _plan(kind)
    attributes = [field.attribute for field in plan]
    if len(attributes) > 1:
        return [field.name for field in plan], attrgetter(*attributes)
    return [field.name for field in plan], lambda header: [getattr(header, name) for name in attributes]


def _read(plan: list[_Field], ext_fields: Fields) -> dict[str, Any]:
    values = {}
    for attribute, name, read, required in plan:
        text = ext_fields.get(name)
        if text is None:
            if required:
                raise BadHeader(name)
            continue
        try:
            values[attribute] = read(text)
        except ValueError:
            if required:
                raise BadHeader(name, text) from None
    return values


_DECIMAL = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def _read_int(text: str, bits: int) -> int:
    """A decimal number as Java reads it: a sign is allowed, blanks and underscores are not."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _read_int32(text: str) -> int:
    return _read_int(text, 32)


def _read_int64(text: str) -> int:
    return _read_int(text, 64)


def _read_bool(text: str) -> bool:
    return text.lower() == "true"


def _reader(kind: Any) -> Callable[[str], Any]:
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(member for member in get_args(kind) if member is not type(None))
    if kind == Int32:
        return _read_int32
    if kind == Int64:
        return _read_int64
    if kind is bool:
        return _read_bool
    assert kind is str, kind
    return str


def _text_of(value: Any) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
