"""Output of the commands for people: tables that fit the terminal, facts, JSON, watching, progress.

Verbs return one of the values here; ``show`` writes it. Nothing else prints.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TextIO

ELLIPSIS = "…"
COLUMN_WIDTH_MIN = 6
GAP = "  "
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
BAR_WIDTH = 30
REDRAW_INTERVAL_S = 0.1


@dataclass(slots=True)
class Listing:
    """Rows of a table; the keys of the first row are the columns unless named. In JSON: a list of objects."""

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[str] = ()
    title: str = ""
    empty: str = "nothing found"

    def names(self) -> Sequence[str]:
        return self.columns or (list(self.rows[0]) if self.rows else [])


@dataclass(slots=True)
class Facts:
    """Names and values of one thing. In JSON: an object."""

    values: Mapping[str, Any]
    title: str = ""


@dataclass(slots=True)
class Report:
    """Several parts under each other. In JSON: an object with the parts by name."""

    parts: Mapping[str, Listing | Facts]


@dataclass(slots=True)
class Done:
    """A change that was made: a sentence. In JSON: the data."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


Output = Listing | Facts | Report | Done


def show(output: Output, *, as_json: bool, stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    if as_json:
        json.dump(plain(output), stream, ensure_ascii=False, indent=2, default=str)
        stream.write("\n")
        return
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    for line in lines(output, width):
        stream.write(line + "\n")


def plain(output: Output) -> Any:
    """The output as JSON knows it."""
    if isinstance(output, Listing):
        return [dict(row) for row in output.rows]
    if isinstance(output, Facts):
        return dict(output.values)
    if isinstance(output, Report):
        return {name: plain(part) for name, part in output.parts.items()}
    return {"result": output.text, **output.data}


def lines(output: Output, width: int | None) -> list[str]:
    """The output as lines of text, no longer than ``width`` if there is one."""
    if isinstance(output, Done):
        return [output.text]
    if isinstance(output, Report):
        parts = [[*_title(name), *lines(part, width)] for name, part in output.parts.items()]
        return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]
    if isinstance(output, Facts):
        widest = max((len(name) for name in output.values), default=0)
        body = [f"{name:<{widest}}  {text_of(value)}" for name, value in output.values.items()]
        return [*_title(output.title), *(_cut(line, width) for line in body)]
    if not output.rows:
        return [*_title(output.title), output.empty]
    return [*_title(output.title), *table(output.names(), output.rows, width)]


def _title(text: str) -> list[str]:
    return [text] if text else []


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    """A table. Numbers stand right; the widest columns are cut until everything fits."""
    cells = [[text_of(row.get(name)) for name in columns] for row in rows]
    right = [all(_is_number(row.get(name)) for row in rows) for name in columns]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(columns)]
    if width is not None:
        widths = fit(widths, width)
    head = [name.upper() for name in columns]
    made = []
    for line in [head, *cells]:
        parts = [
            _cut(cell, size).rjust(size) if to_right else _cut(cell, size).ljust(size)
            for cell, size, to_right in zip(line, widths, right, strict=True)
        ]
        made.append(GAP.join(parts).rstrip())
    return made


def fit(widths: Sequence[int], width: int) -> list[int]:
    """Column widths that fit a line: the widest gives first.

    >>> fit([10, 40, 5], 40)
    [10, 21, 5]
    """
    sizes = list(widths)
    room = width - len(GAP) * (len(sizes) - 1)
    while sum(sizes) > room and max(sizes) > COLUMN_WIDTH_MIN:
        widest = sizes.index(max(sizes))
        others = max((size for at, size in enumerate(sizes) if at != widest), default=COLUMN_WIDTH_MIN)
        over = sum(sizes) - room
        floor = max(COLUMN_WIDTH_MIN, min(others, sizes[widest] - 1))
        sizes[widest] = max(floor, sizes[widest] - over)
    return sizes


def _cut(text: str, width: int | None) -> str:
    if width is None or len(text) <= width:
        return text
    return text[: max(0, width - 1)] + ELLIPSIS


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def text_of(value: object) -> str:
    if value is None:
        return "-"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value))
    return str(value).replace("\n", " ")


def moment(timestamp_ms: int) -> str | None:
    """Local time of a timestamp, None for none."""
    if timestamp_ms <= 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(sep=" ", timespec="milliseconds")


def body_text(body: bytes, limit: int | None = None) -> str:
    """A body for people: text if it is text, else hex."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "0x" + body.hex()
    return text if limit is None or len(text) <= limit else text[: limit - 1] + ELLIPSIS


def clear(stream: TextIO) -> None:
    if stream.isatty():
        stream.write(CLEAR_SCREEN)


class Progress:
    """A bar on the terminal, nothing elsewhere. ``total`` 0: only a count."""

    def __init__(self, label: str, total: int = 0, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._stream = stream or sys.stderr
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self.count = 0

    def advance(self, count: int = 1) -> None:
        self.count += count
        now = time.monotonic()
        if now - self._drawn_at >= REDRAW_INTERVAL_S and self._stream.isatty():
            self._drawn_at = now
            self._stream.write("\r" + self.line(now - self._began))
            self._stream.flush()

    def line(self, elapsed_s: float) -> str:
        rate = self.count / elapsed_s if elapsed_s > 0 else 0.0
        if not self._total:
            return f"{self._label} {self.count:,} ({rate:,.0f}/s)"
        share = min(1.0, self.count / self._total)
        filled = round(share * BAR_WIDTH)
        bar = "█" * filled + "·" * (BAR_WIDTH - filled)
        left_s = (self._total - self.count) / rate if rate else 0.0
        return f"{self._label} {bar} {share:4.0%} {self.count:,}/{self._total:,} {rate:,.0f}/s {left_s:3.0f} s left"

    def close(self) -> None:
        if self._stream.isatty() and self._drawn_at:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
