"""Retention: which commit log files go, and when. Queues and index follow the log.

A round every ``cleanResourceInterval``. Files go if it is the hour (``deleteWhen``), or space is short, or
someone asked for it; the oldest first, never the last one, at most ten a round; each only when its
modification time is ``fileReservedTime`` hours ago, unless the disk is so full that the oldest must go at
once. Before a file goes, ``rescue`` may store messages in it anew that still wait (delay, transactions); the
original lets them go.

``tick`` runs on the loop thread and only takes files out of the log; a thread of the round's own deletes
them, with a pause between two, since freeing a gigabyte can keep a disk busy.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from cometmq.store.config import StoreConfig
from cometmq.store.disk import DiskLevels, DiskUsage, DiskWatch, SpaceNeed, used_percent

log = logging.getLogger(__name__)

FIRST_ROUND_DELAY_MS = 60_000
FIRST_LOOK_DELAY_MS = 1_000
LOOK_INTERVAL_MS = 10_000
FILES_PER_ROUND_MAX = 10
MANUAL_ROUNDS = 20
HOUR_MS = 3_600_000


class LogFile(Protocol):
    @property
    def path(self) -> Path | str: ...

    @property
    def start(self) -> int: ...


class FileLog(Protocol):
    """What retention needs of the commit log."""

    @property
    def files(self) -> Sequence[LogFile]: ...

    @property
    def min_offset(self) -> int: ...

    def remove_first(self) -> LogFile | None:
        """Take the oldest file out, never the last; readers that hold views keep their memory."""
        ...


# What still waits below a physical offset is stored anew; False when that is not possible now.
Rescue = Callable[[int], bool]
# Queues and index let go of what lies below a physical offset; paths of files that are to be deleted.
Follow = Callable[[int], Sequence[Path | str]]


class Retention:
    """Decides and deletes; ``disk.full`` tells whether writes are refused."""

    def __init__(
        self,
        config: StoreConfig,
        file_log: FileLog,
        follow: Follow,
        *,
        started_ms: int,
        usage: DiskUsage = used_percent,
    ) -> None:
        self._config = config
        self._log = file_log
        self._follow = follow
        self.rescue: Rescue = lambda physical_offset: True
        self._hours = delete_hours(config.delete_when)
        self.disk = DiskWatch(config.commit_log_dir, config.store_path_root_dir, levels_of(config), usage)
        self._next_round_ms = started_ms + FIRST_ROUND_DELAY_MS
        self._next_look_ms = started_ms + FIRST_LOOK_DELAY_MS
        self._manual_rounds = 0
        self._followed_offset = -1
        self._deletion: threading.Thread | None = None
        self._stopping = threading.Event()

    def tick(self, now_ms: int) -> None:
        """Do what is due; call it about every second."""
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_INTERVAL_MS
            self.disk.look()
        if now_ms >= self._next_round_ms:
            self._next_round_ms = now_ms + self._config.clean_resource_interval
            self.run_round(now_ms)

    def reconfigure(self, config: StoreConfig) -> None:
        """New hours, ages, levels and pauses count from the next round on."""
        self._config = config
        self.disk.levels = levels_of(config)
        self._hours = delete_hours(config.delete_when)

    def request_deletion(self) -> None:
        """Delete expired files in the next rounds whatever the hour (an administrator asked)."""
        self._manual_rounds = MANUAL_ROUNDS

    def run_round(self, now_ms: int) -> int:
        """One round now; how many commit log files went."""
        need = self.disk.need()
        manual = self._manual_rounds > 0
        self._manual_rounds -= manual
        removed: list[Path | str] = []
        if self._deletion is None or not self._deletion.is_alive():
            if manual or need > SpaceNeed.NONE or self._is_the_hour(now_ms):
                at_once = need is SpaceNeed.ANY_NOW and self._config.clean_file_forcibly_enable
                removed = self._take_files(now_ms, at_once)
            self._delete(removed, self._followers())
        return len(removed)

    def close(self) -> None:
        """Let the running deletion finish its file; what is left is found again at the next start."""
        self._stopping.set()
        if self._deletion is not None:
            self._deletion.join()

    def _is_the_hour(self, now_ms: int) -> bool:
        return datetime.datetime.fromtimestamp(now_ms / 1000).hour in self._hours

    def _take_files(self, now_ms: int, at_once: bool) -> list[Path | str]:
        taken: list[Path | str] = []
        while len(taken) < FILES_PER_ROUND_MAX and len(self._log.files) > 1:
            path = self._log.files[0].path
            if not at_once and not self._expired(path, now_ms):
                break
            if not self.rescue(self._log.files[1].start) and not at_once:
                log.error("commit log file stays, waiting messages cannot be stored anew path=%s", path)
                break
            file = self._log.remove_first()
            if file is None:
                break
            log.info("commit log file goes path=%s forced=%s", path, at_once)
            taken.append(file.path)
        return taken

    def _expired(self, path: Path | str, now_ms: int) -> bool:
        try:
            modified_ms = os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return True  # deleted by hand: the log only has to forget it
        return now_ms >= modified_ms + self._config.file_reserved_time * HOUR_MS

    def _followers(self) -> Sequence[Path | str]:
        min_offset = self._log.min_offset
        if min_offset == self._followed_offset:
            return ()
        self._followed_offset = min_offset
        return self._follow(min_offset)

    def _delete(self, log_files: Sequence[Path | str], followers: Sequence[Path | str]) -> None:
        if not log_files and not followers:
            return
        pauses_ms = [self._config.delete_commit_log_files_interval] * len(log_files)
        # A store of many queues has thousands of small files: their pauses together must not hold up a round.
        queue_pause_ms = self._config.clean_resource_interval // max(len(followers), 1)
        queue_pause_ms = min(self._config.delete_consume_queue_files_interval, queue_pause_ms)
        pauses_ms += [queue_pause_ms] * len(followers)
        work = list(zip([*log_files, *followers], pauses_ms, strict=True))
        self._deletion = threading.Thread(
            target=self._delete_now, args=(work,), name="retention", daemon=True
        )
        self._deletion.start()

    def _delete_now(self, work: list[tuple[Path | str, int]]) -> None:
        for number, (path, pause_ms) in enumerate(work):
            if number and self._stopping.wait(pause_ms / 1000):
                return
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            except OSError as error:
                log.error("file cannot be deleted, remove it by hand path=%s error=%s", path, error.strerror)


def levels_of(config: StoreConfig) -> DiskLevels:
    return DiskLevels.clamped(
        config.disk_max_used_space_ratio,
        config.disk_space_clean_forcibly_ratio,
        config.disk_space_warning_level_ratio,
    )


def delete_hours(text: str) -> frozenset[int]:
    """Hours of the local day of ``deleteWhen``: ``04`` or ``02;14``. What is no number never comes true."""
    hours = (part.strip() for part in text.split(";"))
    return frozenset(int(hour) for hour in hours if hour.isdecimal())
