"""Statistics: the sparse readings must give the numbers of the original's full ones."""

from __future__ import annotations

import random
from collections import deque

from cometmq.broker.rates import PutTimes, Rates, Totals
from cometmq.broker.stats import (
    BROKER_PUT_NUMS,
    GROUP_GET_LATENCY,
    GROUP_GET_NUMS,
    QUEUE_GET_SIZE,
    QUEUE_PUT_NUMS,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStats,
    Window,
)


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class FullReadings:
    """The rule as the original has it: every item is read at every sample, the last seven readings are kept."""

    def __init__(self) -> None:
        self.readings: deque[tuple[int, int, int]] = deque(maxlen=7)

    def sample(self, now: int, value: int, calls: int) -> None:
        if not self.readings:
            self.readings.append((now - 10_000, 0, 0))
        self.readings.append((now, value, calls))

    def window(self) -> Window:
        (first_ms, first_value, first_calls), (last_ms, value, calls) = self.readings[0], self.readings[-1]
        total, times = value - first_value, calls - first_calls
        return Window(total, total * 1000 / (last_ms - first_ms), total / times if times else 0.0)


def test_minute_window_equals_the_rule_of_the_original() -> None:
    generator = random.Random(7)
    clock = ManualClock()
    stats = BrokerStats("C", now_ms=clock)
    expected = FullReadings()
    value = calls = 0
    for _ in range(200):
        clock.now += 10_000 + generator.randrange(30)
        busy = generator.random() < 0.4
        if busy:
            for _ in range(generator.randrange(1, 4)):
                messages = generator.randrange(1, 20)
                stats.count_put("T", generator.randrange(4), messages, 100)
                value, calls = value + messages, calls + 1
        stats.sample()
        if calls:
            expected.sample(clock.now, value, calls)
            windows = stats.windows(TOPIC_PUT_NUMS, "T")
            assert windows is not None
            assert windows[0] == expected.window()


def test_one_put_counts_for_queue_topic_and_broker() -> None:
    clock = ManualClock()
    stats = BrokerStats("C1", now_ms=clock)
    stats.count_put("T", 3, 2, 500)
    stats.sample()
    for name, key, total in (
        (TOPIC_PUT_NUMS, "T", 2),
        (TOPIC_PUT_SIZE, "T", 500),
        (QUEUE_PUT_NUMS, "T@3", 2),
        (BROKER_PUT_NUMS, "C1", 2),
    ):
        windows = stats.windows(name, key)
        assert windows is not None
        assert [window.sum for window in windows] == [total, total, total]
    assert stats.windows(TOPIC_PUT_NUMS, "T")[0].tps == 0.2  # type: ignore[index]


def test_gets_are_counted_per_topic_and_group() -> None:
    clock = ManualClock()
    stats = BrokerStats("C1", now_ms=clock)
    stats.count_get("G", "T", 1, 10, 1000, latency_ms=4)
    stats.count_get("G", "T", 1, 20, 2000, latency_ms=8)
    stats.sample()
    assert stats.windows(GROUP_GET_NUMS, "T@G")[0] == Window(30, 3.0, 15.0)  # type: ignore[index]
    assert stats.windows(GROUP_GET_LATENCY, "1@T@G")[0].average == 6.0  # type: ignore[index]
    assert stats.windows(QUEUE_GET_SIZE, "T@1@G")[0].sum == 3000  # type: ignore[index]
    assert stats.consume_tps("G", "T") == 3.0
    assert stats.consume_tps("G", "other") == 0.0


def test_unknown_items_do_not_exist_and_known_ones_do_before_the_first_sample() -> None:
    stats = BrokerStats("C1")
    assert stats.windows(TOPIC_PUT_NUMS, "T") is None
    assert stats.windows("NO_SUCH_NAME", "T") is None
    stats.count_put("T", 0, 1, 1)
    assert stats.windows(TOPIC_PUT_NUMS, "T") == (Window(), Window(), Window())


def test_hour_and_day_are_read_at_their_own_pace() -> None:
    clock = ManualClock()
    stats = BrokerStats("C1", now_ms=clock)
    for _ in range(6 * 60 * 2):  # two hours of samples, one message each
        clock.now += 10_000
        stats.count_put("T", 0, 1, 1)
        stats.sample()
    minute, hour, day = stats.windows(TOPIC_PUT_NUMS, "T") or (Window(),) * 3
    assert minute.sum == 6
    assert hour.sum == 360
    assert day.sum == 361  # readings at the first sample and an hour later
    assert abs(hour.tps - 0.1) < 0.001


def test_idle_topics_cost_nothing_at_a_sample() -> None:
    clock = ManualClock()
    stats = BrokerStats("C1", now_ms=clock)
    for number in range(100):
        stats.count_put(f"T{number}", 0, 1, 1)
    stats.sample()
    assert not stats._active_puts
    assert not stats._changed
    clock.now += 10_000
    stats.sample()
    assert stats.windows(TOPIC_PUT_NUMS, "T5")[0].sum == 1  # type: ignore[index]
    for _ in range(7):
        clock.now += 10_000
        stats.sample()
    assert stats.windows(TOPIC_PUT_NUMS, "T5")[0].sum == 0  # type: ignore[index]


def test_statistics_of_deleted_topics_and_groups_are_forgotten() -> None:
    stats = BrokerStats("C1")
    stats.count_put("T", 0, 1, 1)
    stats.count_get("G", "T", 0, 1, 1)
    stats.count_get("G2", "T2", 0, 1, 1)
    stats.count_send_back("G2", "T2")
    stats.sample()
    stats.forget_topic("T")
    assert stats.windows(TOPIC_PUT_NUMS, "T") is None
    assert stats.windows(GROUP_GET_NUMS, "T@G") is None
    assert stats.windows(BROKER_PUT_NUMS, "C1") is not None
    assert stats.windows(SNDBCK_PUT_NUMS, "T2@G2") is not None
    stats.forget_group("G2")
    assert stats.windows(GROUP_GET_NUMS, "T2@G2") is None
    assert stats.windows(SNDBCK_PUT_NUMS, "T2@G2") is None


def test_rates_are_empty_until_there_are_enough_readings() -> None:
    """Early values look like ``0.0  ``; the total always has three numbers."""
    clock = ManualClock()
    rates = Rates(now_ms=clock)
    assert rates.rates_text("puts") == "  "
    for second in range(11):
        clock.now += 1000
        rates.sample(Totals(puts=second * 5, gets_found=second, gets_missed=second))
    assert rates.rates_text("puts") == "5.0  "
    assert rates.rates_text("gets_found", "gets_missed") == "2.0 0.0 0.0"


def test_put_times_show_the_round_before() -> None:
    times = PutTimes()
    assert times.text() == "null"
    for elapsed in (0, 0, 1, 9, 10, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999, 10_000):
        times.add(elapsed)
    times.end_round()
    assert times.text() == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:1 [100~200ms]:1 [200~500ms]:1 [500ms~1s]:1 "
        "[1~2s]:1 [2~3s]:1 [3~4s]:1 [4~5s]:1 [5~10s]:1 [10s~]:1 "
    )
    assert times.max_ms == 10_000
    assert 5_000 <= times.percentile_ms(0.99) <= 10_000


def test_day_totals_are_snapshots_of_midnight() -> None:
    rates = Rates()
    rates.sample(Totals(puts=10))
    rates.begin_day()
    rates.sample(Totals(puts=25))
    assert (rates.midnight_before.puts, rates.midnight.puts, rates.totals.puts) == (0, 10, 25)
    rates.begin_day()
    assert (rates.midnight_before.puts, rates.midnight.puts) == (10, 25)
