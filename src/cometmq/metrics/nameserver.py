"""The metrics of a NameServer, read from its tables when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.metrics.controller import controller_families
from cometmq.metrics.exposition import Family
from cometmq.metrics.net import net_families

if TYPE_CHECKING:
    from cometmq.nameserver.server import NameServer


def nameserver_families(nameserver: NameServer) -> Iterator[Family]:
    routes = nameserver.routes
    yield Family("cometmq_nameserver_brokers", "Brokers that registered lately").add(len(routes.live_brokers))
    yield Family("cometmq_nameserver_topics", "Topics with a route").add(len(routes.topics()))
    yield Family("cometmq_nameserver_clusters", "Clusters known").add(len(routes.clusters))
    yield from controller_families(nameserver.controller)
    yield from net_families(nameserver.net.metrics, "nameserver")
