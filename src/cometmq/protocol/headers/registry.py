"""Ext fields of the NameServer: key-values, registration of brokers, routes, write permission."""

from __future__ import annotations

from msgspec import field as wire

from cometmq.protocol.header import Header, Int32, Int64


class PutKVConfigHeader(Header, kw_only=True):
    """PUT_KV_CONFIG 100."""

    namespace: str = wire(name="namespace")
    key: str = wire(name="key")
    value: str = wire(name="value")


class KVConfigHeader(Header, kw_only=True):
    """GET_KV_CONFIG 101, DELETE_KV_CONFIG 102."""

    namespace: str = wire(name="namespace")
    key: str = wire(name="key")


class KVConfigResponseHeader(Header, kw_only=True):
    """Answer to GET_KV_CONFIG."""

    value: str | None = wire(name="value", default=None)


class NamespaceHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE 219."""

    namespace: str = wire(name="namespace")


class RegisterBrokerHeader(Header, kw_only=True):
    """REGISTER_BROKER 103."""

    broker_name: str = wire(name="brokerName")
    broker_addr: str = wire(name="brokerAddr")
    cluster_name: str = wire(name="clusterName")
    ha_server_addr: str = wire(name="haServerAddr")
    broker_id: Int64 = wire(name="brokerId")
    compressed: bool | None = wire(name="compressed", default=None)
    body_crc32: Int32 | None = wire(name="bodyCrc32", default=None)


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """Answer to REGISTER_BROKER."""

    ha_server_addr: str | None = wire(name="haServerAddr", default=None)
    master_addr: str | None = wire(name="masterAddr", default=None)


class BrokerHeader(Header, kw_only=True):
    """UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322."""

    broker_name: str = wire(name="brokerName")
    broker_addr: str = wire(name="brokerAddr")
    cluster_name: str = wire(name="clusterName")
    broker_id: Int64 = wire(name="brokerId")


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool = wire(name="changed")


class GetRouteInfoHeader(Header, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC 105."""

    topic: str = wire(name="topic")
    accept_standard_json_only: bool | None = wire(name="acceptStandardJsonOnly", default=None)


class BrokerNameHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER 205, ADD_WRITE_PERM_OF_BROKER 327."""

    broker_name: str = wire(name="brokerName")


class WipeWritePermResponseHeader(Header, kw_only=True):
    """Answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32 = wire(name="wipeTopicCount")


class AddWritePermResponseHeader(Header, kw_only=True):
    """Answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32 = wire(name="addTopicCount")


class ClusterHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER 224."""

    cluster: str = wire(name="cluster")
