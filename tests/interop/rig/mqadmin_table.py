"""The table of the comparison: what each mqadmin subcommand prints against ours beside the Java servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

SAME, BY_NATURE, DIFFERS = "same", "differs by nature", "differs"
HEAD = """# mqadmin 4.9.7 against our servers and against the Java servers

Made by `pytest tests/interop/test_interop_mqadmin.py --mqadmin-table`: every command line ran on both clusters with
the same content; ports, times, ids and directories were replaced before the texts were compared. Where values differ
by nature, the remaining parts (headings, names, counts) were equal.

| subcommand | command lines | result |
|---|---|---|
"""


@dataclass
class Table:
    rows: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, command: str, result: str, reason: str = "") -> None:
        self.rows.setdefault(command, []).append((result, reason))

    def text(self) -> str:
        return HEAD + "".join(self._row(command) for command in sorted(self.rows, key=str.lower))

    def write(self, path: Path) -> None:
        path.write_text(self.text())

    def _row(self, command: str) -> str:
        results = self.rows[command]
        worst = max((result for result, _ in results), key=[SAME, BY_NATURE, DIFFERS].index)
        reasons = sorted({reason for result, reason in results if result == worst and reason})
        return f"| {command} | {len(results)} | {worst}{': ' if reasons else ''}{'; '.join(reasons)} |\n"
