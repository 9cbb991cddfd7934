"""StoreConfig: what a store must know: the keys of ``StoreSettings``, where its files are, and options of our own.

Touches nothing. The broker builds it from its properties file; tests build it by hand with small sizes. It is not
changed: ``MessageStore.reconfigure`` takes another one.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.errors import ConfigError
from cometmq.store.settings import CONSUME_QUEUE_ENTRY_SIZE, StoreSettings

COMMIT_LOG_FILE_SIZE_MIN = 4096
MESSAGE_SIZE_SLACK = 65536  # a whole record may exceed max_message_size by this much


class FlushDiskType(enum.Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(enum.Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _default_root() -> Path:
    return Path(os.path.expanduser("~")) / "store"


@dataclass(kw_only=True)
class StoreConfig(StoreSettings):
    store_path_root_dir: Path = field(default_factory=_default_root)
    store_path_commit_log: Path | None = None  # default: <root>/commitlog
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    disk_space_warning_level_ratio: int = 90  # a Java system property, as the next
    disk_space_clean_forcibly_ratio: int = 85
    # Ours:
    open_files_max: int = 0  # files mapped at one time; 0: derived from the limits of the process
    populate_ahead_size: int = 32 << 20  # bytes of commit log made ready ahead of the write position; 0: none
    # After a crash start where the queues end, not only where the checkpoint says.
    rebuild_queues_from_log: bool = True

    def __post_init__(self) -> None:
        if self.mapped_file_size_commit_log < COMMIT_LOG_FILE_SIZE_MIN:
            raise ConfigError(
                f"mappedFileSizeCommitLog is {self.mapped_file_size_commit_log}; "
                f"give at least {COMMIT_LOG_FILE_SIZE_MIN} bytes"
            )
        if self.mapped_file_size_consume_queue < CONSUME_QUEUE_ENTRY_SIZE:
            raise ConfigError(
                f"mappedFileSizeConsumeQueue is {self.mapped_file_size_consume_queue}; "
                f"give at least {CONSUME_QUEUE_ENTRY_SIZE} bytes"
            )

    @property
    def commit_log_dir(self) -> Path:
        return self.store_path_commit_log or self.store_path_root_dir / "commitlog"

    @property
    def consume_queue_dir(self) -> Path:
        return self.store_path_root_dir / "consumequeue"

    @property
    def consume_queue_ext_dir(self) -> Path:
        return self.store_path_root_dir / "consumequeue_ext"

    @property
    def index_dir(self) -> Path:
        return self.store_path_root_dir / "index"

    @property
    def consume_queue_file_size(self) -> int:
        """The configured size rounded up to whole entries, as the original does."""
        entries = -(-self.mapped_file_size_consume_queue // CONSUME_QUEUE_ENTRY_SIZE)
        return entries * CONSUME_QUEUE_ENTRY_SIZE

    @property
    def record_size_max(self) -> int:
        """Largest record (or batch) that fits a commit log file together with its closing blank record."""
        return self.mapped_file_size_commit_log - 8
