"""What the demo shows: sentences, tables, and charts of one line a moment. Colour and blocks on a terminal only."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import TextIO

BAR_WIDTH = 14
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLOURS = {"bold": "1", "green": "32", "yellow": "33", "cyan": "36", "red": "31"}


def bar(value: float, full: float, width: int = BAR_WIDTH, *, blocks: bool = False) -> str:
    """A bar of ``width`` characters at ``full``; a plus at its end says that it is longer.

    >>> bar(5, 10, 8), bar(20, 10, 8)
    ('####    ', '#######+')
    """
    if value > full:
        return ("█" if blocks else "#") * (width - 1) + "+"
    eighths = round(value / full * width * 8)
    if not blocks:
        return ("#" * math.ceil(eighths / 8)).ljust(width)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def milliseconds(value: float) -> str:
    """
    >>> milliseconds(53.4), milliseconds(1999.9), milliseconds(math.nan)
    ('53 ms', '2000 ms', '-')
    """
    return "-" if math.isnan(value) else f"{value:.0f} ms"


class Screen:
    def __init__(self, out: TextIO | None = None, *, fancy: bool | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self.fancy = self._is_fancy() if fancy is None else fancy

    def _is_fancy(self) -> bool:
        encoding = (getattr(self._out, "encoding", None) or "").lower().replace("-", "")
        return self._out.isatty() and "NO_COLOR" not in os.environ and encoding == "utf8"

    def say(self, line: str = "") -> None:
        self._out.write(line.rstrip() + "\n")
        self._out.flush()

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.fancy else text

    def title(self, text: str) -> None:
        self.say()
        self.say(self.paint(text, "bold"))

    def event(self, text: str) -> None:
        """Something that happens in the middle of a chart."""
        self.say("  " + self.paint(f"--- {text}", "red"))

    def bar(self, value: float, full: float, colour: str) -> str:
        return self.paint(bar(value, full, blocks=self.fancy), colour)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Numbers to the right, the first column to the left."""
        texts = [[str(cell) for cell in row] for row in (head, *rows)]
        widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
        for row in texts:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            self.say("  " + "   ".join(cells))
