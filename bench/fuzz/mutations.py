"""Ways to spoil an input. Those that keep its length work in place; the others give a new one."""

from __future__ import annotations

import random
from collections.abc import Callable

Change = Callable[[random.Random, memoryview], None]
Rewrite = Callable[[random.Random, bytes, list[bytes]], bytes]

# Numbers that lengths and counts trip over.
_WORDS = [
    0,
    1,
    -1,
    4,
    8,
    90,
    91,
    92,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    0xFFFFFF,
    0x1000000,
    2**31 - 1,
    -(2**31),
]
INTERESTING = [word.to_bytes(4, "big", signed=word < 0) for word in _WORDS]
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b":",
    b",",
    b"\\u",
    b"\\ud800",
    b"null",
    b"0:",
    b'"$ref"',
    b"\x01",
    b"\x02",
]


def change_bytes(rng: random.Random, view: memoryview) -> None:
    for _ in range(1 + int(rng.random() * 3)):
        view[int(rng.random() * len(view))] = int(rng.random() * 256)


def change_bit(rng: random.Random, view: memoryview) -> None:
    view[int(rng.random() * len(view))] ^= 1 << int(rng.random() * 8)


def change_word(rng: random.Random, view: memoryview) -> None:
    if len(view) >= 4:
        position = int(rng.random() * (len(view) - 3))
        view[position : position + 4] = INTERESTING[int(rng.random() * len(INTERESTING))]


def nudge_word(rng: random.Random, view: memoryview) -> None:
    """Add a little to a 32-bit number: lengths that are off by one are the hardest to notice."""
    if len(view) >= 4:
        position = int(rng.random() * (len(view) - 3))
        value = int.from_bytes(view[position : position + 4], "big") + rng.choice(
            (-13, -12, -2, -1, 1, 2, 12)
        )
        view[position : position + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


CHANGES: list[Change] = [change_bytes, change_bit, change_word, nudge_word]


def cut(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    return data[: int(rng.random() * (len(data) + 1))]


def remove(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    start = int(rng.random() * (len(data) + 1))
    return data[:start] + data[start + int(rng.random() * 16) :]


def repeat(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    start = int(rng.random() * (len(data) + 1))
    piece = data[start : start + int(rng.random() * 64)]
    return data[:start] + piece * int(rng.random() * 8) + data[start:]


def insert(rng: random.Random, data: bytes, _others: list[bytes]) -> bytes:
    start = int(rng.random() * (len(data) + 1))
    return data[:start] + rng.choice(TOKENS) + data[start:]


def splice(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    other = others[int(rng.random() * len(others))]
    return data[: int(rng.random() * (len(data) + 1))] + other[int(rng.random() * (len(other) + 1)) :]


REWRITES: list[Rewrite] = [cut, remove, repeat, insert, splice]
