"""What a broker has written to its configuration files."""

from __future__ import annotations

import re
from pathlib import Path


def saved_offsets(store: Path, topic: str, group: str) -> list[int]:
    """The offsets of a group by queue. The file has bare integers as keys, which is no JSON."""
    file = store / "config" / "consumerOffset.json"
    text = file.read_text() if file.exists() else ""
    table = re.search(rf'"{topic}@{group}"\s*:\s*\{{([^}}]*)\}}', text)
    return [int(value) for value in re.findall(r":\s*(\d+)", table.group(1))] if table else []
