"""The tables of a NameServer, without network and clock."""

from __future__ import annotations

from typing import Any

from cometmq.nameserver.routes import (
    BROKER_EXPIRY_MS,
    Registration,
    RouteTable,
    has_unit_subscription,
    has_unit_subscription_only,
    is_unit,
)
from cometmq.protocol.bodies.route import QueueData
from cometmq.protocol.bodies.topic import DataVersion

V1, V2, V3 = (DataVersion(timestamp=1000 + n, counter=n) for n in range(3))


def queues(name: str, count: int = 4, perm: int = 6, flag: int = 0) -> QueueData:
    return QueueData(
        broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=perm, topic_sys_flag=flag
    )


def registration(
    *topics: str,
    name: str = "a",
    broker_id: int = 0,
    address: str = "",
    version: DataVersion = V1,
    cluster: str = "C",
    perm: int = 6,
    full: bool = True,
    **options: Any,
) -> Registration:
    """A full registration names the broker's own topic too, as every broker has it."""
    names = (*topics, name) if full else topics
    return Registration(
        cluster=cluster,
        broker_name=name,
        broker_id=broker_id,
        address=address or f"{name}:{broker_id}",
        ha_server_addr=f"ha-{name}:{broker_id}",
        data_version=version,
        topics={topic: queues(name, perm=perm) for topic in names},
        **options,
    )


def perm_of(table: RouteTable, topic: str) -> int | None:
    route = table.route(topic)
    return route.queues[0].perm if route else None


def addresses_of(table: RouteTable, topic: str) -> dict[int, str] | None:
    route = table.route(topic)
    return dict(route.brokers[0].broker_addrs) if route else None


def test_registered_topics_have_a_route_with_queues_and_addresses() -> None:
    table = RouteTable()
    assert table.register(registration("T"), "conn", 0) is None
    route = table.route("T")
    assert route is not None
    assert route.queues == [queues("a")]
    assert (route.brokers[0].cluster, route.brokers[0].broker_name) == ("C", "a")
    assert route.brokers[0].broker_addrs == {0: "a:0"}
    assert table.route("other") is None


def test_route_joins_every_broker_of_the_topic() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration("T", name="b"), 2, 0)
    route = table.route("T")
    assert route is not None
    assert [b.broker_name for b in route.brokers] == ["a", "b"]
    assert [q.broker_name for q in route.queues] == ["a", "b"]


def test_queues_change_only_with_the_data_version() -> None:
    table = RouteTable()
    table.register(registration("T", perm=6), 1, 0)
    table.register(registration("T", perm=4), 1, 0)
    assert perm_of(table, "T") == 6
    table.register(registration("T", perm=4, version=V2), 1, 0)
    assert perm_of(table, "T") == 4
    table.register(registration("T", perm=6, version=V1), 1, 0)  # another, not a newer one
    assert perm_of(table, "T") == 6


def test_topics_missing_from_a_registration_stay() -> None:
    table = RouteTable()
    table.register(registration("T", "U"), 1, 0)
    table.register(registration("T", version=V2), 1, 0)
    assert table.route("U") is not None


def test_incremental_registration_changes_only_its_topic() -> None:
    table = RouteTable()
    table.register(registration("T", "U"), 1, 0)
    table.register(registration("U", version=V2, perm=4, full=False), 1, 0)
    assert (perm_of(table, "T"), perm_of(table, "U")) == (6, 4)


def test_all_topics_return_after_a_restart_followed_by_an_incremental_registration() -> None:
    """The original loses T and the broker's other topics here."""
    table = RouteTable()  # just restarted
    table.register(registration("U", version=V2, full=False), 1, 0)
    assert table.route("T") is None
    table.register(registration("T", "U", version=V2), 1, 0)
    assert table.route("T") is not None


def test_incomplete_broker_is_told_changed_until_it_sent_everything() -> None:
    """The same for a broker that asks before it registers (forceRegister=false)."""
    table = RouteTable()
    table.register(registration("U", version=V2, full=False), 1, 0)
    assert table.query_data_version("a:0", V2, 1) == (True, V2)
    table.register(registration("T", "U", version=V2), 1, 0)
    assert table.query_data_version("a:0", V2, 1) == (False, V2)
    table.register(registration("U", version=V3, full=False), 1, 0)  # complete stays complete
    assert table.query_data_version("a:0", V3, 1) == (False, V3)


