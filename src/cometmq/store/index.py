"""The hash index by key: all files of ``index/``.

Writing (``put``), ``expire`` and the truncations belong to the loop thread; ``query`` and ``flush`` may run
in any thread.
"""

from __future__ import annotations

import array
import contextlib
import datetime
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cometmq.clock import Clock, now_ms
from cometmq.errors import StoreError
from cometmq.store.file_ops import FileOps
from cometmq.store.index_cy import HEADER_SIZE, IndexEnd, count_trusted, fold_hash, text_hash, walk_chain
from cometmq.store.index_file import IndexFile, IndexHeader, IndexShape, Submit, in_thread

Accept = Callable[[int], bool]

CHAIN_STEPS_MAX = 4096  # entries looked at per compiled call of a query
MAPPED_FILES_MAX = 16  # old files kept mapped for queries


class IndexResult(NamedTuple):
    offsets: list[int]  # ascending
    last_update_timestamp_ms: int
    last_update_physical_offset: int


class Index(IndexEnd):
    """All index files of a store."""

    def __init__(
        self,
        directory: Path,
        *,
        hash_slot_count: int,
        index_count_max: int,
        submit: Submit | None = in_thread,
        now_ms: Clock = now_ms,
    ) -> None:
        super().__init__()
        self.directory = directory
        self.shape = IndexShape(hash_slot_count, index_count_max)
        self._submit = submit
        self._now_ms = now_ms
        self._paths: list[Path] = []
        self._headers: dict[Path, IndexHeader] = {}  # of all files but the current one
        self._current: IndexFile | None = None
        self._unsynced: list[IndexFile] = []  # full files that flush() still has to sync
        self._maps: OrderedDict[Path, memoryview] = OrderedDict()
        self._lock = threading.Lock()  # guards the lists above against query() and flush() in other threads
        self._has_new_name = False  # a file or the directory was made since the last flush
        self._synced_ms = 0
        self._synced_count = 0  # of the current file
        self._indexed_to = 0

    @property
    def indexed_to(self) -> int:
        """Records below this physical offset are indexed; put() passes over them when it gets them again."""
        return self.writer.indexed_to if self.writer is not None else self._indexed_to

    @property
    def paths(self) -> list[Path]:
        return list(self._paths)

    # Life

    def load(self) -> None:
        """Open the newest file, read the headers of the others. Raises StoreError."""
        if self.directory.exists() and not self.directory.is_dir():
            raise StoreError(f"{self.directory} is not a directory: move it away, the index is made anew.")
        self._paths = sorted(path for path in self._listing() if path.name.isdigit())
        for path in [path for path in self._paths if path.stat().st_size == 0]:
            path.unlink()  # caught by a crash between its creation and its first byte
            self._paths.remove(path)
        for path in self._paths:
            self._check_length(path)
        for path in self._paths[:-1]:
            with path.open("rb") as file:
                self._headers[path] = IndexHeader.parse(file.read(HEADER_SIZE))
        if self._paths:
            self._set_current(self._open(self._paths[-1]))
            self._note_end()

    def close(self) -> None:
        """Sync the files and let go of them."""
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of everything without syncing."""
        with self._lock:
            for file in [*self._unsynced, self._current]:
                if file is not None:
                    file.close()
            self._set_current(None)
            self._unsynced.clear()
            self._maps.clear()

    def destroy(self) -> None:
        """Delete all files."""
        paths, self._paths = self._paths, []
        self.abandon()
        self._headers.clear()
        self._indexed_to = 0
        _unlink_all(paths)

    # Recovery

    def recover(self, trusted_ms: int) -> int:
        """After a crash: drop what was not synced for certain, i.e. what is younger than the checkpoint says.

        The original deletes such files whole and with them keys of messages that recovery does not visit
        again. Here entries that are surely older stay. Returns the physical offset from which on records must
        be dispatched again.
        """
        while self._current is not None:
            header = self._current.header
            if header.index_count > 1 and header.end_timestamp_ms <= trusted_ms:
                break
            keep = self._count_before(self._current, trusted_ms)
            if keep > 1:
                self._current.keep(keep)
                break
            self._drop_newest()
        self._note_end()
        return self.indexed_to

    def truncate(self, physical_offset: int) -> None:
        """Forget the keys of all records at or behind this offset (the log was cut there)."""
        while self._current is not None and self._current.header.end_physical_offset >= physical_offset:
            if self._current.header.begin_physical_offset < physical_offset:
                first = self._current.first_entry(lambda offset, _seconds: offset >= physical_offset)
                self._current.keep(first)
                break
            self._drop_newest()
        self._note_end()

    # Writing

    def put_key(self, topic: str, key: str, physical_offset: int, store_timestamp_ms: int) -> None:
        one = memoryview(array.array("q", (key_hash(topic, key), physical_offset, store_timestamp_ms)))
        self.put(one, 1)

    # Reading; any thread

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, accept: Accept | None = None
    ) -> IndexResult:
        """The newest ``max_count`` records with this key and a time in [begin_ms, end_ms], as far as
        ``accept`` agrees.

        The index knows a hash and a time rounded down to seconds: ``accept(physical_offset)`` should look at
        the record's topic, keys and store time. Without it candidates are returned as they are.
        """
        wanted = key_hash(topic, key)
        offsets: list[int] = []
        with self._lock:
            paths = list(self._paths)
        last = self._header(paths[-1]) if paths else None
        for path in reversed(paths):
            header = self._header(path)
            if header is None or header.index_count <= 1 or header.begin_timestamp_ms > end_ms:
                continue
            if header.end_timestamp_ms + 999 < begin_ms:
                break
            self._query_file(path, wanted, max_count, begin_ms, end_ms, accept, offsets)
            if len(offsets) >= max_count or header.begin_timestamp_ms < begin_ms:
                break
        if last is None:
            return IndexResult(sorted(offsets), 0, 0)
        return IndexResult(sorted(offsets), last.end_timestamp_ms, last.end_physical_offset)

    # Care

    def flush(self) -> int:
        """Sync (any thread); the store time up to which the index is on disk, for the checkpoint."""
        with self._lock:
            full, current = list(self._unsynced), self._current
            renamed, self._has_new_name = self._has_new_name, False
        if renamed:
            for directory in (self.directory, self.directory.parent):
                with contextlib.suppress(FileNotFoundError):  # removed by hand: it is made anew
                    FileOps().sync_directory(directory)
        for file in full:
            synced_ms = file.header.end_timestamp_ms
            file.flush()
            file.close()
            with self._lock:
                self._unsynced.remove(file)
            self._synced_ms = synced_ms
        if current is not None and current.header.index_count != self._synced_count:
            header = current.header
            current.flush()
            self._synced_count = header.index_count
            # Later keys may carry the same millisecond, so only what lies before it is complete.
            self._synced_ms = max(self._synced_ms, header.end_timestamp_ms - 1)
        return self._synced_ms

    def expire(self, min_physical_offset: int) -> int:
        """Delete files whose records have all left the log, never the newest; how many."""
        removed = []
        for path in self._paths[:-1]:
            if self._headers[path].end_physical_offset >= min_physical_offset:
                break
            removed.append(path)
        with self._lock:
            del self._paths[: len(removed)]
            for path in removed:
                del self._headers[path]
                self._maps.pop(path, None)
        if removed:
            self._run(lambda: _unlink_all(removed))
        return len(removed)

    # Inside

    def _listing(self) -> list[Path]:
        return list(self.directory.iterdir()) if self.directory.is_dir() else []

    def _check_length(self, path: Path) -> None:
        size = path.stat().st_size
        if size != self.shape.file_size:
            raise StoreError(
                f"The index file {path} has {size} bytes instead of {self.shape.file_size} (maxHashSlotNum "
                f"{self.shape.hash_slot_count}, maxIndexNum {self.shape.index_count_max}): delete it "
                "(messages stay, only their lookup by key is lost) or set the two options back."
            )

    def _open(self, path: Path) -> IndexFile:
        try:
            return IndexFile(path, self.shape, self._submit)
        except OSError as error:
            raise StoreError(
                f"The index file {path} cannot be opened ({error.strerror}): "
                "it must be writable and its disk must have room for it."
            ) from error

    def _rotate(self) -> IndexFile:
        old = self._current
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self._open(self.directory / self._new_name())
        with self._lock:
            if old is not None:
                header = old.header
                new.begin_at(header.end_timestamp_ms, header.end_physical_offset)
                self._headers[old.path] = header
                self._unsynced.append(old)
            self._paths.append(new.path)
            self._has_new_name = True
            self._set_current(new)
        return new

    def _set_current(self, file: IndexFile | None) -> None:
        indexed_to = self.indexed_to
        self._current = file
        self._synced_count = 0
        self._indexed_to = indexed_to
        self.writer = file.writer if file is not None else None
        if self.writer is not None:
            self.writer.indexed_to = indexed_to

    def make_room(self) -> None:
        file = self._current
        try:
            if file is None or not file.extend():
                file = self._rotate()
                file.extend()
        except OSError as error:
            where = file.path if file is not None else self.directory
            raise StoreError(
                f"The index {where} cannot grow ({error.strerror}): free some space on its disk."
            ) from error

    def _new_name(self) -> str:
        """Local time; later than the newest name even if the clock was set back: names give the order."""
        moment = datetime.datetime.fromtimestamp(self._now_ms() / 1000)
        name = _file_name(moment)
        if self._paths and name <= self._paths[-1].name:
            newest = self._paths[-1].name
            with contextlib.suppress(ValueError):
                moment = datetime.datetime.strptime(newest + "000", "%Y%m%d%H%M%S%f")
            name = _file_name(moment + datetime.timedelta(milliseconds=1))
        return name

    def _drop_newest(self) -> None:
        assert self._current is not None
        self._current.close()
        self._paths.pop().unlink(missing_ok=True)
        self._set_current(self._open(self._paths[-1]) if self._paths else None)
        if self._paths:
            del self._headers[self._paths[-1]]

    def _note_end(self) -> None:
        self._indexed_to = 0
        if self._current is not None:
            self._current.writer.indexed_to = self._current.header.end_physical_offset + 1

    @staticmethod
    def _count_before(file: IndexFile, trusted_ms: int) -> int:
        """Number of the first entry that may be as young as ``trusted_ms``, at the start of a record."""
        first = count_trusted(file.view, *file.shape, file.header.index_count, trusted_ms)
        while 1 < first < file.header.index_count and file.entry(first - 1)[0] == file.entry(first)[0]:
            first -= 1
        return first

    def _header(self, path: Path) -> IndexHeader | None:
        current = self._current
        if current is not None and current.path == path:
            return current.header
        return self._headers.get(path)

    def _view(self, path: Path) -> memoryview | None:
        """Mapping of a file, None if it was deleted meanwhile."""
        with self._lock:
            current = self._current
            if current is not None and current.path == path:
                return current.view
            if path in self._maps:
                self._maps.move_to_end(path)
                return self._maps[path]
            try:
                with path.open("rb") as file:
                    view = memoryview(mmap.mmap(file.fileno(), self.shape.file_size, access=mmap.ACCESS_READ))
            except (OSError, ValueError):
                return None
            self._maps[path] = view
            while len(self._maps) > MAPPED_FILES_MAX:
                self._maps.popitem(last=False)
            return view

    def _query_file(
        self,
        path: Path,
        wanted: int,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        accept: Accept | None,
        offsets: list[int],
    ) -> None:
        view = self._view(path)
        if view is None:
            return
        slots, entries = self.shape
        found = memoryview(array.array("q", bytes(8 * 64)))
        entry = 0
        while len(offsets) < max_count:
            count, entry = walk_chain(
                view, slots, entries, wanted, entry, begin_ms, end_ms, found, CHAIN_STEPS_MAX
            )
            for offset in found[:count]:
                # A key that stands twice in one message has two entries.
                if len(offsets) < max_count and offset not in offsets and (accept is None or accept(offset)):
                    offsets.append(offset)
            if entry == 0:
                return

    def _run(self, job: Callable[[], None]) -> None:
        if self._submit is None:
            job()
        else:
            self._submit(job)


def key_hash(topic: str, key: str) -> int:
    """What the index knows of a key."""
    return fold_hash(text_hash(0, f"{topic}#{key}"))


def _file_name(moment: datetime.datetime) -> str:
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"


def _unlink_all(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
