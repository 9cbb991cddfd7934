"""A store directory as somebody finds it: which files there are, of what sizes, opened for reading only.

For inspect, verify and dump. Nothing here writes, locks or creates a file, so it may look at the store of a
running broker. File sizes are taken from the directory itself: options like mappedFileSizeCommitLog need not
be known.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.errors import StoreError
from cometmq.store.file_ops import FILE_NAME_DIGITS
from cometmq.store.index_file import IndexHeader, IndexShape
from cometmq.store.lock_file import lock_holder
from cometmq.store.queue_scan_cy import ENTRY_SIZE

DEFAULT_INDEX_SHAPE = IndexShape(5_000_000, 20_000_000)
_INDEX_HEADER_SIZE = 40


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a stream; ``start`` is the stream position of its first byte."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size

    def map(self) -> mmap.mmap | None:
        """The content; None if the file was deleted meanwhile (retention of a running broker)."""
        try:
            with self.path.open("rb") as file:
                return mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StoreError(f"The file {self.path} cannot be read ({error}).") from error

    def view(self) -> memoryview:
        """The content, empty if the file was deleted meanwhile."""
        return memoryview(self.map() or b"")


@dataclass(slots=True)
class Stream:
    """The files of one directory that continue each other (commit log, a queue, its extension)."""

    directory: Path
    segments: list[Segment] = field(default_factory=list)
    file_size: int = 0
    problems: list[tuple[Path, str]] = field(default_factory=list)  # what a broker would refuse to load
    _mapped: tuple[Segment, memoryview] | None = None  # the file looked at last

    @property
    def start(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else 0

    @property
    def disk_size(self) -> int:
        """Bytes that the files occupy; sparse files less than they are long."""
        return sum(_blocks(segment.path) for segment in self.segments)

    def at(self, position: int) -> Segment | None:
        found = (segment for segment in self.segments if segment.start <= position < segment.end)
        return next(found, None)

    def view(self, segment: Segment) -> memoryview:
        """Content of one of the files; its mapping is kept until another one is asked for, or let_go()."""
        if self._mapped is None or self._mapped[0] is not segment:
            self._mapped = (segment, segment.view())
        return self._mapped[1]

    def let_go(self) -> None:
        """Each mapping costs a descriptor: with thousands of queues they must not stay open."""
        self._mapped = None


@dataclass(frozen=True, slots=True)
class QueueName:
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class StoreFiles:
    """Everything under one storePathRootDir. Raises StoreError if that is no store."""

    def __init__(self, root: Path, commit_log_dir: Path | None = None) -> None:
        self.root = root
        self.log_dir = commit_log_dir or root / "commitlog"
        self._check_root()
        self.log = read_stream(self.log_dir)
        self.queues = self._queues("consumequeue")
        self.exts = self._queues("consumequeue_ext")
        self.index = self._index_files()

    @property
    def aborted(self) -> bool:
        """The abort file is there: a broker runs on this store, or crashed."""
        return (self.root / "abort").exists()

    @property
    def lock_holder(self) -> int | None:
        return lock_holder(self.root / "lock")

    @property
    def config_paths(self) -> list[Path]:
        return sorted((self.root / "config").glob("*.json"))

    def index_shape(self) -> IndexShape | None:
        """Slots and entries of the index files, which only the content tells; None if it does not."""
        sizes = Counter(segment.size for segment in self.index)
        if not sizes:
            return None
        size = sizes.most_common(1)[0][0]
        return next((shape for shape in self._shapes(size) if self._fits(shape)), None)

    def _check_root(self) -> None:
        if not self.root.exists():
            raise StoreError(f"The store {self.root} does not exist: give the storePathRootDir of a broker.")
        if not self.root.is_dir():
            raise StoreError(
                f"The store {self.root} is not a directory: give the storePathRootDir of a broker."
            )
        if self.root.name == "commitlog" and not self.log_dir.exists():
            raise StoreError(f"{self.root} is a commit log: give the directory above, {self.root.parent}.")
        if not self.log_dir.exists():
            raise StoreError(
                f"{self.root} has no commit log ({self.log_dir} is missing): give the storePathRootDir of a "
                "broker, or the commit log's own place with --commitlog."
            )
        if not self.log_dir.is_dir():
            raise StoreError(
                f"The commit log {self.log_dir} is a file: move it away, it must be a directory."
            )

    def _queues(self, name: str) -> dict[QueueName, Stream]:
        found: dict[QueueName, Stream] = {}
        for topic in _directories(self.root / name):
            for queue in _directories(topic):
                if queue.name.isdecimal():
                    found[QueueName(topic.name, int(queue.name))] = read_stream(queue)
        return dict(sorted(found.items(), key=lambda item: (item[0].topic, item[0].queue_id)))

    def _index_files(self) -> list[Segment]:
        directory = self.root / "index"
        if not directory.is_dir():
            return []
        names = sorted(name for name in os.listdir(directory) if name.isdecimal())
        paths = [directory / name for name in names]
        return [Segment(path, int(path.name), path.stat().st_size) for path in paths]

    def _shapes(self, size: int) -> Iterator[IndexShape]:
        """Shapes that a file of this size may have, the likeliest first."""
        headers = [self._index_header(segment) for segment in self.index if segment.size == size]
        # A file that has a successor is full: its count is the number of entries.
        counts = [header.index_count for header in headers[:-1]]
        rest = size - _INDEX_HEADER_SIZE
        for entries in [DEFAULT_INDEX_SHAPE.index_count_max, *counts, rest // 84 * 4]:
            slots = (rest - entries * ENTRY_SIZE) // 4
            if slots > 0 and IndexShape(slots, entries).file_size == size:
                yield IndexShape(slots, entries)
        yield from self._shapes_by_last_entry(size)

    def _shapes_by_last_entry(self, size: int) -> Iterator[IndexShape]:
        """The last entry holds the offset of the header's end: where it stands gives the number of slots."""
        for segment in self.index:
            header = self._index_header(segment)
            if segment.size != size or header.index_count < 2:
                continue
            data = bytes(segment.view())  # only odd sizes come here, and those are small
            wanted = header.end_physical_offset.to_bytes(8, "big")
            found = data.find(wanted, _INDEX_HEADER_SIZE)
            while found >= 0:
                slots, odd = divmod(found - 4 - _INDEX_HEADER_SIZE - ENTRY_SIZE * (header.index_count - 1), 4)
                entries, left = divmod(size - _INDEX_HEADER_SIZE - 4 * slots, ENTRY_SIZE)
                if slots > 0 and not odd and not left and entries >= header.index_count:
                    yield IndexShape(slots, entries)
                found = data.find(wanted, found + 1)
            return

    def _index_header(self, segment: Segment) -> IndexHeader:
        with segment.path.open("rb") as file:
            data = file.read(_INDEX_HEADER_SIZE)
        return IndexHeader.parse(data.ljust(_INDEX_HEADER_SIZE, b"\0"))

    def _fits(self, shape: IndexShape) -> bool:
        """Do first and last entry of every file hold what its header says?"""
        return all(
            index_file_fits(segment, shape) for segment in self.index if segment.size == shape.file_size
        )


