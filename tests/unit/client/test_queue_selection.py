"""Choosing a queue: turns, health of brokers, keys."""

from __future__ import annotations

import pytest

from cometmq.client.queue import Queue
from cometmq.client.queue_selection import BrokerHealth, RoundRobin, by_key, unavailable_ms
from cometmq.errors import ClientError

QUEUES = [Queue("T", broker, n) for broker in ("a", "b") for n in range(4)]


def test_turns_visit_every_queue_once_before_any_twice() -> None:
    turn = RoundRobin()
    assert sorted(turn.next(QUEUES) for _ in QUEUES) == QUEUES


def test_the_broker_that_failed_last_is_avoided_when_another_exists() -> None:
    turn = RoundRobin()
    assert {turn.next(QUEUES, avoid="a").broker_name for _ in range(20)} == {"b"}
    only_a = QUEUES[:4]
    assert {turn.next(only_a, avoid="a").broker_name for _ in range(20)} == {"a"}


@pytest.mark.parametrize(
    ("latency_ms", "away_ms"),
    [
        (0, 0),
        (100, 0),
        (549, 0),
        (550, 30_000),
        (1000, 60_000),
        (2000, 120_000),
        (3000, 180_000),
        (15000, 600_000),
    ],
)
def test_the_slower_a_broker_the_longer_it_is_avoided(latency_ms: int, away_ms: int) -> None:
    assert unavailable_ms(latency_ms) == away_ms


def test_an_isolated_broker_gets_nothing_until_ten_minutes_passed() -> None:
    health, turn = BrokerHealth(), RoundRobin()
    health.record("b", 3, now_ms=0)
    health.isolate("a", now_ms=0)
    assert {turn.next_healthy(QUEUES, health, 599_999).broker_name for _ in range(20)} == {"b"}
    assert {turn.next_healthy(QUEUES, health, 600_000).broker_name for _ in range(20)} == {"a", "b"}


def test_with_every_broker_away_the_least_bad_one_is_used() -> None:
    health, turn = BrokerHealth(), RoundRobin()
    health.record("a", 2500, now_ms=0)
    health.isolate("b", now_ms=0)
    assert {turn.next_healthy(QUEUES, health, 1).broker_name for _ in range(20)} == {"a"}


def test_a_broker_without_queues_here_is_forgotten_and_the_turn_goes_on() -> None:
    health, turn = BrokerHealth(), RoundRobin()
    health.record("gone", 600, now_ms=0)
    health.isolate("a", now_ms=0)
    health.isolate("b", now_ms=0)
    assert turn.next_healthy(QUEUES, health, 1) in QUEUES


@pytest.mark.parametrize(
    ("key", "queue_id"), [("order-1", 6), ("order-2", 5), ("", 0), ("中文", 2), ("abcdefghijk", 6)]
)
def test_an_ordering_key_goes_where_java_sends_it(key: str, queue_id: int) -> None:
    queues = [Queue("T", "a", n) for n in range(8)]
    assert by_key(queues, key).queue_id == queue_id


def test_the_hash_of_the_go_client_is_fnv1a() -> None:
    queues = [Queue("T", "a", n) for n in range(8)]
    assert by_key(queues, "foobar", "fnv").queue_id == 0xBF9CF968 % 8


def test_an_unknown_hash_names_the_known_ones() -> None:
    with pytest.raises(ClientError, match="java, fnv"):
        by_key(QUEUES, "x", "md5")
