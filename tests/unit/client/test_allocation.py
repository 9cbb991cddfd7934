"""Allocation strategies: the vectors come from the Java 4.9.7 classes."""

from __future__ import annotations

import pytest

from cometmq.client.consumer.allocation import (
    Allocation,
    Average,
    Circle,
    Config,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
)
from cometmq.client.queue import Queue
from cometmq.errors import ClientError

QUEUES = sorted(Queue("TopicA", broker, n) for broker in ("broker-a", "broker-b") for n in range(4))
THREE = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]
TEN = [f"c{n}" for n in range(10)]
STRATEGIES: list[Allocation] = [Average(), Circle(), ConsistentHash()]


def short(queues: list[Queue]) -> str:
    return " ".join(f"{queue.broker_name[-1]}{queue.queue_id}" for queue in queues)


def allocation(strategy: Allocation, ids: list[str], queues: list[Queue] = QUEUES) -> dict[str, str]:
    return {one: short(strategy.allocate("G", one, queues, ids)) for one in ids}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Average(), ["a0 a1 a2", "a3 b0 b1", "b2 b3"]),
        (Circle(), ["a0 a3 b2", "a1 b0 b3", "a2 b1"]),
        (ConsistentHash(), ["a0 b2", "a2 b1 b3", "a1 a3 b0"]),
    ],
)
def test_three_members_share_eight_queues_as_java_does(strategy: Allocation, expected: list[str]) -> None:
    assert list(allocation(strategy, THREE).values()) == expected


@pytest.mark.parametrize("strategy", [Average(), Circle()])
def test_more_members_than_queues_leaves_the_last_ones_without(strategy: Allocation) -> None:
    assert list(allocation(strategy, TEN).values()) == [
        "a0",
        "a1",
        "a2",
        "a3",
        "b0",
        "b1",
        "b2",
        "b3",
        "",
        "",
    ]


def test_consistent_hash_of_ten_members_as_java_does() -> None:
    got = {one: queues for one, queues in allocation(ConsistentHash(), TEN).items() if queues}
    assert got == {"c0": "b0 b3", "c1": "a0 b2", "c2": "a3", "c4": "b1", "c7": "a1 a2"}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("members", range(1, 12))
@pytest.mark.parametrize("count", range(1, 18))
def test_every_queue_has_exactly_one_owner(strategy: Allocation, members: int, count: int) -> None:
    queues = [Queue("T", "b", n) for n in range(count)]
    ids = sorted(f"10.0.0.{n}@x" for n in range(members))
    owned = [queue for one in ids for queue in strategy.allocate("G", one, queues, ids)]
    assert sorted(owned) == queues


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_member_the_broker_does_not_list_owns_nothing(strategy: Allocation) -> None:
    assert strategy.allocate("G", "stranger", QUEUES, THREE) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_to_share_is_an_error(strategy: Allocation) -> None:
    with pytest.raises(ClientError):
        strategy.allocate("G", "a", [], ["a"])


def test_machine_room_takes_only_configured_rooms_and_deals_out_the_rest() -> None:
    queues = sorted(Queue("T", broker, n) for broker in ("r1@a", "r2@b", "plain") for n in range(5))
    got = allocation(MachineRoom({"r1"}), ["x", "y"], queues)
    assert got == {"x": "a0 a1 a4", "y": "a2 a3"}


def test_nearby_keeps_queues_in_their_room_and_shares_rooms_without_members() -> None:
    queues = sorted(Queue("T", broker, n) for broker in ("r1-a", "r2-b", "r3-c") for n in range(2))
    strategy = MachineRoomNearby(
        Average(), lambda queue: queue.broker_name.split("-")[0], lambda client: client.split("-")[0]
    )
    got = allocation(strategy, ["r1-x", "r2-y"], queues)
    assert got == {"r1-x": "a0 a1 c0", "r2-y": "b0 b1 c1"}
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"


def test_nearby_refuses_a_queue_without_a_room() -> None:
    strategy = MachineRoomNearby(Average(), lambda _queue: None, lambda _client: "r1")
    with pytest.raises(ClientError, match="machine room"):
        strategy.allocate("G", "x", QUEUES, ["x"])


def test_config_is_a_fixed_list() -> None:
    assert Config(QUEUES[:2]).allocate("G", "x", [], []) == QUEUES[:2]