def test_lost_incremental_registration_is_made_good_by_the_next_full_one() -> None:
    table = RouteTable()
    table.register(registration("T", "U"), 1, 0)
    # T became read-only under V2, that registration never came; then U changed under V3.
    table.register(registration("U", version=V3, full=False), 1, 0)
    table.register(registration("T", "U", version=V3, perm=4), 1, 0)
    assert perm_of(table, "T") == 4


def test_data_version_query_of_an_unknown_broker_is_changed_without_a_version() -> None:
    assert RouteTable().query_data_version("x:1", V1, 0) == (True, None)


def test_unchanged_data_version_query_counts_as_a_sign_of_life() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    assert table.query_data_version("a:0", V1, 100_000) == (False, V1)
    assert table.expire(200_000) == []
    assert table.query_data_version("a:0", V2, 200_000) == (True, V1)
    assert len(table.expire(220_001)) == 1


def test_replica_learns_its_master_and_contributes_no_topics() -> None:
    table = RouteTable()
    assert table.register(registration("S", broker_id=1), 2, 0) is None
    assert table.route("S") is None
    table.register(registration("T"), 1, 0)
    master = table.register(registration("S", broker_id=1), 2, 0)
    assert master is not None
    assert (master.address, master.ha_server_addr) == ("a:0", "ha-a:0")
    assert addresses_of(table, "T") == {0: "a:0", 1: "a:1"}
    assert table.route("S") is None


def test_replica_that_becomes_master_moves_to_id_0() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration(broker_id=1, address="x:9"), 2, 0)
    table.lost(1)
    assert addresses_of(table, "T") == {1: "x:9"}
    table.register(registration("T", broker_id=0, address="x:9"), 2, 0)
    assert addresses_of(table, "T") == {0: "x:9"}


def test_second_master_of_a_name_takes_over_and_the_first_ones_end_does_not_remove_it() -> None:
    table = RouteTable()
    table.register(registration("T", address="old:1"), 1, 0)
    table.register(registration("T", address="new:1", version=V2, perm=4), 2, 0)
    assert addresses_of(table, "T") == {0: "new:1"}
    assert perm_of(table, "T") == 4
    table.unregister(broker_name="a", broker_id=0, address="old:1")
    table.lost(1)
    assert addresses_of(table, "T") == {0: "new:1"}


def test_lost_connection_removes_its_broker_at_once() -> None:
    table = RouteTable()
    table.register(registration("T"), "c1", 0)
    table.register(registration("T", name="b"), "c2", 0)
    assert [live.address for live in table.lost("c1")] == ["a:0"]
    route = table.route("T")
    assert route is not None
    assert [q.broker_name for q in route.queues] == ["b"]
    assert table.lost("c2")
    assert table.route("T") is None
    assert (table.topics(), table.groups, table.clusters, table.live_brokers) == ([], {}, {}, [])


def test_broker_that_registered_again_over_a_new_connection_survives_the_end_of_the_old() -> None:
    table = RouteTable()
    table.register(registration("T"), "old", 0)
    table.register(registration("T"), "new", 0)
    assert table.lost("old") == []
    assert table.route("T") is not None


def test_queues_stay_while_a_replica_is_alive() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration(broker_id=1), 2, 0)
    table.lost(1)
    assert addresses_of(table, "T") == {1: "a:1"}
    assert perm_of(table, "T") == 6


def test_silent_broker_expires_after_120_seconds() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration("T", name="b"), 2, 60_000)
    assert table.expire(BROKER_EXPIRY_MS) == []
    assert [live.broker_name for live in table.expire(BROKER_EXPIRY_MS + 1)] == ["a"]
    assert addresses_of(table, "T") == {0: "b:0"}


