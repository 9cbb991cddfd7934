"""Bits of the sysFlag of a message and of a pull request."""

from __future__ import annotations

from enum import IntEnum

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700

PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE = 0x10


class CompressionType(IntEnum):
    """Value of the compression bits; 0 means ZLIB too (older clients, Go)."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def compression_bits(kind: CompressionType) -> int:
    """Bits to set in the sysFlag of a body compressed as ``kind``."""
    return COMPRESSED | kind


def born_host_size(sys_flag: int) -> int:
    return 20 if sys_flag & BORN_HOST_V6 else 8


def store_host_size(sys_flag: int) -> int:
    return 20 if sys_flag & STORE_HOST_V6 else 8
