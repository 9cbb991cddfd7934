"""The Bloom filter of the ConsumeQueue extension: which SQL groups want a message, in a few bytes.

Every group sets ``k`` of ``m`` bits (found by hashing ``group#topic``) when its expression is true for the message.
A pull whose bits are not all set skips the message without reading it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MASK_64 = 2**64 - 1
SIGN_32 = 2**31
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Parameters: the false positive rate in percent and the number of groups expected."""

    bits_per_key: int
    bit_count: int

    @classmethod
    def of(cls, error_percent: int, key_count: int) -> BloomFilter:
        """
        >>> BloomFilter.of(20, 32)
        BloomFilter(bits_per_key=3, bit_count=112)
        """
        bits = math.log2(100 / error_percent)
        size = math.ceil(key_count * bits * math.log2(math.e))
        return cls(math.ceil(bits), -(-size // 8) * 8)

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """
        >>> BloomFilter.of(20, 32).positions("CG_sql0", "TopicSql")
        (92, 98, 7)
        """
        low = murmur3_low64(f"{group}#{topic}".encode())
        first, second = to_int32(low), to_int32(low >> 32)
        places = (to_int32(first + i * second) for i in range(1, self.bits_per_key + 1))
        return tuple((~place if place < 0 else place) % self.bit_count for place in places)

    def bit_map(self, wanted: Iterable[tuple[int, ...]]) -> bytes:
        """The bits of all groups whose expression is true."""
        bits = bytearray(self.bit_count // 8)
        for positions in wanted:
            for position in positions:
                bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)


def is_hit(positions: Iterable[int], bit_map: bytes) -> bool:
    return all(bit_map[position >> 3] & (1 << (position & 7)) for position in positions)


def murmur3_low64(data: bytes, seed: int = 0) -> int:
    """The low 64 bits of MurmurHash3 x64 128."""
    h1 = h2 = seed
    tail = len(data) & ~15
    for i in range(0, tail, 16):
        h1 ^= _mix(int.from_bytes(data[i : i + 8], "little"), C1, 31, C2)
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & MASK_64
        h2 ^= _mix(int.from_bytes(data[i + 8 : i + 16], "little"), C2, 33, C1)
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & MASK_64
    h2 ^= _mix(int.from_bytes(data[tail + 8 :], "little"), C2, 33, C1)
    h1 ^= _mix(int.from_bytes(data[tail : tail + 8], "little"), C1, 31, C2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & MASK_64
    h2 = h2 + h1 & MASK_64
    return _finish(h1) + _finish(h2) & MASK_64


def to_int32(value: int) -> int:
    """The low 32 bits as Java's signed int."""
    return (value + SIGN_32 & 2**32 - 1) - SIGN_32


def _mix(k: int, first: int, turn: int, second: int) -> int:
    return _rotate(k * first & MASK_64, turn) * second & MASK_64


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK_64


def _finish(k: int) -> int:
    k ^= k >> 33
    k = k * 0xFF51AFD7ED558CCD & MASK_64
    k ^= k >> 33
    k = k * 0xC4CEB9FE1A85EC53 & MASK_64
    return k ^ k >> 33
