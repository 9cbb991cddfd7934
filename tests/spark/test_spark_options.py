"""Options and planning, without Spark: values, errors with the nearest name, ranges, admission."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest

from cometmq.errors import ConfigError
from cometmq.protocol.message import MessageQueue
from cometmq.spark import option_values
from cometmq.spark.cluster import first_not_before
from cometmq.spark.offsets import QueueRange, from_json, to_json
from cometmq.spark.options import ReadOptions, StoreOptions, WriteOptions, names_of
from cometmq.spark.planning import admit, tasks_of

GIVEN = {"nameServer": "a:1;b:2", "subscribe": "t"}
DOCUMENT = Path(__file__).parents[2] / "docs" / "spark" / "README.md"


def queue(number: int) -> MessageQueue:
    return MessageQueue("t", "b", number)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "t"}, "The option nameServer is missing"),
        (
            {"nameServer": "a:1"},
            "One of the options subscribe, subscribePattern and assign is needed; none was given",
        ),
        ({**GIVEN, "assign": '{"t":{"b":[0]}}'}, "subscribe and assign were given"),
        ({**GIVEN, "subcribe": "t"}, "There is no option 'subcribe'; did you mean 'subscribe'?"),
        ({**GIVEN, "maxOffsetPerTrigger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({**GIVEN, "zzz": "1"}, "There is no option 'zzz'."),
        (
            {**GIVEN, "retries": "many"},
            "The option retries has 'many'; expected is a whole number from 0 to 1000",
        ),
        ({**GIVEN, "failOnDataLoss": "yes"}, "expected is true or false"),
        ({**GIVEN, "readFrom": "moon"}, "expected is auto or master or slave"),
        ({**GIVEN, "startingOffsets": "first"}, "expected is earliest, latest, group or JSON like"),
        (
            {**GIVEN, "startingOffsets": '{"t":{"b":{"0":-3}}}'},
            "expected is earliest, latest, group or JSON like",
        ),
        ({**GIVEN, "startingTimestamp": "soon"}, "milliseconds since 1970, or a time like"),
        ({**GIVEN, "maxTriggerDelay": "5 years"}, "a duration like 500ms"),
        ({**GIVEN, "maxBytesPerTrigger": "0"}, "a size in bytes"),
        ({**GIVEN, "accessKey": "k"}, "accessKey and secretKey go together"),
        ({**GIVEN, "tags": "a", "sql92": "a > 1"}, "tags and sql92 exclude each other"),
        ({"nameServer": "a:1", "subscribePattern": "("}, "a regular expression"),
        ({"nameServer": "a:1", "assign": "[]"}, 'JSON like {"T":{"broker-a":[0,1]}}'),
    ],
)
def test_wrong_options_are_named_in_one_sentence(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        ReadOptions.parse(options)


def test_names_are_not_case_sensitive_and_topic_is_an_alias() -> None:
    options = ReadOptions.parse({"NAMESERVER": "a:1", "Topic": "x, y", "pullbatchsize": "7"})
    assert options.name_server == ("a:1",)
    assert options.subscribe == ("x", "y")
    assert options.pull_batch_size == 7


def test_secrets_are_never_shown() -> None:
    options = ReadOptions.parse({**GIVEN, "accessKey": "AK1", "secretKey": "SK1", "securityToken": "ST1"})
    assert not re.search("AK1|SK1|ST1", str(options.describe()))
    with pytest.raises(ConfigError) as failure:
        ReadOptions.parse({**GIVEN, "accessKey": "AK1", "secretKey": " "})
    assert "AK1" not in str(failure.value)


def test_times_sizes_and_durations() -> None:
    assert option_values.instant_ms("1700000000000") == 1_700_000_000_000
    assert option_values.instant_ms("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert option_values.instant_ms("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    assert option_values.duration_ms("15m") == 900_000
    assert option_values.size("4 MiB") == 4 << 20


def test_every_option_is_documented() -> None:
    text = DOCUMENT.read_text("utf-8")
    for name in names_of((ReadOptions, WriteOptions, StoreOptions)):
        assert f"`{name}`" in text, f"{name} is missing in {DOCUMENT.name}"


def test_offsets_json_is_sorted_and_comes_back() -> None:
    offsets = {queue(10): 5, queue(2): 7, MessageQueue("a", "b", 0): 1}
    assert list(to_json(offsets)) == ["a", "t"]
    assert list(to_json(offsets)["t"]["b"]) == ["2", "10"]
    assert from_json(to_json(offsets)) == offsets


@pytest.mark.parametrize("seed", range(30))
def test_tasks_cover_all_ranges_once(seed: int) -> None:
    rng = random.Random(seed)
    ranges = [QueueRange(queue(n), a := rng.randrange(50), a + rng.randrange(1, 5000)) for n in range(20)]
    tasks = tasks_of(
        ranges,
        min_partitions=rng.choice([None, 1, 7, 100]),
        max_records=rng.choice([None, 10, 1000]),
        min_records=rng.choice([0, 100, 10_000]),
    )
    pieces = sorted((piece for task in tasks for piece in task), key=lambda piece: (piece.queue, piece.start))
    for item in ranges:
        own = [piece for piece in pieces if piece.queue == item.queue]
        assert own[0].start == item.start
        assert own[-1].end == item.end
        assert all(a.end == b.start for a, b in itertools.pairwise(own))


def test_64_quiet_queues_are_one_task() -> None:
    assert len(tasks_of([QueueRange(queue(n), 0, 10) for n in range(64)], min_records=10_000)) == 1


@pytest.mark.parametrize("seed", range(30))
def test_admission_keeps_the_limit_and_lets_every_queue_move(seed: int) -> None:
    rng = random.Random(seed)
    start = {queue(n): rng.randrange(100) for n in range(8)}
    latest = {q: offset + rng.choice([0, 1, 5, 10_000]) for q, offset in start.items()}
    limit = rng.choice([1, 3, 8, 100, 5000])
    end = admit(start, latest, limit)
    taken = {q: end[q] - start[q] for q in start}
    lag = sum(latest[q] - start[q] for q in start)
    assert sum(taken.values()) == min(limit, lag)
    assert all(start[q] <= end[q] <= latest[q] for q in start)
    if limit >= 8:
        assert all(taken[q] >= 1 for q in start if latest[q] > start[q])


@pytest.mark.parametrize("seed", range(50))
def test_search_by_time_finds_the_first_from_any_hint(seed: int) -> None:
    rng = random.Random(seed)
    times = sorted(rng.randrange(40) for _ in range(rng.randrange(1, 60)))
    low = rng.randrange(10)
    wanted = rng.randrange(45)
    expected = next((n for n, at in enumerate(times) if at >= wanted), len(times))
    hint = rng.randrange(len(times))
    found = first_not_before(low, low + len(times), low + hint, lambda at: times[at - low] >= wanted)
    assert found == low + expected
