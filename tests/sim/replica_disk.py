"""The disk of a simulated replica: a log in pages that may be lost, records whose bits may flip, cuts that may stop.

A record is a number and its checksum. What a process wrote is in the page cache and survives its end; what was synced
survives a loss of power. Truncation goes the steps of the real one, and a crash may come after each.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable

from sim.world import World

from cometmq.broker.ha.epochs import Epochs

RECORD_SIZE = 8
BLANK = bytes(RECORD_SIZE)
PAGE_SIZE = 32


def record(number: int) -> bytes:
    key = number.to_bytes(RECORD_SIZE - 2, "big")
    return key + binascii.crc_hqx(key, 0xFFFF).to_bytes(2, "big")


def is_record(data: bytes | bytearray) -> bool:
    if len(data) != RECORD_SIZE or data == BLANK:
        return False
    return binascii.crc_hqx(data[:-2], 0xFFFF) == int.from_bytes(data[-2:], "big")


class SimLog:
    def __init__(self, *, zeroing: bool = True) -> None:
        self.cells = bytearray()  # what the page cache holds
        self.synced = bytearray()  # what the disk holds
        self.epochs = Epochs()
        self.min_offset = self.max_offset = self.flushed_offset = 0
        self.intent: int | None = None
        self.zeroing = zeroing
        self.on_cut: Callable[[int], None] = lambda offset: None
        self.crash_point: Callable[[], None] = lambda: None  # may raise

    def read(self, offset: int, size_max: int) -> bytes:
        return bytes(self.cells[offset : min(offset + size_max, self.max_offset)])

    def append(self, data: bytes) -> None:
        self.cells[self.max_offset : self.max_offset + len(data)] = data
        self.max_offset += len(data)

    def begin_anew(self, offset: int) -> None:
        self.truncate(offset)

    def save_epochs(self, epochs: Epochs) -> None:
        self.crash_point()
        self.epochs = epochs
        self.crash_point()

    def truncate(self, offset: int) -> None:
        self.on_cut(offset)
        self.intent = offset
        self.crash_point()
        self._finish_truncation(offset)
        self.max_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def _finish_truncation(self, offset: int) -> None:
        if self.zeroing:
            self.cells[offset:] = b""
            self.crash_point()
            self.synced[offset:] = b""
            self.crash_point()
        self.epochs = self.epochs.up_to(offset)
        self.crash_point()
        self.intent = None

    def flush(self) -> None:
        if self.flushed_offset != self.max_offset or len(self.synced) != len(self.cells):
            self.synced = bytearray(self.cells)
            self.flushed_offset = self.max_offset

    # -- faults ---------------------------------------------------------------------------------------------------

    def lose_power(self, world: World) -> None:
        """Any subset of the pages that were not synced is lost."""
        end = max(len(self.cells), len(self.synced))
        kept = self.cells + bytes(end - len(self.cells))
        old = self.synced + bytes(end - len(self.synced))
        for start in range(0, end, PAGE_SIZE):
            page = slice(start, start + PAGE_SIZE)
            if kept[page] != old[page] and world.chance(0.5):
                kept[page] = old[page]
        self.cells = kept

    def flip_bit(self, world: World) -> None:
        end = min(len(self.cells), self.max_offset)
        if end:
            at = (
                world.random.randrange(end)
                if world.chance(0.5)
                else max(0, end - 1 - world.random.randrange(20))
            )
            bit = 1 << world.random.randrange(8)
            self.cells[at] ^= bit
            if at < len(self.synced):
                self.synced[at] ^= bit

    def tear(self, world: World) -> None:
        """The process died while it wrote a record."""
        whole = record(world.random.getrandbits(40))
        self.cells[self.max_offset :] = whole[: world.random.randint(1, RECORD_SIZE - 1)]

    # -- start ----------------------------------------------------------------------------------------------------

    def recover(self, *, sure_end: int, same_boot: bool) -> bool:
        """Find the end of the log; True if it ends before bytes that must have been there.

        Below ``sure_end`` everything was confirmed or flushed. Above it only another boot may have lost pages: in
        the same boot what is neither a record nor blank was a record, for all we know.
        """
        if self.intent is not None:
            self._finish_truncation(self.intent)
        cells = self.cells
        end = 0
        while is_record(cells[end : end + RECORD_SIZE]):
            end += RECORD_SIZE
        corrupt = end < sure_end or (same_boot and any(cells[end:]))
        if self.zeroing:
            del cells[end:]
        self.max_offset = self.flushed_offset = end
        self.synced = bytearray(cells)
        self.epochs = self.epochs.up_to(end)
        return corrupt
