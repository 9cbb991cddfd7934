"""Where topics live: TopicRouteData (105) and ClusterInfo (106)."""

from __future__ import annotations

from msgspec import field

from cometmq.protocol import json_java
from cometmq.protocol.bodies.body import Body

MASTER_ID = 0


class BrokerData(Body, kw_only=True):
    """The addresses of one broker name: id 0 is the master, others are slaves."""

    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""

    @property
    def master_addr(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)


class QueueData(Body, kw_only=True):
    """How many queues a topic has on one broker name, and what may be done there."""

    broker_name: str = ""
    perm: int = 0
    read_queue_nums: int = 0
    topic_sys_flag: int = 0
    write_queue_nums: int = 0


class TopicRouteData(Body, kw_only=True):
    """Answer to GET_ROUTEINFO_BY_TOPIC."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)

    def encode(self, *, strict: bool = False) -> bytes:
        """Java's form with bare integer keys, or strict JSON for requesters of version 401 and up."""
        return (json_java.dumps_strict(self) if strict else json_java.dumps(self)).encode()


class ClusterInfo(Body, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_INFO: brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)
