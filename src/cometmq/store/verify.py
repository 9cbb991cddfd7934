"""Is a store sound? Every record with its CRC, the queues and the index against the log.

Theory of operation. Queues and index follow from the log in one way only, so they are made again and
compared: the dispatcher that fills the queues of a broker runs over the good records and fills
`ExpectedQueue`s in memory. After each stretch of log what they got is compared with the files and forgotten,
so memory stays small. Keys for the index arrive in the order of the log, like the entries of the index files;
the two are merged.

What a start of the broker repairs by itself (queues behind the log, a torn tail after a crash) is a note,
everything else an error. On the store of a running broker only what was there at the beginning counts. Reads
only.
"""

from __future__ import annotations

import enum
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.errors import CometMQError, StoreError
from cometmq.protocol import json_java
from cometmq.store.checkpoint import Checkpoint
from cometmq.store.index_cy import rebuild_slots
from cometmq.store.index_file import IndexHeader, IndexShape
from cometmq.store.inspect import queue_range, read_entry
from cometmq.store.json_files import JsonFile
from cometmq.store.log_walk import Piece, log_end, walk_log
from cometmq.store.queue_scan_cy import ENTRY_SIZE
from cometmq.store.read_only import Segment, StoreFiles, Stream
from cometmq.store.verify_index import IndexMerge
from cometmq.store.verify_queues import ExpectedQueues

FINDINGS_MAX = 1000  # more of them tell nobody anything new

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Severity(enum.Enum):
    ERROR = "error"
    NOTE = "note"  # a start of the broker puts it right, or it is no harm


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    path: str
    offset: int | None  # physical offset or position in the file, as the text says
    text: str

    def __str__(self) -> str:
        where = self.path if self.offset is None else f"{self.path} at {self.offset}"
        return f"{where}: {self.text}"


@dataclass(slots=True)
class VerifyReport:
    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0  # findings beyond FINDINGS_MAX
    record_count: int = 0
    log_size: int = 0  # bytes of good records
    queue_count: int = 0
    entry_count: int = 0
    key_count: int = 0
    error_count: int = 0

    @property
    def sound(self) -> bool:
        return self.error_count == 0

    def add(self, severity: Severity, path: Path | str, offset: int | None, text: str) -> None:
        self.error_count += severity is Severity.ERROR
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(severity, str(path), offset, text))
        else:
            self.left_out += 1


def verify(root: Path, commit_log_dir: Path | None = None, progress: Progress | None = None) -> VerifyReport:
    """Look at everything. Raises StoreError only if the directory is no store at all."""
    return Verification(StoreFiles(root, commit_log_dir), progress or (lambda _done, _total: None)).run()


