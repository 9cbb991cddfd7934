"""Bodies to objects: opt-in decoding for handlers. Bytes are the default everywhere."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec

Decoder = Callable[[bytes], Any]


def decoder_for(target: Any) -> Decoder:
    """How a body becomes ``target``.

    ``str`` decodes UTF-8, ``dict`` or ``list`` JSON; a dataclass, TypedDict or msgspec Struct is filled from
    JSON, a pydantic model validates itself; any other function is called with the bytes.

    >>> decoder_for(dict)(b'{"a": 1}')
    {'a': 1}
    """
    if target is str:
        return bytes.decode
    if target in (dict, list):
        return json.loads
    validate = getattr(target, "model_validate_json", None)
    if validate is not None:
        decode: Decoder = validate
        return decode
    if dataclasses.is_dataclass(target) or (isinstance(target, type) and issubclass(target, msgspec.Struct)):
        return msgspec.json.Decoder(target).decode
    if isinstance(target, type) and hasattr(target, "__annotations__") and issubclass(target, dict):
        return msgspec.json.Decoder(target).decode
    if callable(target):
        call: Decoder = target
        return call
    raise TypeError(f"decode={target!r} is neither a type nor a function of bytes")
