"""Tables of connected producers and consumers."""

from __future__ import annotations

import pytest

from cometmq.broker.clients import CLIENT_EXPIRY_MS, ClientInfo, ConsumerGroup, Consumers, Producers
from cometmq.net.connection import Connection
from cometmq.net.server import RemotingServer
from cometmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from cometmq.protocol.codes import LanguageCode


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


ENDPOINT = RemotingServer({})


def client(clock: ManualClock, client_id: str = "c1", version: int = 407) -> ClientInfo:
    return ClientInfo(Connection(ENDPOINT), client_id, LanguageCode.JAVA, version, clock.now)


def consumer(group: str = "G", version: int = 1, *topics: str) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics or ("T",)
        ],
    )


class Told:
    """What a table reported."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, int]] = []
        self.ends: list[str] = []

    def change(self, group: ConsumerGroup) -> None:
        self.changes.append((group.name, len(group.members)))

    def end(self, name: str) -> None:
        self.ends.append(name)


def consumers(clock: ManualClock) -> tuple[Consumers, Told]:
    told = Told()
    return Consumers(on_change=told.change, on_end=told.end, now_ms=clock), told


def test_group_is_told_of_new_members_and_topics_but_not_of_new_versions(clock: ManualClock) -> None:
    """What counts as changed."""
    table, told = consumers(clock)
    first, second = client(clock, "c1"), client(clock, "c2")
    assert table.register(first, consumer())
    assert not table.register(first, consumer())
    assert not table.register(first, consumer("G", 2))
    assert table.register(second, consumer("G", 2))
    assert table.register(second, consumer("G", 3, "T", "T2"))
    assert table.register(first, consumer("G", 3))  # T2 is not subscribed any more
    assert told.changes == [("G", 1), ("G", 2), ("G", 2), ("G", 2)]


def test_subscription_is_replaced_by_a_newer_version_only(clock: ManualClock) -> None:
    table, _ = consumers(clock)
    info = client(clock)
    table.register(info, consumer("G", 5))
    for version, expected in ((4, 5), (5, 5), (6, 6)):
        table.register(info, consumer("G", version))
        found = table.subscription("G", "T")
        assert found is not None
        assert found.sub_version == expected


def test_group_switch_keeps_changes_quiet(clock: ManualClock) -> None:
    table, told = consumers(clock)
    assert table.register(client(clock), consumer(), notify=False)
    assert told.changes == []


def test_unregistering_tells_the_rest_and_the_last_one_ends_the_group(clock: ManualClock) -> None:
    table, told = consumers(clock)
    first, second = client(clock, "c1"), client(clock, "c2")
    table.register(first, consumer())
    table.register(second, consumer())
    table.unregister("G", first.connection)
    assert told.changes[-1] == ("G", 1)
    assert table.find("G").client_ids() == ["c2"]  # type: ignore[union-attr]
    table.unregister("G", second.connection)
    assert table.find("G") is None
    assert told.ends == ["G"]
    table.unregister("G", second.connection)  # again: nothing happens
    assert told.ends == ["G"]


def test_closed_connection_leaves_all_its_groups(clock: ManualClock) -> None:
    table, told = consumers(clock)
    first, second = client(clock, "c1"), client(clock, "c2")
    for group in ("G1", "G2"):
        table.register(first, consumer(group))
        table.register(second, consumer(group))
    table.connection_closed(first.connection)
    assert told.changes[-2:] == [("G1", 1), ("G2", 1)]
    assert table.member("G1", "c1") is None
    assert table.member("G1", "c2") is second


def test_consumer_without_heartbeats_is_gone_after_two_minutes(clock: ManualClock) -> None:
    table, told = consumers(clock)
    silent, alive = client(clock, "silent"), client(clock, "alive")
    table.register(silent, consumer())
    table.register(alive, consumer())
    clock.now += CLIENT_EXPIRY_MS
    assert table.drop_expired() == []
    clock.now += 1
    alive.last_update_ms = clock.now
    assert table.drop_expired() == [silent.connection]
    assert table.find("G").client_ids() == ["alive"]  # type: ignore[union-attr]
    assert told.changes[-1] == ("G", 1)


def test_one_client_with_two_connections_is_listed_twice(clock: ManualClock) -> None:
    table, _ = consumers(clock)
    table.register(client(clock, "c1"), consumer())
    table.register(client(clock, "c1"), consumer())
    assert table.find("G").client_ids() == ["c1", "c1"]  # type: ignore[union-attr]


def test_topics_tell_their_groups(clock: ManualClock) -> None:
    table, _ = consumers(clock)
    table.register(client(clock), consumer("G1", 1, "T"))
    table.register(client(clock), consumer("G2", 1, "T", "T2"))
    assert sorted(table.groups_of("T")) == ["G1", "G2"]
    assert table.groups_of("T2") == ["G2"]
    assert table.subscribes_other_topics_only("G1", "T2")
    assert not table.subscribes_other_topics_only("G1", "T")
    assert not table.subscribes_other_topics_only("offline", "T")


def test_epoch_grows_with_what_members_share(clock: ManualClock) -> None:
    table, _ = consumers(clock)
    info = client(clock)
    table.register(info, consumer())
    group = table.find("G")
    assert group is not None
    epoch = group.epoch
    table.register(info, consumer())
    table.register(client(clock, "c2"), consumer())
    assert group.epoch == epoch
    table.register(info, consumer("G", 2))
    assert group.epoch > epoch


def test_producers_are_found_by_group_and_by_client(clock: ManualClock) -> None:
    table = Producers(now_ms=clock)
    first, second = client(clock, "p1"), client(clock, "p2")
    table.register("PG", first)
    table.register("CLIENT_INNER_PRODUCER", first)
    table.register("PG", second)
    assert table.members("PG") == [first, second]
    assert table.find_client("p1") is first
    table.unregister("PG", first.connection)
    assert table.find_client("p1") is first  # still in the other group
    table.connection_closed(first.connection)
    assert table.find_client("p1") is None
    assert table.members("CLIENT_INNER_PRODUCER") == []
    assert list(table.groups()) == ["PG"]


def test_reconnected_producer_survives_the_end_of_its_old_connection(clock: ManualClock) -> None:
    table = Producers(now_ms=clock)
    old, new = client(clock, "p1"), client(clock, "p1")
    table.register("PG", old)
    table.register("PG", new)
    table.connection_closed(old.connection)
    assert table.find_client("p1") is new


def test_producer_that_changes_its_client_id_leaves_nothing_behind(clock: ManualClock) -> None:
    table = Producers(now_ms=clock)
    old = client(clock, "p1")
    new = ClientInfo(old.connection, "p2", LanguageCode.JAVA, 407, clock.now)
    table.register("PG", old)
    table.register("PG", new)
    assert table.find_client("p1") is None
    table.connection_closed(old.connection)
    assert table.find_client("p2") is None


def test_silent_producers_expire(clock: ManualClock) -> None:
    table = Producers(now_ms=clock)
    silent = client(clock, "p1")
    table.register("PG", silent)
    table.register("PG2", silent)
    clock.now += CLIENT_EXPIRY_MS + 1
    assert table.drop_expired() == [silent.connection]
    assert not table.groups()


def test_check_backs_go_to_the_members_in_turn(clock: ManualClock) -> None:
    table = Producers(now_ms=clock)
    members = [client(clock, f"p{number}") for number in range(3)]
    for info in members:
        table.register("PG", info)
    chosen = [table.next_available("PG") for _ in range(6)]
    assert {info.client_id for info in chosen[:3] if info} == {"p0", "p1", "p2"}
    members[0].connection.closed = True
    assert all(table.next_available("PG") is not members[0] for _ in range(6))
    assert table.next_available("nobody") is None
