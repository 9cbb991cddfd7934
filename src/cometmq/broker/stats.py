"""Statistics of the broker: what VIEW_BROKER_STATS_DATA shows per topic and group.

Theory of operation. The send and pull paths only add to plain integers of a counter object that they may
keep (``put_counter``, ``get_counter``); the first addition after a sample puts the counter on a list. Every
ten seconds ``sample`` walks that list alone, moves the sums into *items* (one per statistics name and key,
e.g. TOPIC_PUT_NUMS of a topic) and takes a reading of each item that changed. So idle topics cost nothing,
however many there are.

The original reads every item at each sample and keeps 7 readings 10 s apart (minute), 7 readings 10 min
apart (hour) and 25 readings 1 h apart (day); sum, tps and average are last minus first reading. Here a
series keeps only readings that differ; the reading "at tick t" is the last one not later than t, which
gives the same numbers. Pure table, loop thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from cometmq.broker.rates import Rates
from cometmq.clock import Clock, now_ms

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"

MINUTE_SAMPLE_MS = 10_000
HOUR_SAMPLE_MS = 600_000
DAY_SAMPLE_MS = 3_600_000
MINUTE_READINGS_MAX = 7
HOUR_READINGS_MAX = 7
DAY_READINGS_MAX = 25


class PutCounter:
    """Messages sent to one queue since the last sample."""

    __slots__ = ("_active", "bytes", "calls", "listed", "messages", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, active: list[PutCounter]) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.messages = 0
        self.bytes = 0
        self.calls = 0
        self.listed = False
        self._active = active

    def add(self, messages: int, size: int, calls: int = 1) -> None:
        self.messages += messages
        self.bytes += size
        self.calls += calls
        if not self.listed:
            self.listed = True
            self._active.append(self)


class GetCounter:
    """Messages that one group pulled from one queue since the last sample."""

    __slots__ = (
        "_active",
        "bytes",
        "calls",
        "group",
        "latency_ms",
        "listed",
        "messages",
        "queue_id",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int, group: str, active: list[GetCounter]) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.group = group
        self.messages = 0
        self.bytes = 0
        self.calls = 0
        self.latency_ms = 0
        self.listed = False
        self._active = active

    def add(self, messages: int, size: int, latency_ms: int = 0) -> None:
        self.messages += messages
        self.bytes += size
        self.calls += 1
        self.latency_ms += latency_ms
        if not self.listed:
            self.listed = True
            self._active.append(self)


class Window(NamedTuple):
    """What happened within a minute, an hour or a day."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0  # per call


class Clockwork:
    """The ticks of one resolution and when they happened."""

    def __init__(self, interval_ms: int, readings_max: int) -> None:
        self.interval_ms = interval_ms
        self.readings_max = readings_max
        self.tick = 0  # number of the last sample; 0 = none yet
        self._times: deque[int] = deque(maxlen=readings_max)

    def advance(self, now: int) -> None:
        self.tick += 1
        self._times.append(now)

    def time_of(self, tick: int) -> int:
        """When one of the last ``readings_max`` ticks was."""
        return self._times[len(self._times) - 1 - (self.tick - tick)]


class Series:
    """The readings of one item in one resolution, oldest first; equal readings are kept once."""

    __slots__ = ("_readings", "first_tick")

    def __init__(self) -> None:
        self._readings: deque[tuple[int, int, int]] = deque()
        self.first_tick = 0

    def read(self, tick: int, value: int, calls: int, readings_max: int) -> None:
        if not self.first_tick:
            self.first_tick = tick
        self._readings.append((tick, value, calls))
        while len(self._readings) > 1 and self._readings[1][0] <= tick - readings_max + 1:
            self._readings.popleft()

    def window(self, clockwork: Clockwork) -> Window:
        if not self.first_tick:
            return Window()
        # A new item starts from a zero reading one tick before its first one.
        start = max(self.first_tick - 1, clockwork.tick - clockwork.readings_max + 1)
        value_before, calls_before = self._at(start)
        _, value, calls = self._readings[-1]
        before_first = start < self.first_tick
        began_ms = clockwork.time_of(start + before_first) - before_first * clockwork.interval_ms
        span_ms = clockwork.time_of(clockwork.tick) - began_ms
        total = value - value_before
        times = calls - calls_before
        return Window(
            total, total * 1000 / span_ms if span_ms > 0 else 0.0, total / times if times > 0 else 0.0
        )

    def _at(self, tick: int) -> tuple[int, int]:
        found = (0, 0)
        for reading_tick, value, calls in self._readings:
            if reading_tick > tick:
                break
            found = (value, calls)
        return found


