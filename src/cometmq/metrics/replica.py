"""Metrics of a broker whose group elects its master."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.metrics.exposition import COUNTER, Family

if TYPE_CHECKING:
    from cometmq.broker.ha.group_replication import GroupReplication

STANDINGS = ("PROMOTING", "SERVING", "NOLEASE", "FENCED")


def replica_families(group: GroupReplication | None) -> Iterator[Family]:
    if group is None:
        return
    status = group.status()
    role = Family("cometmq_ha_role", "What this replica is now; 1 for the one that holds")
    for name in ("JOINING", "FOLLOWER", "MASTER", "FAILED"):
        role.add(int(status["role"] == name), role=name.lower())
    yield role
    standing = Family("cometmq_ha_standing", "What this replica may do as master; 1 for the one that holds")
    for name in STANDINGS:
        standing.add(int(status["standing"] == name), standing=name.lower())
    yield standing
    yield Family("cometmq_ha_epoch", "Epoch of the master it knows").add(status["epoch"])
    yield Family("cometmq_ha_lease", "1 while the master holds a lease").add(int(status["lease"]))
    yield Family("cometmq_ha_in_sync_replicas", "Members of the in-sync set").add(len(status["syncSet"]))
    offsets = Family("cometmq_ha_offset_bytes", "Positions in the log of this replica")
    for name in ("min", "max", "flushed", "confirm", "dispatched"):
        offsets.add(status[f"{name}Offset"], position=name)
    yield offsets
    lag = Family("cometmq_ha_follower_lag_bytes", "How far a follower is behind its master")
    seconds = Family("cometmq_ha_follower_lag_seconds", "Since when a follower has not had everything")
    for number, follower in status["followers"].items():
        lag.add(follower["lagBytes"], replica=number)
        seconds.add(follower["lagMs"] / 1000, replica=number)
    yield lag
    yield seconds
    yield Family("cometmq_ha_sends_waiting", "Sends that wait to be confirmed").add(status["waitingSends"])
    yield Family("cometmq_ha_elections_total", "How often this replica became master", COUNTER).add(
        status["elections"]
    )
    yield Family("cometmq_ha_forwarded_total", "Requests passed on to the new master", COUNTER).add(
        status["forwarded"]
    )
    yield Family("cometmq_ha_confirm_timeouts_total", "Sends not confirmed within slaveTimeout", COUNTER).add(
        group.member.waits.timeouts
    )
