"""StoreConfig: RocketMQ's store options under their own names in snake_case, with the defaults of 4.9.7.

Touches nothing. The broker builds it from its properties file; tests build it by hand with small sizes.
Options of our own stand last and are marked so.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.errors import ConfigError

CONSUME_QUEUE_ENTRY_SIZE = 20
COMMIT_LOG_FILE_SIZE_MIN = 4096
MESSAGE_SIZE_SLACK = 65536  # a whole record may exceed max_message_size by this much
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class FlushDiskType(enum.Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(enum.Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _default_root() -> Path:
    return Path(os.path.expanduser("~")) / "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    store_path_root_dir: Path = field(default_factory=_default_root)
    store_path_commit_log: Path | None = None  # default: <root>/commitlog
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * CONSUME_QUEUE_ENTRY_SIZE
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 << 20
    bit_map_length_consume_queue_ext: int = 64
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    sync_flush_timeout: int = 5_000
    slave_timeout: int = 3_000
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000
    delete_when: str = "04"
    file_reserved_time: int = 72
    disk_max_used_space_ratio: int = 75
    disk_space_warning_level_ratio: int = 90
    disk_space_clean_forcibly_ratio: int = 85
    clean_file_forcibly_enable: bool = True
    disk_fall_recorded: bool = True
    max_message_size: int = 4 << 20
    check_crc_on_recover: bool = True
    max_transfer_bytes_on_message_in_memory: int = 256 << 10
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 << 10
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    flush_delay_offset_interval: int = 10_000
    os_page_cache_busy_time_out_mills: int = 1_000
    offset_check_in_slave: bool = False
    enable_schedule_message_stats: bool = True
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    ha_send_heartbeat_interval: int = 5_000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32 << 10
    ha_master_address: str | None = None
    ha_slave_fallbehind_max: int = 256 << 20
    # Ours:
    open_files_max: int = 0  # files mapped at one time; 0: derived from the limits of the process
    populate_ahead_size: int = 32 << 20  # bytes of commit log made ready ahead of the write position; 0: none
    rebuild_queues_from_log: bool = (
        True  # after a crash start where the queues end, not only where the checkpoint says
    )

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
