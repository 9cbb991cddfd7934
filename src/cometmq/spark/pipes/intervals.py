"""How often a pipeline runs: texts of people, and doing something again and again."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

from cometmq.errors import CometMQError, ConfigError

_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS_S = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}


def seconds_of(text: str | float) -> float:
    """
    >>> seconds_of("30"), seconds_of("1m"), seconds_of("1 minute"), seconds_of(2)
    (30.0, 60.0, 60.0, 2.0)
    """
    if not isinstance(text, str):
        return float(text)
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_S or not float(found[1]):
        raise ConfigError(f"{text!r} is no interval: write seconds (30), or 30s, 5m, 1h, 1d.")
    return float(found[1]) * _UNITS_S[found[2]]


def again_and_again(
    every_s: float | None,
    work: Callable[[], int],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Once without an interval. Else until interrupted: a failure is told and tried again with the next round.

    Rounds begin ``every_s`` apart; one that takes longer is followed by the next at once.
    """
    if every_s is None:
        return work()
    while True:
        began = clock()
        try:
            work()
        except CometMQError as error:
            print(f"{error} The next try comes in {every_s:g} s.", file=sys.stderr, flush=True)
        sleep(max(0.0, every_s - (clock() - began)))
