"""The JSON files under ``config/``: loading with the ``.bak`` fallback, saving so that no crash leaves a
store without.

The broker of Java saves in the order tmp, bak, delete, rename; between the last two only ``X.json.bak`` and
``X.json.tmp`` exist. Loading therefore tries ``X.json`` and then ``X.json.bak``. Our own saving leaves both
names in place at every moment: the old content is linked to ``.bak`` by one rename, the new one replaces
``X.json`` by another, and both are synced before they get their names.

Making the text is the caller's job, on the thread that owns the table; ``JsonFile.save`` may run in any
thread. ``DirtySaver`` puts the two together for a table that changes often, ``EntryTexts`` makes rendering it
cheap.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from cometmq.clock import Clock, now_ms
from cometmq.errors import ProtocolError, StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

# Runs a function in a thread of the caller's choice, e.g. ``executor.submit``.
Submit = Callable[[Callable[[], None]], Any]

SAVE_INTERVAL_MS = 200


# A string, or the opening of an entry whose key is a number without quotes, as Java writes Map<Integer, ...>.
_STRING_OR_BARE_KEY = re.compile(rb'"(?:[^"\\]|\\.)*+"|([{,]\s*+)(-?\d++)(?=\s*+:)', re.DOTALL)
_BARE_KEY = re.compile(rb"[{,]\s*+-?\d++\s*+:")


def strict_json(data: bytes) -> bytes:
    """Quotes around bare integer keys. Much faster than the reader for all of fastjson's freedoms."""
    if not _BARE_KEY.search(data):
        return data
    return _STRING_OR_BARE_KEY.sub(
        lambda match: match[0] if match[2] is None else match[1] + b'"' + match[2] + b'"', data
    )


class JsonFile:
    """One config file with its ``.bak``. ``load`` before the first ``save``."""

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self.path = path
        self.synced = synced  # False: it survives the process, perhaps not the machine
        self.backup_path = path.with_name(path.name + ".bak")
        self._lock = threading.Lock()
        # Until the file itself was read or written by us, it may be the damaged one: it must not replace a
        # good .bak.
        self._readable = False

    def load(self, parse: Callable[[bytes], T]) -> T | None:
        """The parsed file, else the parsed ``.bak``, else None. What ``parse`` raises means bad text.

        ``parse`` gets strict JSON: the bare integer keys of Java's files come with quotes.
        """
        try:
            value = self._parse(self.path, parse)
            if value is not None:
                self._readable = True
                return value
        except StoreError as error:
            log.warning("%s Trying %s.", error, self.backup_path.name)
        return self._parse(self.backup_path, parse)

    def save(self, text: str) -> None:
        """Replace the file and sync; any thread, one at a time."""
        with self._lock:
            try:
                self._replace(text.encode("utf-8", "replace"))
            except OSError as error:
                raise StoreError(
                    f"The config file {self.path} cannot be written ({error.strerror}): "
                    "make its directory writable and free some space; the previous content is still there."
                ) from error

    def _parse(self, path: Path, parse: Callable[[bytes], T]) -> T | None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"The config file {path} cannot be read ({error.strerror}).") from error
        if not data.strip():
            return None
        try:
            return parse(strict_json(data))
        except (ValueError, TypeError, LookupError, AttributeError, ProtocolError) as error:
            raise StoreError(
                f"The config file {path} cannot be understood ({str(error).rstrip('.')}): repair it, or remove "
                f"{self.path.name} and {self.backup_path.name} to start from defaults."
            ) from error

    def _replace(self, data: bytes) -> None:
        temporary = self.path.with_name(self.path.name + ".tmp")
        self._make_directory()
        _write(temporary, data, synced=self.synced)
        if self._readable:
            self._keep_backup()
        os.replace(temporary, self.path)
        if self.synced:
            _sync_directory(self.path.parent)
        self._readable = True

    def _make_directory(self) -> None:
        directory = self.path.parent
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            if self.synced:
                _sync_directory(directory.parent)  # else the directory might go, and the file with it

    def _keep_backup(self) -> None:
        staged = self.backup_path.with_name(self.backup_path.name + ".tmp")
        staged.unlink(missing_ok=True)
        try:
            os.link(self.path, staged)
        except FileNotFoundError:
            return  # someone removed the file; the old .bak is the better one then
        except OSError:  # a file system without hard links
            shutil.copyfile(self.path, staged)
        os.replace(staged, self.backup_path)


class DirtySaver:
    """Saves a table some time after it changed: many changes, one write; the last change always gets written.

    ``mark`` and ``tick`` belong to the thread that owns the table; ``render`` runs there, the write in
    ``submit``'s thread. The owner calls ``tick`` a few times a second (or after ``interval_ms``) and
    ``close`` at the end.
    """

    def __init__(
        self,
        file: JsonFile,
        render: Callable[[], str],
        *,
        submit: Submit,
        interval_ms: int = SAVE_INTERVAL_MS,
        now_ms: Clock = now_ms,
    ) -> None:
        self.file = file
        self.interval_ms = interval_ms
        self.error_count = 0
        self.save_count = 0
        self._render = render
        self._submit = submit
        self._now_ms = now_ms
        self._dirty = False
        self._failing = False
        self._idle = threading.Event()
        self._idle.set()
        self._saved_at_ms = -interval_ms

    @property
    def dirty(self) -> bool:
        """A change is not yet on its way to the disk."""
        return self._dirty

    def mark(self) -> None:
        """The table changed. The first change after a pause is saved at once, the following ones together."""
        self._dirty = True
        self.tick()

    def tick(self) -> None:
        if not self._dirty or not self._idle.is_set():
            return
        now = self._now_ms()
        if 0 <= now - self._saved_at_ms < self.interval_ms:
            return
        self._saved_at_ms = now
        self._dirty = False
        text = self._render()
        self._idle.clear()
        self._submit(lambda: self._save(text))

    def close(self, timeout_s: float = 30.0) -> None:
        """Wait for a running save, then write what is left in this thread. Raises StoreError."""
        if not self._idle.wait(timeout_s):
            raise StoreError(
                f"The config file {self.file.path} is still being written after {timeout_s:g} s."
            )
        if self._dirty:
            self._dirty = False
            self.file.save(self._render())
            self.save_count += 1

    def _save(self, text: str) -> None:
        try:
            self.file.save(text)
            self.save_count += 1
            self._failing = False
        except StoreError as error:
            self.error_count += 1
            self._dirty = True  # tried again at the next tick
            if not self._failing:
                log.error("%s", error)
            self._failing = True
        finally:
            self._idle.set()


class EntryTexts(Generic[K, V]):
    """Rendered entries of a table whose values are replaced, never changed: only new values are rendered
    again.

    With 10,000 topics this turns the text for a changed entry from tens of milliseconds into a join.
    """

    def __init__(self, render_entry: Callable[[K, V], str]) -> None:
        self._render_entry = render_entry
        self._texts: dict[K, tuple[V, str]] = {}

    def texts(self, items: Iterable[tuple[K, V]]) -> list[str]:
        """One text per item, in order; forgets entries that are gone."""
        old, new = self._texts, {}
        for key, value in items:
            known = old.get(key)
            if known is None or known[0] is not value:
                known = (value, self._render_entry(key, value))
            new[key] = known
        self._texts = new
        return [text for _value, text in new.values()]


def _write(path: Path, data: bytes, *, synced: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if synced:
            os.fsync(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot; the rename itself is done
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
