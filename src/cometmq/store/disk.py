"""How full the disks under a store are, and what follows from it.

Levels in whole percent, rounded up: above ``warning`` (90) writes are refused; above ``clean_forcibly`` (85)
commit log files go even before their time; above ``max_used`` (75) expired files go at any hour. Writes come
back when a look finds no more than ``warning``. Loop thread; asking the file system takes microseconds.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)

MAX_USED_PERCENT_RANGE = (10, 95)  # of diskMaxUsedSpaceRatio; values outside are moved to the edge
UNKNOWN_PERCENT = -1

# Used space of the disk under a path in whole percent, UNKNOWN_PERCENT if it cannot be told.
DiskUsage = Callable[[Path], int]


def used_percent(path: Path) -> int:
    """used / (used + usable by us), rounded up. A path that does not exist yet counts as its parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        status = os.statvfs(path)
    except OSError:
        return UNKNOWN_PERCENT
    used = status.f_blocks - status.f_bfree
    entire = used + status.f_bavail
    return -(-used * 100 // entire) if entire > 0 else UNKNOWN_PERCENT


class DiskLevels(NamedTuple):
    max_used: int = 75
    clean_forcibly: int = 85
    warning: int = 90

    @classmethod
    def clamped(cls, max_used: int, clean_forcibly: int, warning: int) -> DiskLevels:
        low, high = MAX_USED_PERCENT_RANGE
        return cls(min(max(max_used, low), high), clean_forcibly, warning)


class SpaceNeed(enum.IntEnum):
    """What the disks ask of retention."""

    NONE = 0
    EXPIRED_NOW = 1  # delete expired files whatever the hour
    ANY_NOW = 2  # delete the oldest files even if they have not expired


class DiskWatch:
    """Looks at the disks of commit log and queues; ``full`` says whether writes are to be refused."""

    def __init__(
        self, log_path: Path, queue_path: Path, levels: DiskLevels, usage: DiskUsage = used_percent
    ) -> None:
        self._paths = (log_path, queue_path)
        self.levels = levels
        self._usage = usage
        self.full = False

    def percents(self) -> tuple[int, int]:
        """Commit log, queues; as of now."""
        return self._usage(self._paths[0]), self._usage(self._paths[1])

    def look(self) -> bool:
        """Set or clear ``full`` by the warning level alone."""
        highest = max(self.percents())
        self._be_full(highest > self.levels.warning, highest)
        return self.full

    def need(self) -> SpaceNeed:
        """What has to be deleted. Either disk above the warning level also stops writes."""
        percents = self.percents()
        highest = max(percents)
        if highest > self.levels.warning:
            self._be_full(True, highest)
        elif highest <= self.levels.clean_forcibly:
            self._be_full(False, highest)
        if highest > self.levels.clean_forcibly:
            return SpaceNeed.ANY_NOW
        if highest > self.levels.max_used or min(percents) < 0:
            return SpaceNeed.EXPIRED_NOW
        return SpaceNeed.NONE

    def _be_full(self, full: bool, percent: int) -> None:
        if full == self.full:
            return
        self.full = full
        if full:
            log.error(
                "the disk is %d %% full, above %d %%: messages are refused until there is space path=%s",
                percent,
                self.levels.warning,
                self._paths[0],
            )
        else:
            log.warning("the disk is %d %% full: messages are taken again path=%s", percent, self._paths[0])
