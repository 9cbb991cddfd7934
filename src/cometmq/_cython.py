"""Stand-in for the ``cython`` module, so that ``*_cy.py`` files run without Cython installed.

Only what those files use at import time is here: type names, decorators that return what they get, and
``compiled = False``. ``prefer_source()`` makes the import system pass over the compiled twins.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

compiled = False


class _CType:
    """A C type name in an annotation: indexing and calling give something harmless."""

    def __class_getitem__(cls, _item: Any) -> type[_CType]:
        return cls

    def __new__(cls, value: Any = 0) -> Any:
        return value


bint = char = uchar = short = ushort = int = uint = long = ulong = longlong = ulonglong = _CType
Py_ssize_t = size_t = double = float = void = object = p_char = p_uchar = p_void = p_int = p_longlong = _CType


def _same(target: Any) -> Any:
    return target


def _decorator(*_args: Any, **_kwargs: Any) -> Callable[[Any], Any]:
    return _same


cclass = cfunc = ccall = inline = final = nogil = _same
locals = returns = exceptval = boundscheck = wraparound = cdivision = freelist = no_gc = _decorator
overflowcheck = initializedcheck = nonecheck = infer_types = _decorator


def declare(_type: Any = None, value: Any = None, **_kwargs: Any) -> Any:
    return value


def cast(_type: Any, value: Any, **_kwargs: Any) -> Any:
    return value


def pointer(_type: Any) -> Any:
    return _CType


def address(value: Any) -> Any:
    return value


class _SourceTwins:
    """Meta path finder that loads ``*_cy`` modules of this package from their source files."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> Any:
        if not (name.startswith("cometmq.") and name.endswith("_cy") and path):
            return None
        source = importlib.machinery.FileFinder(
            path[0], (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        )
        return source.find_spec(name)


def prefer_source() -> None:
    """From now on import the uncompiled twins (set COMETMQ_PURE=1 to have it from the start)."""
    if _SourceTwins not in sys.meta_path:
        sys.meta_path.insert(0, _SourceTwins)


if os.environ.get("COMETMQ_PURE") == "1":
    prefer_source()
