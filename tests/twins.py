"""Load a ``*_cy`` module from its source (``py``) or its compiled form (``c``), whatever else is imported.

In a test file::

    from twins import twins

    record_cy = twins("cometmq.protocol.record_cy")   # a fixture; every test that takes it runs twice

A compiled twin that is missing or older than its source skips the test; with COMETMQ_REQUIRE_EXT=1 it fails.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCES = Path(__file__).parent.parent / "src"


def twins(name: str) -> Any:
    """A fixture that gives the module ``name`` as source and as compiled twin."""

    @pytest.fixture(params=["py", "c"])
    def twin(request: pytest.FixtureRequest) -> ModuleType:
        return load_twin(name, request.param)

    return twin


@cache
def load_twin(name: str, kind: str) -> ModuleType:
    """The twin ``py`` or ``c`` of a module, apart from whichever one is imported normally."""
    if kind == "py":
        return _load(name, source_path(name))
    path = compiled_path(name)
    if path is None:
        problem = f"{name} is not compiled, or its source is newer; run: make ext"
        if os.environ.get("COMETMQ_REQUIRE_EXT") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    imported = sys.modules.get(name) or importlib.import_module(name)
    # An extension module cannot be loaded twice in one process, so the imported one is used if it is compiled.
    return imported if imported.__file__ == str(path) else _load(name, path)


def source_path(name: str) -> Path:
    return SOURCES.joinpath(*name.split(".")).with_suffix(".py")


def compiled_path(name: str) -> Path | None:
    """The extension module beside the source, None if there is none or the source is newer."""
    source = source_path(name)
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = source.with_name(source.stem + suffix)
        if path.exists() and path.stat().st_mtime >= source.stat().st_mtime:
            return path
    return None


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
