"""The files of an archive: names that say which messages are inside, manifests, and the proof that nothing is missing.

::

    topic=<topic>/date=<yyyy-mm-dd>/<broker>-<queue>-<start>-<end>-<batch>.parquet   offsets [start, end)
    _batches/<batch>.json     the files of a finished batch; a batch with a manifest is never written again
    _staging/                 files of unfinished batches
    _checkpoint/              Spark's

Any tool reads the files. Touches the file system only.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from cometmq.errors import StoreError

MANIFESTS = "_batches"
STAGING = "_staging"
CHECKPOINT = "_checkpoint"
_NAME = re.compile(r"(?P<broker>.+)-(?P<queue>\d+)-(?P<start>\d+)-(?P<end>\d+)-(?P<batch>\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file: messages [start, end) of a queue, those of one day."""

    topic: str
    date: str
    broker: str
    queue_id: int
    start: int
    end: int
    rows: int
    size: int
    staged: str = ""

    def path(self, batch_id: int) -> str:
        """Relative to the archive. The broker's name is quoted, so the dashes can be counted from the end."""
        name = f"{quote(self.broker, safe='')}-{self.queue_id}-{self.start}-{self.end}-{batch_id}.parquet"
        return f"topic={quote(self.topic, safe='')}/date={self.date}/{name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    batch_id: int
    query_id: str
    files: list[ArchiveFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def manifest_path(root: Path, batch_id: int) -> Path:
    return root / MANIFESTS / f"{batch_id}.json"


def read_manifest(root: Path, batch_id: int) -> Manifest | None:
    path = manifest_path(root, batch_id)
    if not path.exists():
        return None
    value = json.loads(path.read_text("utf-8"))
    return Manifest(value["batch_id"], value["query_id"], [ArchiveFile(**file) for file in value["files"]])


def publish(root: Path, manifest: Manifest) -> None:
    """Move staged files to their places, then write the manifest: from then on the batch is done."""
    remove_unfinished(root, manifest.batch_id)
    for file in manifest.files:
        target = root / file.path(manifest.batch_id)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file.staged, target)
    path = manifest_path(root, manifest.batch_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    with fresh.open("w", encoding="utf-8") as out:
        json.dump(asdict(manifest), out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, path)
    shutil.rmtree(root / STAGING / str(manifest.batch_id), ignore_errors=True)


def remove_unfinished(root: Path, batch_id: int) -> None:
    """Files of an attempt that moved some of them and died before the manifest."""
    for path in root.glob(f"topic=*/date=*/*-{batch_id}.parquet"):
        path.unlink()


def verify_archive(root: str | Path) -> list[str]:
    """Gaps, overlaps and files that no manifest knows, as sentences; an empty list proves the archive whole."""
    root = Path(root)
    if not (root / MANIFESTS).is_dir():
        raise StoreError(f"{root} is no archive: it has no directory {MANIFESTS}.")
    listed = {file.path(manifest.batch_id): file for manifest in _manifests(root) for file in manifest.files}
    present = {str(path.relative_to(root)) for path in root.glob("topic=*/date=*/*.parquet")}
    problems = [f"{path} is missing" for path in sorted(set(listed) - present)]
    problems += [f"{path} is in no manifest" for path in sorted(present - set(listed))]
    return problems + _range_problems(present)


def _manifests(root: Path) -> Iterable[Manifest]:
    for path in (root / MANIFESTS).glob("[0-9]*.json"):
        manifest = read_manifest(root, int(path.stem))
        assert manifest is not None
        yield manifest


def _range_problems(paths: Iterable[str]) -> list[str]:
    """From names alone: the ranges of a queue must join without gap or overlap."""
    ranges: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for path in paths:
        found = _NAME.fullmatch(Path(path).name)
        if found:
            topic = unquote(path.split("/")[0].removeprefix("topic="))
            key = (topic, unquote(found["broker"]), int(found["queue"]))
            ranges[key].append((int(found["start"]), int(found["end"])))
    problems: list[str] = []
    for (topic, broker, queue_id), pieces in sorted(ranges.items()):
        pieces.sort()
        for (_, end), (start, _) in itertools.pairwise(pieces):
            if start != end:
                what = "are missing" if start > end else "are there twice"
                low, high = sorted((start, end))
                problems.append(f"offsets [{low}, {high}) of {topic}/{broker}/{queue_id} {what}")
    return problems
