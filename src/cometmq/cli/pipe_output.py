"""What a pipe command writes: lines for people, or with ``--json`` results for scripts, and the lines on stderr.

A result is one JSON object on one line of stdout: one at the end of a run, with ``--every`` one for each round.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any


class PipeOutput:
    """Lines and results of one command."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def line(self, text: str) -> None:
        print(text, file=sys.stderr if self._as_json else sys.stdout, flush=True)

    def result(self, value: dict[str, Any]) -> None:
        if self._as_json:
            print(json.dumps(value, ensure_ascii=False, default=_plain), flush=True)


def _plain(value: object) -> str:
    """Spark gives times without a zone, in that of the driver: say it, or nobody knows which moment it was."""
    return value.astimezone().isoformat() if isinstance(value, datetime) else str(value)
