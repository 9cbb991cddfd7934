"""DelayLevels: the table behind `messageDelayLevel`, e.g. ``1s 5s 10s 30s 1m ... 2h``. Pure.

Level n (from 1) stands for queue n-1 of SCHEDULE_TOPIC_XXXX. The store needs it because the queue entry of a
delayed message carries the delivery time in place of the tag hash.
"""

from __future__ import annotations

from cometmq.errors import ConfigError
from cometmq.store.settings import DELAY_LEVELS

UNKNOWN_LEVEL_DELAY_MS = 1_000

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevels:
    """Delays by level; loop thread or any, it never changes."""

    __slots__ = ("delays_ms", "text")

    def __init__(self, text: str = DELAY_LEVELS) -> None:
        self.text = text
        self.delays_ms: tuple[int, ...] = tuple(
            _parse(item, text) for item in text.strip().split(" ") if item
        )

    @property
    def level_max(self) -> int:
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Delay of a level; a level that is not in the table counts as one second, as in the original."""
        if 1 <= level <= len(self.delays_ms):
            return self.delays_ms[level - 1]
        return UNKNOWN_LEVEL_DELAY_MS

    def delivery_time_ms(self, level: int, store_timestamp_ms: int) -> int:
        return store_timestamp_ms + self.delay_ms(min(level, self.level_max))


def _parse(item: str, text: str) -> int:
    unit = _UNIT_MS.get(item[-1])
    if unit is None or not item[:-1].isdecimal():
        raise ConfigError(
            f"messageDelayLevel item {item!r} in {text!r} is not a number followed by s, m, h or d"
        )
    return int(item[:-1]) * unit
