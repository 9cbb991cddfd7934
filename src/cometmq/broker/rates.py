"""Rates and totals of the whole broker, as GET_BROKER_RUNTIME_INFO shows them.

``Rates`` is read once a second: puts, pulls that found something, pulls that did not, and messages handed
out. From 601 readings come the rates over 10, 60 and 600 seconds. ``PutTimes`` holds how long puts took
within the last minute. Pure, loop thread only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from datetime import datetime
from typing import NamedTuple

from cometmq.clock import Clock, now_ms
from cometmq.protocol.json_java import java_double

WINDOWS_S = (10, 60, 600)
READINGS_MAX = 601
PUT_TIMES_ROUND_MS = 60_000

# Upper limits (exclusive) of the groups in which put times are shown; the last group has none.
SHOWN_LIMITS_MS = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
SHOWN_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]",
    "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip

# Upper limits (inclusive) of the finer groups from which percentiles are estimated.
FINE_LIMITS_MS = (
    *range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10), *range(250, 501, 50),
    *range(600, 1_001, 100), *range(2_000, 10_001, 1_000),
)  # fmt: skip


class PutTimes:
    """Distribution of put times: one round is filled while the round before is shown."""

    def __init__(self) -> None:
        self._shown = [0] * len(SHOWN_NAMES)
        self._fine = [0] * (len(FINE_LIMITS_MS) + 1)
        self._last_shown: list[int] | None = None
        self._last_fine: list[int] = []
        self.max_ms = 0

    def add(self, elapsed_ms: int, times: int = 1) -> None:
        self._shown[bisect_right(SHOWN_LIMITS_MS, max(elapsed_ms, 0))] += times
        self._fine[bisect_left(FINE_LIMITS_MS, elapsed_ms)] += times
        if elapsed_ms > self.max_ms:
            self.max_ms = elapsed_ms

    def end_round(self) -> None:
        self._last_shown, self._shown = self._shown, [0] * len(SHOWN_NAMES)
        self._last_fine, self._fine = self._fine, [0] * (len(FINE_LIMITS_MS) + 1)

    def text(self) -> str:
        if self._last_shown is None:
            return "null"  # what the original shows in its first minute
        return "".join(f"{name}:{count} " for name, count in zip(SHOWN_NAMES, self._last_shown, strict=True))

    def percentile_ms(self, fraction: float) -> float:
        """Estimated within its group, as the original does."""
        wanted = int(sum(self._last_fine) * fraction)
        passed = 0
        below = 0
        for limit, count in zip(FINE_LIMITS_MS, self._last_fine, strict=False):
            if wanted <= passed + count:
                return below + ((limit - below) * (wanted - passed) / count if count else 0.0)
            passed += count
            below = limit
        return float(below)


class Totals(NamedTuple):
    """Since the start."""

    puts: int = 0
    put_bytes: int = 0
    gets_found: int = 0
    gets_missed: int = 0
    messages_out: int = 0


class Rates:
    def __init__(self, *, now_ms: Clock = now_ms) -> None:
        self._now_ms = now_ms
        self._readings: deque[tuple[int, Totals]] = deque(maxlen=READINGS_MAX)
        self._put_times_since_ms = now_ms()
        self.put_times = PutTimes()
        self.get_time_max_ms = 0
        self.puts_failed = 0
        self.totals = Totals()
        self._day = 0  # of the last reading
        self.midnight = Totals()
        self.midnight_before = Totals()

    def sample(self, totals: Totals) -> None:
        """Once a second. The first reading after local midnight ends the day."""
        now = self._now_ms()
        day = datetime.fromtimestamp(now / 1000).toordinal()
        if self._day not in (0, day):
            self.begin_day()
        self._day = day
        self.totals = totals
        self._readings.append((now, totals))
        if now - self._put_times_since_ms >= PUT_TIMES_ROUND_MS:
            self._put_times_since_ms = now
            self.put_times.end_round()

    def begin_day(self) -> None:
        """Note the totals from which a new day counts."""
        self.midnight_before, self.midnight = self.midnight, self.totals

    def rate(self, field: str, window_s: int) -> float | None:
        """Per second over a window; None while there are too few readings."""
        if len(self._readings) <= window_s:
            return None
        began_ms, before = self._readings[-window_s - 1]
        ended_ms, after = self._readings[-1]
        span_ms = ended_ms - began_ms
        return (getattr(after, field) - getattr(before, field)) * 1000 / span_ms if span_ms > 0 else 0.0

    def rates_text(self, *fields: str) -> str:
        """Three numbers with blanks between; a window without enough readings is empty, for a sum of two
        0.0.
        """
        return " ".join(self._window_text(fields, window_s) for window_s in WINDOWS_S)

    def _window_text(self, fields: tuple[str, ...], window_s: int) -> str:
        rates = [self.rate(field, window_s) for field in fields]
        if len(fields) == 1 and rates[0] is None:
            return ""
        return java_double(sum((rate for rate in rates if rate is not None), 0.0))

    def runtime_info(self, boot_timestamp_ms: int) -> dict[str, str]:
        """The part of GET_BROKER_RUNTIME_INFO that is counted here."""
        totals = self.totals
        puts = max(totals.puts, 1)  # the original divides by it and shows it so
        return {
            "bootTimestamp": str(boot_timestamp_ms),
            "runtime": duration_text(self._now_ms() - boot_timestamp_ms),
            "putMessageEntireTimeMax": str(self.put_times.max_ms),
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(self.puts_failed),
            "putMessageSizeTotal": str(totals.put_bytes),
            "putMessageDistributeTime": self.put_times.text(),
            "putMessageAverageSize": java_double(totals.put_bytes / puts),
            "getMessageEntireTimeMax": str(self.get_time_max_ms),
            "putTps": self.rates_text("puts"),
            "getFoundTps": self.rates_text("gets_found"),
            "getMissTps": self.rates_text("gets_missed"),
            "getTotalTps": self.rates_text("gets_found", "gets_missed"),
            "getTransferedTps": self.rates_text("messages_out"),
            "putLatency99": f"{self.put_times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{self.put_times.percentile_ms(0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(self.midnight_before.puts),
            "msgPutTotalTodayMorning": str(self.midnight.puts),
            "msgPutTotalTodayNow": str(totals.puts),
            "msgGetTotalYesterdayMorning": str(self.midnight_before.messages_out),
            "msgGetTotalTodayMorning": str(self.midnight.messages_out),
            "msgGetTotalTodayNow": str(totals.messages_out),
        }


def duration_text(duration_ms: int) -> str:
    seconds = max(duration_ms, 0) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    return f"[ {days} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"