class Verification:
    """One run over one store."""

    def __init__(self, files: StoreFiles, progress: Progress) -> None:
        self.files = files
        self.report = VerifyReport(queue_count=len(files.queues))
        self._progress = progress
        self._live = files.lock_holder is not None
        # What a running broker is about to write, or what the next start will cut or add.
        self._tail_severity = Severity.NOTE if self._live or files.aborted else Severity.ERROR
        # The log first: what a running broker writes after this moment is left out everywhere.
        self._log_end = log_end(files.log)[0]
        self._queue_ends = {name: self._queue_end(stream) for name, stream in files.queues.items()}

    def run(self) -> VerifyReport:
        self._check_directories()
        self._check_small_files()
        index = IndexMerge(self._sound_index_files(), self.files.log.start, self._log_end, self._note_index)
        queues = ExpectedQueues(self.files, self._queue_ends, index, self._note_queue)
        self._walk(queues)
        queues.finish(self._tail_severity is Severity.NOTE)
        index.finish()
        if index.goes_on_at is not None and not self._live:
            path, offset = index.goes_on_at
            self.report.add(Severity.NOTE, path, offset, "the index goes on behind the end of the log")
        self.report.record_count = queues.record_count
        self.report.entry_count, self.report.key_count = queues.entry_count, index.key_count
        return self.report

    # The log

    def _walk(self, queues: ExpectedQueues) -> None:
        total = sum(segment.size for segment in self.files.log.segments)
        for piece in walk_log(self.files.log, check_crc=True):
            if self._live and piece.physical_offset >= self._log_end:
                break
            if piece.reason:
                self._note_damage(piece)
            else:
                end = min(piece.end, self._log_end - piece.segment.start)
                self.report.log_size += end - piece.start
                queues.dispatch_piece(piece, end)
            self._progress(piece.physical_end - self.files.log.start, total)
        self._progress(total, total)

    def _note_damage(self, piece: Piece) -> None:
        tail = piece.to_end_of_file and piece.physical_offset >= self._log_end
        severity = self._tail_severity if tail else Severity.ERROR
        behind = (
            "nothing good follows, the next start cuts the log here"
            if tail
            else f"good records go on at {piece.physical_end}"
        )
        text = f"the record at this physical offset is damaged ({piece.reason}); {behind}"
        self.report.add(severity, piece.segment.path, piece.physical_offset, text)

    # Queues and index

    def _queue_end(self, stream: Stream) -> int:
        """Next queue offset; without entries that a running broker made after we began."""
        end = queue_range(stream, self.files.log.start)[1]
        while self._live and (entry := read_entry(stream, end - 1)) is not None:
            if entry.physical_offset < self._log_end:
                break
            end -= 1
        stream.let_go()
        return end

    def _note_queue(self, repaired: bool, path: Path | str, offset: int | None, text: str) -> None:
        self.report.add(Severity.NOTE if repaired else Severity.ERROR, path, offset, text)

    def _note_index(self, harmless: bool, path: Path | str, offset: int | None, text: str) -> None:
        self.report.add(Severity.NOTE if harmless else Severity.ERROR, path, offset, text)

    def _sound_index_files(self) -> Iterator[tuple[Segment, IndexShape]]:
        """Index files whose structure is right; the others are noted here."""
        shape = self.files.index_shape()
        for segment in self.files.index:
            if shape is None:
                self._add_error(segment.path, "slots and entries cannot be told apart: delete the file")
            elif segment.size != shape.file_size:
                text = f"has {segment.size} bytes, the others {shape.file_size}: delete it (messages stay)"
                self._add_error(segment.path, text)
            elif self._chains_are_right(segment, shape):
                yield segment, shape

    def _chains_are_right(self, segment: Segment, shape: IndexShape) -> bool:
        header = IndexHeader.parse(segment.view())
        if header.index_count > shape.index_count_max:
            text = (
                f"the header counts {header.index_count} entries, there is room for {shape.index_count_max}"
            )
            self._add_error(segment.path, text)
            return False
        if self._live and segment is self.files.index[-1]:
            return True  # being written
        if not _same_chains(segment, shape, header):
            self._add_error(
                segment.path, "slots and chains do not fit the entries: delete the file (messages stay)"
            )
        return True

    # Everything else

    def _check_directories(self) -> None:
        for stream in [self.files.log, *self.files.queues.values(), *self.files.exts.values()]:
            for path, text in stream.problems:
                self._add_error(path, text)
        if (dledger := sorted(self.files.root.glob("dledger-*"))) and dledger[0].is_dir():
            self.report.add(Severity.NOTE, dledger[0], None, "a DLedger log; it was not looked at")

    def _check_small_files(self) -> None:
        try:
            Checkpoint.load(self.files.root / "checkpoint")
        except StoreError as error:
            self._add_error(self.files.root / "checkpoint", str(error))
        for path in sorted({_json_path(path) for path in (self.files.root / "config").glob("*.json*")}):
            try:
                JsonFile(path).load(json_java.loads)
            except CometMQError as error:
                self._add_error(path, str(error))

    def _add_error(self, path: Path, text: str) -> None:
        self.report.add(Severity.ERROR, path, None, text)


def _json_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".tmp").removesuffix(".bak"))


def _same_chains(segment: Segment, shape: IndexShape, header: IndexHeader) -> bool:
    """Make slots and chains anew in a private copy of the mapping and compare."""
    with segment.path.open("rb") as file:
        copy = memoryview(mmap.mmap(file.fileno(), segment.size, access=mmap.ACCESS_COPY))
    used_slots = rebuild_slots(copy, shape.hash_slot_count, shape.index_count_max, header.index_count)
    end = shape.entries_at + ENTRY_SIZE * header.index_count
    same = copy[40:end] == segment.view()[40:end]
    return same and (header.index_count == 1 or used_slots == header.hash_slot_count)
