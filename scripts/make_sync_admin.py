"""Write src/cometmq/sync/admin.py from the asyncio admin: same methods, same annotations, no ``async``.

python scripts/make_sync_admin.py          write the file
python scripts/make_sync_admin.py --check  fail if it is not up to date (a test does so)
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "cometmq"
NOUNS = ("base", "topics", "groups", "offsets", "messages", "brokers", "replicas", "accounts")
TARGET = ROOT / "sync" / "admin.py"

HEAD = '''"""Blocking admin. Made by scripts/make_sync_admin.py from the files in cometmq/admin: do not edit."""

from __future__ import annotations

{imports}
from cometmq.admin.admin import Admin as AsyncAdmin
from cometmq.client.loop_thread import LoopThread


class Admin:
    """As ``cometmq.Admin``, blocking."""

    def __init__(self, thread: LoopThread, inner: AsyncAdmin) -> None:
        self._thread = thread
        self._inner = inner
'''


def methods(tree: ast.Module) -> list[ast.AsyncFunctionDef]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found = [node for one in classes for node in one.body if isinstance(node, ast.AsyncFunctionDef)]
    return [node for node in found if not node.name.startswith("_")]


def call_of(node: ast.AsyncFunctionDef) -> str:
    """The arguments as they are passed on."""
    spec = node.args
    passed = [one.arg for one in spec.args[1:]]
    passed += [f"{one.arg}={one.arg}" for one in spec.kwonlyargs]
    if spec.kwarg is not None:
        passed.append(f"**{spec.kwarg.arg}")
    return ", ".join(passed)


def method_text(node: ast.AsyncFunctionDef) -> str:
    summary = (ast.get_docstring(node) or "").splitlines()
    plain = ast.FunctionDef(node.name, node.args, [], [], node.returns)
    signature = ast.unparse(ast.fix_missing_locations(plain)).strip()
    lines = [f"    {signature}"]
    if summary:
        lines.append(f'        """{summary[0]}"""')
    call = f"self._thread.run(self._inner.{node.name}({call_of(node)}))"
    nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
    lines.append(f"        {call}" if nothing else f"        return {call}")
    return "\n".join(lines)


def names_in(nodes: list[ast.AsyncFunctionDef]) -> set[str]:
    parts: list[ast.AST] = []
    for node in nodes:
        parts += [one for one in (node.args, node.returns) if one is not None]
    return {name.id for part in parts for name in ast.walk(part) if isinstance(name, ast.Name)}


def imports_for(tree: ast.Module, wanted: set[str], module: str) -> dict[str, set[str]]:
    """Module to names: what the annotations need, from where the file itself has it."""
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name in wanted:
                    found.setdefault(node.module, set()).add(alias.name)
        elif isinstance(node, ast.ClassDef) and node.name in wanted:
            found.setdefault(module, set()).add(node.name)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in wanted:
                    found.setdefault(module, set()).add(target.id)
    return found


def source() -> str:
    imports: dict[str, set[str]] = {}
    texts: list[str] = []
    for noun in NOUNS:
        tree = ast.parse((ROOT / "admin" / f"{noun}.py").read_text())
        nodes = methods(tree)
        texts += [method_text(node) for node in nodes]
        for module, names in imports_for(tree, names_in(nodes), f"cometmq.admin.{noun}").items():
            imports.setdefault(module, set()).update(names)
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items())]
    return HEAD.format(imports="\n".join(lines)) + "\n" + "\n\n".join(texts) + "\n"


def formatted(text: str) -> str:
    import subprocess

    ruff = [sys.executable, "-m", "ruff"]
    for arguments in (["check", "-q", "--fix", "--select", "I,F401", "-"], ["format", "-q", "-"]):
        done = subprocess.run(
            [*ruff, *arguments, "--stdin-filename", str(TARGET)], input=text, capture_output=True, text=True
        )
        text = done.stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say whether it is up to date")
    check = parser.parse_args().check
    text = formatted(source())
    if check:
        return 0 if TARGET.read_text() == text else 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
