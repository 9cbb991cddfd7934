"""Base of all JSON bodies.

Reading is tolerant as Java's is: unknown members are passed over, null is the same as missing, numbers may
be text, an enumeration may be given by its ordinal, keys of maps may be bare numbers or objects, and
``{"$ref":...}`` stands for an object that occurs elsewhere. Text that needs none of this (nearly all) goes
through msgspec in one step.

Writing gives Java's text: members in alphabetical order, None left out, no blanks.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Self, Union, get_args, get_origin

import msgspec

from cometmq.errors import RemoteProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.command import Buffer
from cometmq.protocol.message import MessageQueue


def one_of(*names: str) -> Any:
    """Annotation of a text that is a Java enumeration: its names by ordinal."""
    return msgspec.Meta(extra={"names": names})


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """A body, or an object inside one."""

    def encode(self) -> bytes:
        """The text Java writes."""
        return json_java.dumps(self).encode()

    @classmethod
    def decode(cls, data: Buffer | str) -> Self:
        """Read what Java, Go or we wrote."""
        if not data:
            raise RemoteProtocolError(f"The body {cls.__name__} is empty, but it should be a JSON object.")
        if isinstance(data, str):
            data = data.encode("utf-8", "replace")
        if b'"$ref"' not in bytes(data):
            try:
                body: Self = _decoder(cls).decode(data)
                return body
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass  # not strict JSON, or not of the plain types: the slow way
        return cls.from_json(json_java.loads(data))

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Make a body of what :func:`json_java.loads` gives."""
        try:
            plain = _plain(json_java.resolve_references(value), cls)
            return msgspec.convert(plain, cls, strict=False, str_keys=True)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RemoteProtocolError(f"The body {cls.__name__} cannot be read: {error}.") from error


@cache
def _decoder(kind: type[Body]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _plain(value: Any, kind: Any) -> Any:
    """The value without what Java tolerates and msgspec does not: nulls, ordinals, keys that are objects."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _name(value, kind)
    if origin in (Union, types.UnionType):
        return _plain(value, next(member for member in get_args(kind) if member is not type(None)))
    if isinstance(value, dict):
        if origin is dict:
            key_kind, value_kind = get_args(kind)
            return {_key(key, key_kind): _plain(item, value_kind) for key, item in value.items()}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return _members(value, kind)
    elif isinstance(value, list) and origin in (list, set):
        (item_kind,) = get_args(kind)
        return [_plain(item, item_kind) for item in value]
    return value


def _members(value: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    kinds = _kinds(kind)
    return {
        name: _plain(member, kinds[name])
        for name, member in value.items()
        if member is not None and name in kinds
    }


@cache
def _kinds(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _name(value: Any, kind: Any) -> Any:
    base, meta = get_args(kind)
    names = (meta.extra or {}).get("names")
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return _plain(value, base)


def _key(key: Any, kind: Any) -> Any:
    if kind is MessageQueue and isinstance(key, str):
        return msgspec.convert(json_java.loads(key), MessageQueue, strict=False)
    return key
