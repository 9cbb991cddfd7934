"""Small text files that must survive a crash: written beside, synced, then renamed.

The old one stays as ``.bak``. Blocking; called in a thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from cometmq.directories import sync_directory

BACKUP_SUFFIX = ".bak"


def write_with_backup(path: str, text: str) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if target.exists():
        # A copy, not a rename: at no moment is there no file under the real name.
        backup = target.with_name(target.name + BACKUP_SUFFIX)
        backup_temporary = target.with_name(target.name + BACKUP_SUFFIX + ".tmp")
        backup_temporary.write_bytes(target.read_bytes())
        os.replace(backup_temporary, backup)
    os.replace(temporary, target)
    sync_directory(target.parent)


def read_with_backup(path: str) -> list[tuple[str, bytes]]:
    """``(name, content)`` of the file and its backup, those that exist and are not empty, best first."""
    found = []
    for name in (path, path + BACKUP_SUFFIX):
        try:
            content = Path(name).read_bytes()
        except FileNotFoundError:
            continue
        if content.strip():
            found.append((name, content))
    return found