def index_file_fits(segment: Segment, shape: IndexShape) -> bool:
    view = segment.view()
    header = IndexHeader.parse(view)
    if header.index_count == 1:
        return True
    if header.index_count > shape.index_count_max:
        return False
    first, last = (shape.entries_at + ENTRY_SIZE * number + 4 for number in (1, header.index_count - 1))
    offsets = int.from_bytes(view[first : first + 8], "big"), int.from_bytes(view[last : last + 8], "big")
    return offsets == (header.begin_physical_offset, header.end_physical_offset)


def read_stream(directory: Path) -> Stream:
    """The files of a directory; what does not belong there is listed among the problems."""
    stream = Stream(directory)
    found: list[Segment] = []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        path = Path(entry.path)
        if len(entry.name) != FILE_NAME_DIGITS or not entry.name.isdecimal() or not entry.is_file():
            stream.problems.append((path, "does not belong here: move it out of the directory"))
            continue
        found.append(Segment(path, int(entry.name), entry.stat().st_size))
    stream.file_size = _file_size(found)
    expected_start = found[0].start if found else 0
    for segment in found:
        problem = _problem_of(segment, stream.file_size, expected_start)
        expected_start = segment.start + stream.file_size
        if problem:
            stream.problems.append((segment.path, problem))
        if segment.size == stream.file_size:
            stream.segments.append(segment)
    return stream


def _problem_of(segment: Segment, size: int, expected_start: int) -> str:
    if segment.size != size:
        return f"has {segment.size} bytes, the others {size}: restore it from a copy, or move it away"
    if size and segment.start % size:
        return f"does not begin at a multiple of the file size {size}: its name or its length is wrong"
    if segment.start != expected_start:
        return f"does not follow its predecessor, which ends at {expected_start}: files between are missing"
    return ""


def _file_size(segments: list[Segment]) -> int:
    """The size that the names speak for (file k begins at k times the size), else the most frequent one."""
    starts = [segment.start for segment in segments]
    steps = Counter(after - before for before, after in itertools.pairwise(starts))
    sizes = Counter(segment.size for segment in segments if segment.size)
    for size, _count in sizes.most_common():
        if not steps or size in steps:
            return size
    return sizes.most_common(1)[0][0] if sizes else 0


def _directories(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(Path(entry.path) for entry in os.scandir(path) if entry.is_dir())


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
