"""The files of an archive: names that say which messages are inside, and the notes that say which files count.

::

    topic=<topic>/date=<yyyy-mm-dd>/<broker>-<queue>-<start>-<end>-<batch>.parquet   offsets [start, end)
    _batches/<batch>.json     the files of a finished batch; a batch with a note is never written again
    _merges/<number>.json     files that one merged file replaces (archive_compact.py)
    _staging/                 files of unfinished batches
    _checkpoint/              Spark's
    _delta_log/               of the format delta: then the table says which files count (archive_delta.py)

Any tool reads the files. Touches the file system only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from cometmq.errors import ConfigError, StoreError

MANIFESTS = "_batches"
MERGES = "_merges"
STAGING = "_staging"
CHECKPOINT = "_checkpoint"
DELTA_LOG = "_delta_log"
FORMATS = ("parquet", "delta")
_NAME = re.compile(r"(?P<broker>.+)-(?P<queue>\d+)-(?P<start>\d+)-(?P<end>\d+)-(?P<origin>m?\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file: messages [start, end) of a queue, those of one day. Times are those of storing; 0 is not known.

    ``staged`` is where it was written before it got its name.
    """

    topic: str
    date: str
    broker: str
    queue_id: int
    start: int
    end: int
    rows: int
    size: int
    staged: str = ""
    first_ms: int = 0
    last_ms: int = 0

    def path(self, origin: int | str) -> str:
        """Relative to the archive. The broker's name is quoted, so the dashes can be counted from the end."""
        name = f"{quote(self.broker, safe='')}-{self.queue_id}-{self.start}-{self.end}-{origin}.parquet"
        return f"topic={quote(self.topic, safe='')}/date={self.date}/{name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished batch."""

    batch_id: int
    query_id: str
    files: list[ArchiveFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class MergeNote:
    """One file instead of several. From this note on only the merged one counts."""

    number: int
    merged: ArchiveFile
    inputs: list[str]

    @property
    def path(self) -> str:
        return self.merged.path(f"m{self.number}")


def parse_path(path: str) -> tuple[str, str, int, int, int] | None:
    """Topic, broker, queue, start and end that a path tells; None if it is no file of ours.

    >>> parse_path("topic=a%2Fb/date=2026-01-01/broker-a-3-10-20-m7.parquet")
    ('a/b', 'broker-a', 3, 10, 20)
    """
    found = _NAME.fullmatch(Path(path).name)
    if found is None:
        return None
    topic = unquote(path.split("/")[0].removeprefix("topic="))
    return topic, unquote(found["broker"]), int(found["queue"]), int(found["start"]), int(found["end"])


def format_of(root: Path) -> str | None:
    """What stands in a directory; None if there is no archive yet."""
    if (root / DELTA_LOG).is_dir():
        return "delta"
    return "parquet" if (root / MANIFESTS).is_dir() else None


def check_format(root: Path, wanted: str) -> None:
    if wanted not in FORMATS:
        raise ConfigError(f"An archive has the format parquet or delta, not {wanted!r}.")
    found = format_of(root)
    if found not in (None, wanted):
        raise ConfigError(
            f"{root} is an archive of the format {found}: say --format {found}, or take another directory."
        )


# --- notes ---


def manifest_path(root: Path, batch_id: int) -> Path:
    return root / MANIFESTS / f"{batch_id}.json"


def read_manifest(root: Path, batch_id: int) -> Manifest | None:
    path = manifest_path(root, batch_id)
    if not path.exists():
        return None
    value = json.loads(path.read_text("utf-8"))
    return Manifest(value["batch_id"], value["query_id"], [ArchiveFile(**file) for file in value["files"]])


def write_manifest(root: Path, manifest: Manifest) -> None:
    write_note(manifest_path(root, manifest.batch_id), asdict(manifest))


def write_note(path: Path, value: Any) -> None:
    """Whole or not at all, also over a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    with fresh.open("w", encoding="utf-8") as out:
        json.dump(value, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, path)


def read_merges(root: Path) -> list[MergeNote]:
    """In the order in which they were made: a merged file may be merged again."""
    notes = []
    for path in _numbered(root / MERGES):
        value = json.loads(path.read_text("utf-8"))
        notes.append(MergeNote(value["number"], ArchiveFile(**value["merged"]), value["inputs"]))
    return notes


def _numbered(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*.json"), key=lambda path: int(path.stem))


def finish_merges(root: Path) -> None:
    """Do what is noted and not done, because whoever noted it died. A note is done before the next is written."""
    for note in read_merges(root)[-1:]:
        finish_merge(root, note)


def finish_merge(root: Path, note: MergeNote) -> None:
    """Idempotent, and no harm if another process does it at the same time."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(root / note.merged.staged, root / note.path)
    for path in note.inputs:
        (root / path).unlink(missing_ok=True)


# --- batches ---


def publish(root: Path, manifest: Manifest) -> None:
    """Move staged files to their places, then write the manifest: from then on the batch is done."""
    place(root, manifest)
    write_manifest(root, manifest)
    shutil.rmtree(root / STAGING / str(manifest.batch_id), ignore_errors=True)


def place(root: Path, manifest: Manifest) -> None:
    """Move staged files to their places; what an earlier attempt had moved is removed first."""
    for path in root.glob(f"topic=*/date=*/*-{manifest.batch_id}.parquet"):
        path.unlink()
    for file in manifest.files:
        target = root / file.path(manifest.batch_id)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file.staged, target)


# --- what counts ---


def live_files(root: Path) -> dict[str, ArchiveFile]:
    """The files that count, by their paths relative to the archive. Finishes a merge that was broken off."""
    found = format_of(root)
    if found is None:
        raise StoreError(f"{root} is no archive: it has no directory {MANIFESTS}.")
    if found == "delta":
        from cometmq.spark.pipes.archive_delta import table_files

        return table_files(root)
    finish_merges(root)
    return noted_files(_manifests(root), read_merges(root))


def _manifests(root: Path) -> Iterable[Manifest]:
    for path in _numbered(root / MANIFESTS):
        manifest = read_manifest(root, int(path.stem))
        assert manifest is not None
        yield manifest


def noted_files(manifests: Iterable[Manifest], merges: Iterable[MergeNote]) -> dict[str, ArchiveFile]:
    files = {file.path(manifest.batch_id): file for manifest in manifests for file in manifest.files}
    for note in merges:
        for path in note.inputs:
            files.pop(path, None)
        files[note.path] = note.merged
    return files