class StatsItem:
    """One statistics name and key: totals since the start, and their readings."""

    __slots__ = ("calls", "day", "hour", "minute", "value")

    def __init__(self) -> None:
        self.value = 0
        self.calls = 0
        self.minute = Series()
        self.hour = Series()
        self.day = Series()


class BrokerStats:
    """All items of a broker. ``sample`` must run every ten seconds."""

    def __init__(self, cluster_name: str, *, queue_stats: bool = True, now_ms: Clock = now_ms) -> None:
        self.cluster_name = cluster_name
        self._queue_stats = queue_stats
        self._now_ms = now_ms
        self._items: dict[str, dict[str, StatsItem]] = {}
        self._puts: dict[str, dict[int, PutCounter]] = {}
        self._gets: dict[tuple[str, str], dict[int, GetCounter]] = {}
        self._active_puts: list[PutCounter] = []
        self._active_gets: list[GetCounter] = []
        self._changed: set[StatsItem] = set()
        self._changed_hour: set[StatsItem] = set()
        self._changed_day: set[StatsItem] = set()
        self.minute = Clockwork(MINUTE_SAMPLE_MS, MINUTE_READINGS_MAX)
        self.hour = Clockwork(HOUR_SAMPLE_MS, HOUR_READINGS_MAX)
        self.day = Clockwork(DAY_SAMPLE_MS, DAY_READINGS_MAX)
        self.rates = Rates(now_ms=now_ms)

    # --- counting ---

    def put_counter(self, topic: str, queue_id: int) -> PutCounter:
        """The counter of a queue. May be kept: it stays valid until ``forget_topic``."""
        queues = self._puts.setdefault(topic, {})
        counter = queues.get(queue_id)
        if counter is None:
            counter = queues[queue_id] = PutCounter(topic, queue_id, self._active_puts)
            for name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
                self._item(name, topic)
        return counter

    def get_counter(self, group: str, topic: str, queue_id: int) -> GetCounter:
        queues = self._gets.setdefault((topic, group), {})
        counter = queues.get(queue_id)
        if counter is None:
            counter = queues[queue_id] = GetCounter(topic, queue_id, group, self._active_gets)
            for name in (GROUP_GET_NUMS, GROUP_GET_SIZE):
                self._item(name, f"{topic}@{group}")
        return counter

    def count_put(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        self.put_counter(topic, queue_id).add(messages, size)

    def count_get(
        self, group: str, topic: str, queue_id: int, messages: int, size: int, latency_ms: int = 0
    ) -> None:
        self.get_counter(group, topic, queue_id).add(messages, size, latency_ms)

    def count_send_back(self, group: str, topic: str) -> None:
        self._add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1, 1)

    # --- sampling ---

    def sample(self) -> None:
        """Every ten seconds: take over the counters and read what changed; hours and days when due."""
        self._drain_puts()
        self._drain_gets()
        now = self._now_ms()
        self._changed_hour |= self._changed
        self._changed_day |= self._changed
        self._read(self.minute, "minute", self._changed, now)
        self._read_if_due(self.hour, "hour", self._changed_hour, now)
        self._read_if_due(self.day, "day", self._changed_day, now)

    def _read_if_due(self, clockwork: Clockwork, series: str, changed: set[StatsItem], now: int) -> None:
        if not clockwork.tick or now - clockwork.time_of(clockwork.tick) >= clockwork.interval_ms:
            self._read(clockwork, series, changed, now)

    @staticmethod
    def _read(clockwork: Clockwork, series: str, changed: set[StatsItem], now: int) -> None:
        clockwork.advance(now)
        for item in changed:
            readings: Series = getattr(item, series)
            readings.read(clockwork.tick, item.value, item.calls, clockwork.readings_max)
        changed.clear()

    def _drain_puts(self) -> None:
        for counter in self._active_puts:
            messages, size, calls = counter.messages, counter.bytes, counter.calls
            counter.messages = counter.bytes = counter.calls = 0
            counter.listed = False
            self._add(TOPIC_PUT_NUMS, counter.topic, messages, calls)
            self._add(TOPIC_PUT_SIZE, counter.topic, size, calls)
            self._add(BROKER_PUT_NUMS, self.cluster_name, messages, 0)
            if self._queue_stats:
                key = f"{counter.topic}@{counter.queue_id}"
                self._add(QUEUE_PUT_NUMS, key, messages, calls)
                self._add(QUEUE_PUT_SIZE, key, size, calls)
        self._active_puts.clear()

    def _drain_gets(self) -> None:
        for counter in self._active_gets:
            messages, size, calls, latency_ms = (
                counter.messages,
                counter.bytes,
                counter.calls,
                counter.latency_ms,
            )
            counter.messages = counter.bytes = counter.calls = counter.latency_ms = 0
            counter.listed = False
            key = f"{counter.topic}@{counter.group}"
            self._add(GROUP_GET_NUMS, key, messages, calls)
            self._add(GROUP_GET_SIZE, key, size, calls)
            self._add(BROKER_GET_NUMS, self.cluster_name, messages, 0)
            latency_key = f"{counter.queue_id}@{key}" if self._queue_stats else key
            self._add(GROUP_GET_LATENCY, latency_key, latency_ms, calls)
            if self._queue_stats:
                key = f"{counter.topic}@{counter.queue_id}@{counter.group}"
                self._add(QUEUE_GET_NUMS, key, messages, calls)
                self._add(QUEUE_GET_SIZE, key, size, calls)
        self._active_gets.clear()

    def _add(self, name: str, key: str, value: int, calls: int) -> None:
        item = self._item(name, key)
        item.value += value
        item.calls += calls
        self._changed.add(item)

    def _item(self, name: str, key: str) -> StatsItem:
        keys = self._items.setdefault(name, {})
        item = keys.get(key)
        if item is None:
            item = keys[key] = StatsItem()
        return item

    # --- looking ---

    def windows(self, name: str, key: str) -> tuple[Window, Window, Window] | None:
        """Minute, hour and day of an item; None when nothing was ever counted under this name and key."""
        item = self._items.get(name, {}).get(key)
        if item is None:
            return None
        return item.minute.window(self.minute), item.hour.window(self.hour), item.day.window(self.day)

    def consume_tps(self, group: str, topic: str) -> float:
        item = self._items.get(GROUP_GET_NUMS, {}).get(f"{topic}@{group}")
        return 0.0 if item is None else item.minute.window(self.minute).tps

    def totals(self) -> Iterator[tuple[str, str, int]]:
        """(name, key, total since the start) as of the last sample, for metrics."""
        for name, keys in self._items.items():
            for key, item in keys.items():
                yield name, key, item.value

    # --- forgetting ---

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted (with autoDeleteUnusedStats)."""
        self._puts.pop(topic, None)
        for pair in [pair for pair in self._gets if pair[0] == topic]:
            del self._gets[pair]
        self._forget(lambda parts: topic in parts)

    def forget_group(self, group: str) -> None:
        for pair in [pair for pair in self._gets if pair[1] == group]:
            del self._gets[pair]
        self._forget(lambda parts: len(parts) > 1 and parts[-1] == group)

    def _forget(self, matches: object) -> None:
        assert callable(matches)
        for name, keys in self._items.items():
            if name in (BROKER_PUT_NUMS, BROKER_GET_NUMS):
                continue
            for key in [key for key in keys if matches(key.split("@"))]:
                del keys[key]
