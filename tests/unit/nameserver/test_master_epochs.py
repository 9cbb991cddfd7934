"""A NameServer knows in which epoch a master was elected, and does not believe the one before."""

from __future__ import annotations

import pytest

from cometmq.nameserver.routes import OldEpoch, Registration, RouteTable
from cometmq.protocol.bodies.topic import DataVersion


def registration(address: str, broker_id: int = 0, epoch: int = 0) -> Registration:
    return Registration("C", "B", broker_id, address, "ha", DataVersion(), {}, master_epoch=epoch)


def test_a_master_that_was_replaced_does_not_come_back() -> None:
    routes = RouteTable()
    routes.register(registration("a:1", epoch=1), "one", 0)
    routes.register(registration("b:1", epoch=2), "two", 0)
    with pytest.raises(OldEpoch, match="epoch 1, another one in epoch 2"):
        routes.register(registration("a:1", epoch=1), "one", 0)
    routes.register(registration("a:1", broker_id=3), "one", 0)
    info = routes.groups["B"]
    assert info.broker_addrs == {0: "b:1", 3: "a:1"}


def test_brokers_without_epochs_are_taken_as_ever() -> None:
    routes = RouteTable()
    routes.register(registration("a:1"), "one", 0)
    routes.register(registration("b:1"), "two", 0)
    assert routes.groups["B"].broker_addrs == {0: "b:1"}


def test_a_group_that_has_gone_may_begin_again() -> None:
    routes = RouteTable()
    routes.register(registration("a:1", epoch=7), "one", 0)
    routes.lost("one")
    routes.register(registration("a:1"), "one", 0)
    assert routes.groups["B"].broker_addrs == {0: "a:1"}
