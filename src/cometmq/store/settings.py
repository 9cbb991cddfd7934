"""StoreSettings: the keys of a RocketMQ 4.9 ``broker.conf`` that the store reads, with their defaults.

The only list of them: ``BrokerConfig`` is these keys and those of the broker, ``StoreConfig`` these and what the store
needs to know beside them. Touches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.properties_file import named

CONSUME_QUEUE_ENTRY_SIZE = 20
UNLIMITED = (1 << 31) - 1  # for a limit of a store that has no other
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(kw_only=True, eq=False, repr=False)
class StoreSettings:
    # Files
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * CONSUME_QUEUE_ENTRY_SIZE
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 << 20

    # Flushing; times in ms
    sync_flush_timeout: int = 5_000
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_thorough_interval: int = 60_000

    # Limits
    max_message_size: int = 4 << 20
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

    # Retention; times in ms
    delete_when: str = "04"
    file_reserved_time: int = 72  # hours
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    check_crc_on_recover: bool = named("checkCRCOnRecover", True)

    # Delayed messages, additional queues, slaves
    message_delay_level: str = DELAY_LEVELS
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    offset_check_in_slave: bool = False
