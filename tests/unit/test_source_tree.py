"""House rules that are worth a test: imports point one way, names are honest, the compiled list is complete."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cometmq"
FILES = sorted(SOURCE.rglob("*.py"))
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "bench").rglob("*.md")),
]

# What each package may import of the others. Modules at the top level (errors, clock, ...) are open to all.
MAY_IMPORT = {
    "protocol": set(),
    "store": {"protocol"},
    "net": {"protocol"},
    "controller": {"protocol", "net"},
    "nameserver": {"protocol", "net", "metrics", "controller"},
    "metrics": {"protocol", "net", "store", "broker", "nameserver", "controller"},
    "broker": {"protocol", "net", "store", "metrics", "controller"},
    "client": {"protocol", "net"},
    "admin": {"protocol", "net", "client", "controller"},
    "sync": {"protocol", "net", "client", "admin"},
    "spark": {"protocol", "client", "admin", "store"},
    "demo": {"protocol", "client", "admin", "spark"},
    "testing": {"protocol", "net", "store", "broker", "nameserver", "client", "admin", "sync", "controller"},
    "cli": {
        "protocol",
        "net",
        "store",
        "broker",
        "nameserver",
        "client",
        "admin",
        "sync",
        "testing",
        "metrics",
        "spark",
        "controller",
        "demo",
    },
}
# The public Client hands out its admin functions; it imports them when asked.
EXCEPTIONS = {("client/client.py", "admin")}
BANNED_IN_PROTOCOL = {"asyncio", "socket", "time", "threading", "os"}
BANNED_NAMES = ("Impl", "Default", "Abstract", "Utils", "Util", "Helper", "Manager")


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            if node.module == "cometmq":
                names |= {f"cometmq.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    package = package_of(path)
    if package not in MAY_IMPORT:
        return
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "cometmq" and len(parts) > 1 and parts[1] in MAY_IMPORT and parts[1] != package:
            allowed = (
                parts[1] in MAY_IMPORT[package] or (str(path.relative_to(SOURCE)), parts[1]) in EXCEPTIONS
            )
            assert allowed, f"{package} imports {name}"


@pytest.mark.parametrize("path", sorted((SOURCE / "protocol").rglob("*.py")), ids=lambda path: path.name)
def test_protocol_has_no_clock_and_no_socket(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports_of(path)}
    assert not roots & BANNED_IN_PROTOCOL


def test_store_knows_no_network() -> None:
    for path in (SOURCE / "store").rglob("*.py"):
        assert not {name.split(".")[0] for name in imports_of(path)} & {"asyncio", "socket", "uvloop"}, path


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert not tree.body or ast.get_docstring(tree), "a module begins with a sentence about itself"


def test_class_names_are_nouns_of_the_field() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                assert not node.name.startswith(BANNED_NAMES), f"{path}: {node.name}"
                assert not node.name.endswith(BANNED_NAMES), f"{path}: {node.name}"


def test_no_function_is_a_stub() -> None:
    """Methods that a subclass must give may raise NotImplementedError; functions have no such excuse."""
    for path in FILES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert "raise NotImplementedError" not in ast.unparse(node), f"{path}: {node.name}"


def test_type_checker_knows_all_compiled_modules() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = {name for entry in settings["tool"]["mypy"]["overrides"] for name in entry["module"]}
    compiled = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in SOURCE.rglob("*_cy.py")
    }
    assert compiled <= listed


def test_command_line_starts_without_the_heavy_parts() -> None:
    code = "import sys; import cometmq.cli.main; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(loaded) & {
        "pyspark",
        "yaml",
        "cryptography",
        "cometmq.broker.broker",
        "cometmq.client.client",
    }


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their bare names."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_resolve(path: Path) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)", path.read_text("utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:3]) for name in pages] == list(range(1, len(pages) + 1))
    index = (folder / "README.md").read_text("utf-8")
    assert [name for name in pages if f"({name})" not in index] == []


def test_comments_name_no_text_that_is_not_here() -> None:
    """A reader cannot open what is not in the repository."""
    known = {path.name for path in DOCUMENTS}
    for path in FILES:
        for name in re.findall(r"\b[\w-]+\.md\b", path.read_text("utf-8")):
            assert name in known, f"{path}: {name}"


def test_the_architecture_page_names_every_folder_and_only_files_that_exist() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    folders = {path.parent for path in FILES if path.name == "__init__.py"} - {SOURCE}
    assert [str(folder) for folder in sorted(folders) if f"{folder.name}/" not in page] == []
    for named in re.findall(r"`([\w/]+\.py)`", page):
        assert list(ROOT.rglob(f"src/cometmq/**/{named}")) or (ROOT / named).exists(), named
