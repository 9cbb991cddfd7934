"""Compaction: the small files that an archive got in an hour become one file a queue, when the hour is over.

Theory of operation. A merged file is written into the staging directory and checked. For Parquet a note in ``_merges``
is then written: from this moment the merged file counts and its inputs do not. After that the file is moved to its
place and the inputs are deleted; whoever dies in between leaves that to the next one who asks for the files, who reads
the notes first. A Delta table swaps the files in one commit of its own. Batches that are being written are never
touched, so an archive may run meanwhile.

Readers that list the Parquet files themselves may, for the moment of a swap, see messages twice; those that ask
``live_files`` (replay, verify) never do.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cometmq.clock import Clock, now_ms
from cometmq.errors import ConfigError, StoreError
from cometmq.spark.pipes.archive_files import (
    MERGES,
    STAGING,
    ArchiveFile,
    MergeNote,
    finish_merge,
    finish_merges,
    format_of,
    live_files,
    read_merges,
    write_note,
)

HOUR_MS = 3_600_000
MERGED_SIZE_MAX = 128 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one run did."""

    merged: int = 0  # new files
    replaced: int = 0  # old ones
    rows: int = 0


def plan_merges(
    files: Mapping[str, ArchiveFile], now: int, size_max: int = MERGED_SIZE_MAX
) -> list[list[str]]:
    """Paths to be merged: neighbours of one queue and one hour that is over, together not above ``size_max``."""
    hours: dict[tuple[str, str, str, int, int], list[str]] = defaultdict(list)
    for path, file in files.items():
        if file.last_ms // HOUR_MS < now // HOUR_MS:
            key = (file.topic, file.date, file.broker, file.queue_id, file.first_ms // HOUR_MS)
            hours[key].append(path)
    merges: list[list[str]] = []
    for _, paths in sorted(hours.items()):
        merges += _runs(sorted(paths, key=lambda path: files[path].start), files, size_max)
    return [merge for merge in merges if len(merge) > 1]


def _runs(paths: list[str], files: Mapping[str, ArchiveFile], size_max: int) -> Iterator[list[str]]:
    run: list[str] = []
    size = 0
    for path in paths:
        file = files[path]
        if run and (files[run[-1]].end != file.start or size + file.size > size_max):
            yield run
            run, size = [], 0
        run.append(path)
        size += file.size
    if run:
        yield run


def compact_archive(
    root: str | Path, *, clock: Clock = now_ms, size_max: int = MERGED_SIZE_MAX
) -> Compaction:
    """Merge what can be merged now. Needs no Spark."""
    root = Path(root)
    if format_of(root) is None:
        raise StoreError(f"{root} is no archive: there is nothing to compact.")
    with _alone(root):
        finish_merges(root)
        files = live_files(root)
        numbers = itertools.count(_next_number(files, read_merges(root)))
        done = Compaction()
        for paths in plan_merges(files, clock(), size_max):
            inputs = {path: files[path] for path in paths}
            merged = merge_files(root, inputs)
            if merged is not None:
                _swap(root, MergeNote(next(numbers), merged, paths), inputs)
                done = Compaction(done.merged + 1, done.replaced + len(paths), done.rows + merged.rows)
        if format_of(root) == "delta":
            from cometmq.spark.pipes.archive_delta import vacuum

            vacuum(root)
    return done


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Two compactions at once would merge the same files twice."""
    (root / MERGES).mkdir(exist_ok=True)
    with (root / MERGES / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"Another compaction of {root} is running; wait for its end.") from None
        yield


def _next_number(files: Mapping[str, ArchiveFile], notes: list[MergeNote]) -> int:
    """Above every merge that is known; a Delta table keeps no notes, the names of its files tell."""
    origins = (Path(path).stem.rpartition("-")[2] for path in files)
    known = [int(origin[1:]) for origin in origins if origin.startswith("m")]
    return max([*known, *(note.number for note in notes)], default=-1) + 1


def merge_files(root: Path, inputs: Mapping[str, ArchiveFile]) -> ArchiveFile | None:
    """Write one staged file with the rows of all; None if their columns differ."""
    import pyarrow.parquet as parquet

    schemas = [parquet.read_schema(root / path) for path in inputs]
    if any(schema != schemas[0] for schema in schemas):
        return None
    staged = f"{STAGING}/{uuid.uuid4().hex}.parquet"
    target = root / staged
    target.parent.mkdir(exist_ok=True)
    with parquet.ParquetWriter(str(target), schemas[0], compression="zstd") as writer:
        for path in inputs:
            with parquet.ParquetFile(root / path) as source:
                for batch in source.iter_batches():
                    writer.write_batch(batch)
    _sync(target)
    found = parquet.read_metadata(target)
    return _merged(list(inputs.values()), staged, found.num_rows, target.stat().st_size)


def _merged(inputs: list[ArchiveFile], staged: str, rows: int, size: int) -> ArchiveFile:
    expected = sum(file.rows for file in inputs)
    if rows != expected:
        raise StoreError(
            f"Merging gave {rows} rows instead of {expected}; the inputs from {inputs[0]} on stay."
        )
    return replace(
        inputs[0],
        end=inputs[-1].end,
        rows=rows,
        size=size,
        staged=staged,
        first_ms=min(file.first_ms for file in inputs),
        last_ms=max(file.last_ms for file in inputs),
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(root: Path, note: MergeNote, inputs: dict[str, ArchiveFile]) -> None:
    if format_of(root) == "delta":
        from cometmq.spark.pipes.archive_delta import commit_merge

        os.replace(root / note.merged.staged, root / note.path)
        commit_merge(root, inputs, note.merged, note.path)
        return
    write_note(root / MERGES / f"{note.number}.json", asdict(note))
    finish_merge(root, note)
