"""Window: what is known to be in memory where somebody reads on; his next pulls need not ask again. Loop thread.

To ask block by block (`read_ahead`) costs more than to answer. Nothing but time depends on it: a page that left memory
meanwhile is read by whoever touches it.
"""

from __future__ import annotations

import time

WINDOW_S = 0.5  # so long it is believed
ENDLESS = 1 << 62  # end of a stretch that grows


class Window:
    """A stretch of a queue and the stretch of the log that its entries point to."""

    __slots__ = ("_entries_end", "_entries_start", "_until", "end", "start")

    def __init__(self) -> None:
        self._entries_start = self._entries_end = self.start = self.end = 0
        self._until = 0.0

    def has_entries(self, start: int, end: int) -> bool:
        return self._entries_start <= start and end <= self._entries_end and time.monotonic() < self._until

    def move(self, entries_start: int, entries_end: int, start: int, end: int) -> None:
        """Positions in the stream of the queue, and physical offsets of the log."""
        self._entries_start, self._entries_end, self.start, self.end = entries_start, entries_end, start, end
        self._until = time.monotonic() + WINDOW_S