def test_unregister_removes_the_name_with_its_last_address() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration(broker_id=1), 2, 0)
    table.unregister(broker_name="a", broker_id=0, address="a:0")
    assert addresses_of(table, "T") == {1: "a:1"}
    table.unregister(broker_name="a", broker_id=1, address="a:1")
    assert table.route("T") is None
    assert (table.groups, table.clusters) == ({}, {})
    table.unregister(broker_name="a", broker_id=1, address="a:1")  # again


def test_wiped_write_permission_outlasts_registrations_that_change_nothing_or_one_topic() -> None:
    """A full registration with a new data version undoes it, an incremental one does not."""
    table = RouteTable()
    table.register(registration("T", "U", perm=7), 1, 0)
    assert table.wipe_write_perm("a") == 3
    assert perm_of(table, "T") == 5
    table.register(registration("T", "U", perm=7), 1, 0)
    assert perm_of(table, "T") == 5
    table.register(registration("U", perm=7, version=V2, full=False), 1, 0)
    assert (perm_of(table, "T"), perm_of(table, "U")) == (5, 7)
    table.register(registration("T", "U", perm=7, version=V2), 1, 0)  # the periodic one that follows
    assert perm_of(table, "T") == 5
    table.register(registration("T", "U", perm=7, version=V3), 1, 0)
    assert perm_of(table, "T") == 7


def test_added_write_permission_is_exactly_read_and_write() -> None:
    table = RouteTable()
    table.register(registration("T", perm=7), 1, 0)
    assert table.add_write_perm("a") == 2
    assert perm_of(table, "T") == 6
    assert table.wipe_write_perm("unknown") == 0


def test_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration("T", name="b", cluster="D"), 2, 0)
    table.delete_topic("T", "D")
    assert addresses_of(table, "T") == {0: "a:0"}
    table.delete_topic("T", "nowhere")
    assert table.route("T") is not None
    table.delete_topic("T")
    assert table.route("T") is None
    table.delete_topic("T")


def test_topic_lists_by_cluster_and_system() -> None:
    table = RouteTable()
    table.register(registration("T"), 1, 0)
    table.register(registration("U", name="b", cluster="D"), 2, 0)
    assert sorted(table.topics()) == ["T", "U", "a", "b"]
    assert sorted(table.topics_of_cluster("D")) == ["U", "b"]
    assert table.topics_of_cluster("nowhere") == []
    names, address = table.system_topics()
    assert sorted(names) == ["C", "D", "a", "b"]
    assert address == "a:0"
    assert RouteTable().system_topics() == ([], None)


def test_topic_lists_by_unit_flags() -> None:
    table = RouteTable()
    topics = {f"T{flag}": queues("a", flag=flag) for flag in range(4)}
    table.register(Registration("C", "a", 0, "a:0", "", V1, topics), 1, 0)
    assert table.topics_where(is_unit) == ["T1", "T3"]
    assert table.topics_where(has_unit_subscription) == ["T2", "T3"]
    assert table.topics_where(has_unit_subscription_only) == ["T2"]


def test_filter_servers_are_replaced_kept_or_removed() -> None:
    table = RouteTable()
    table.register(registration("T", filter_servers=["f:1"]), 1, 0)
    route = table.route("T")
    assert route is not None
    assert route.filter_servers == {"a:0": ["f:1"]}
    table.register(registration("T", filter_servers=None), 1, 0)
    route = table.route("T")
    assert route is not None
    assert route.filter_servers == {"a:0": ["f:1"]}
    table.register(registration("T", filter_servers=[]), 1, 0)
    route = table.route("T")
    assert route is not None
    assert route.filter_servers == {}


def test_revision_grows_with_every_change_a_route_shows() -> None:
    table = RouteTable()
    seen = [table.revision]

    def changed() -> bool:
        seen.append(table.revision)
        return seen[-1] > seen[-2]

    table.register(registration("T"), 1, 0)
    assert changed()
    table.register(registration("T"), 1, 5)
    assert not changed()
    table.register(registration(broker_id=1), 2, 0)
    assert changed()
    table.wipe_write_perm("a")
    assert changed()
    table.lost(2)
    assert changed()
    table.delete_topic("T")
    assert changed()
    table.unregister(broker_name="a", broker_id=0, address="a:0")
    assert changed()
