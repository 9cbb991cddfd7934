"""Every example in docs/client is run: Python blocks of a page one after the other, console lines, whole test files."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cometmq.cli.main import main
from cometmq.testing import LocalBroker

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "client"
PAGES = sorted(DOCS.rglob("*.md"))
PAGE_SECONDS_MAX = 60
_FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = "127.0.0.1:9876"

pytest_plugins = ["pytester"]


class Block(NamedTuple):
    language: str
    mark: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text[: found.start()].count("\n") + 2)
        for found in _FENCE.finditer(text)
    ]


def pages_with(language: str, mark: str = "") -> list[Path]:
    return [page for page in PAGES if any(b.language == language and b.mark == mark for b in blocks(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_examples_run(page: Path, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_servers)
    monkeypatch.delenv("COMETMQ_REQUEST_TIMEOUT", raising=False)
    asyncio.run(asyncio.wait_for(run_page(page, broker), PAGE_SECONDS_MAX))
    monkeypatch.delenv("COMETMQ_REQUEST_TIMEOUT", raising=False)


async def run_page(page: Path, broker: LocalBroker) -> None:
    module = types.ModuleType("docs_page")  # dataclasses look their module up
    sys.modules["docs_page"] = module
    names: dict[str, Any] = module.__dict__
    for block in blocks(page):
        if block.language != "python" or block.mark:
            continue
        text = block.text.replace(_ADDRESS, broker.name_servers)
        tree = ast.parse(text, str(page))
        ast.increment_lineno(tree, block.line - 1)
        code = compile(tree, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


@pytest.mark.parametrize("page", pages_with("python", "test"), ids=name_of)
def test_test_examples_run(page: Path, pytester: pytest.Pytester) -> None:
    for number, block in enumerate(blocks(page)):
        if block.mark == "test":
            pytester.makepyfile(**{f"test_example_{number}": block.text})
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    assert result.ret == 0, result.stdout.str()


@pytest.mark.parametrize("page", pages_with("console"), ids=name_of)
def test_console_examples_run(
    page: Path, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_servers)
    asyncio.run(asyncio.wait_for(run_page(page, broker), PAGE_SECONDS_MAX))
    for block in blocks(page):
        if block.language != "console":
            continue
        for line in block.text.splitlines():
            words = shlex.split(line.removeprefix("$ ").replace(_ADDRESS, broker.name_servers))
            if words[0] == "export":
                continue
            assert words[0] == "cometmq", line
            code = main(words[1:])
            assert code == 0, f"{line}: {capsys.readouterr().err}"


def test_the_reference_is_made_from_the_docstrings() -> None:
    script = ROOT / "scripts" / "make_client_reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "run scripts/make_client_reference.py"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    for page in PAGES:
        if page.name != "index.md":
            assert str(page.relative_to(DOCS)) in index


def test_every_test_named_in_the_complaints_exists() -> None:
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for named in re.findall(r"`(test_\w+\.py)`", (DOCS / "complaints.md").read_text("utf-8")):
        assert named in tests, named


@pytest.mark.parametrize("module", ["cometmq", "cometmq.sync", "cometmq.testing"])
def test_everything_public_says_what_it_does(module: str) -> None:
    public = importlib.import_module(module)
    named = {name: getattr(public, name) for name in public.__all__}
    silent = [name for name, thing in named.items() if inspect.isroutine(thing) and not inspect.getdoc(thing)]
    for name, thing in named.items():
        if inspect.isclass(thing):
            silent += [f"{name}.{member}" for member in vars_of(thing) if not doc_of(thing, member)]
    assert silent == []


def vars_of(cls: type) -> list[str]:
    """Public methods and properties, inherited ones included."""
    found = [(name, inspect.getattr_static(cls, name)) for name in dir(cls) if not name.startswith("_")]
    ours = (property, classmethod, staticmethod, types.FunctionType)
    return [name for name, member in found if isinstance(member, ours)]


def doc_of(cls: type, member: str) -> str | None:
    return inspect.getdoc(inspect.getattr_static(cls, member)) or inspect.getdoc(getattr(cls, member))
