"""Blocking admin. Made by scripts/make_sync_admin.py from the files in cometmq/admin: do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cometmq.admin.admin import Admin as AsyncAdmin
from cometmq.admin.messages import LONG_MAX
from cometmq.admin.offsets import Moment
from cometmq.admin.topics import PERM_READ_WRITE, TopicSettings
from cometmq.client.loop_thread import LoopThread
from cometmq.client.message import ReceivedMessage
from cometmq.client.queue import Queue
from cometmq.protocol.bodies.access import AclConfig
from cometmq.protocol.bodies.connections import ConsumerConnection, ProducerConnection, ProducerInfo
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.bodies.route import ClusterInfo, TopicRouteData
from cometmq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from cometmq.protocol.bodies.stats import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    TopicOffset,
)
from cometmq.protocol.bodies.topic import TopicConfig
from cometmq.protocol.headers import AclInfoResponseHeader


class Admin:
    """As ``cometmq.Admin``, blocking."""

    def __init__(self, thread: LoopThread, inner: AsyncAdmin) -> None:
        self._thread = thread
        self._inner = inner

    def cluster_info(self) -> ClusterInfo:
        """Clusters, broker names, addresses, as a NameServer knows them."""
        return self._thread.run(self._inner.cluster_info())

    def masters(self, cluster: str | None = None, broker: str | None = None) -> dict[str, str]:
        """Broker name to address of its master; of one cluster or one broker if named."""
        return self._thread.run(self._inner.masters(cluster, broker))

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = PERM_READ_WRITE,
        cluster: str | None = None,
        broker: str | None = None,
        order: bool = False,
    ) -> list[TopicSettings]:
        """Create a topic, or change it, on every master (of a cluster, or on one broker)."""
        return self._thread.run(
            self._inner.create_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                cluster=cluster,
                broker=broker,
                order=order,
            )
        )

    def topics(self, cluster: str | None = None, *, system: bool = False) -> list[str]:
        """Names of topics, sorted; with ``system`` also retry, dead-letter and internal ones."""
        return self._thread.run(self._inner.topics(cluster, system=system))

    def topic_route(self, topic: str) -> TopicRouteData:
        """Brokers and queue counts of a topic."""
        return self._thread.run(self._inner.topic_route(topic))

    def topic_stats(self, topic: str) -> dict[Queue, TopicOffset]:
        """First and last offset and time of the last message, of every queue."""
        return self._thread.run(self._inner.topic_stats(topic))

    def topic_settings(self, topic: str) -> list[TopicSettings]:
        """The settings at each broker that has the topic."""
        return self._thread.run(self._inner.topic_settings(topic))

    def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Every topic of one broker with all its settings."""
        return self._thread.run(self._inner.topic_configs(address))

    def topic_groups(self, topic: str) -> list[str]:
        """Consumer groups that read a topic."""
        return self._thread.run(self._inner.topic_groups(topic))

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic with its messages, at brokers and NameServers."""
        self._thread.run(self._inner.delete_topic(topic, cluster))

    def create_group(
        self, group: str, *, cluster: str | None = None, broker: str | None = None, **settings: Any
    ) -> None:
        """Create or change a consumer group; settings are fields of SubscriptionGroupConfig."""
        self._thread.run(self._inner.create_group(group, cluster=cluster, broker=broker, **settings))

    def groups(self, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Every consumer group that brokers know, by name."""
        return self._thread.run(self._inner.groups(cluster))

    def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """The groups of one broker as it stores them, with namespaces."""
        return self._thread.run(self._inner.group_configs(address))

    def group_settings(self, group: str) -> SubscriptionGroupConfig:
        """The settings of a group; ClientError if no broker knows it."""
        return self._thread.run(self._inner.group_settings(group))

    def delete_group(self, group: str, *, remove_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a group with its retry and dead-letter topics."""
        self._thread.run(self._inner.delete_group(group, remove_offsets=remove_offsets, cluster=cluster))

    def members(self, group: str) -> ConsumerConnection | None:
        """Who consumes in a group now, and what they subscribe; None when nobody does."""
        return self._thread.run(self._inner.members(group))

    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """Ask a member itself what it holds; the broker passes the question on."""
        return self._thread.run(self._inner.running_info(group, client_id, stacks=stacks))

    def producers(self, group: str) -> ProducerConnection | None:
        """Members of a producer group, None when nobody is connected."""
        return self._thread.run(self._inner.producers(group))

    def all_producers(self, address: str) -> dict[str, list[ProducerInfo]]:
        """Every producer of one broker, by group."""
        return self._thread.run(self._inner.all_producers(address))

    def progress(self, group: str, topic: str | None = None) -> dict[Queue, OffsetWrapper]:
        """Broker offset and consumer offset of every queue a group reads, its retry topic included."""
        return self._thread.run(self._inner.progress(group, topic))

    def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Progress and rate of a group over all brokers. Queue names without namespace."""
        return self._thread.run(self._inner.consume_stats(group, topic))

    def lag(self, group: str, topic: str | None = None) -> dict[Queue, int]:
        """Messages that a group has not consumed yet, by queue; queues of its retry topic are left out."""
        return self._thread.run(self._inner.lag(group, topic))

    def queues(self, topic: str) -> list[Queue]:
        """The readable queues of a topic."""
        return self._thread.run(self._inner.queues(topic))

    def max_offset(self, queue: Queue) -> int:
        """The offset that the next message of a queue will have."""
        return self._thread.run(self._inner.max_offset(queue))

    def min_offset(self, queue: Queue) -> int:
        """The offset of the first message that a queue still has."""
        return self._thread.run(self._inner.min_offset(queue))

    def offset_at(self, queue: Queue, moment: Moment) -> int:
        """Offset of the first message stored at or after a moment."""
        return self._thread.run(self._inner.offset_at(queue, moment))

    def committed(self, group: str, queue: Queue) -> int | None:
        """The stored offset of a group, None without one."""
        return self._thread.run(self._inner.committed(group, queue))

    def set_offset(self, group: str, queue: Queue, offset: int) -> None:
        """Store an offset. A running member overwrites it: use ``reset_offsets`` for groups that are online."""
        self._thread.run(self._inner.set_offset(group, queue, offset))

    def reset_offsets(
        self, group: str, topic: str, to: Moment | str, *, force: bool = True
    ) -> dict[Queue, int]:
        """Move a group in a topic to a moment, ``"begin"`` or ``"end"``; online members are told to follow."""
        return self._thread.run(self._inner.reset_offsets(group, topic, to, force=force))

    def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool = False) -> None:
        """Give a group the offsets of another one."""
        self._thread.run(self._inner.clone_offsets(source, target, topic, offline=offline))

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """One message by either kind of id; a unique id needs the topic."""
        return self._thread.run(self._inner.message(message_id, topic))

    def by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Every stored copy of a message, the first stored first."""
        return self._thread.run(self._inner.by_unique_id(topic, unique_id))

    def by_key(
        self, topic: str, key: str, *, max_count: int = 64, begin_ms: int = 0, end_ms: int = LONG_MAX
    ) -> list[ReceivedMessage]:
        """Messages with a key, oldest first."""
        return self._thread.run(
            self._inner.by_key(topic, key, max_count=max_count, begin_ms=begin_ms, end_ms=end_ms)
        )

    def read(self, queue: Queue, offset: int, max_count: int = 32) -> tuple[list[ReceivedMessage], int]:
        """Messages of a queue from an offset on, without any group; and the offset to go on with."""
        return self._thread.run(self._inner.read(queue, offset, max_count))

    def consume_directly(self, group: str, client_id: str, message_id: str) -> ConsumeMessageDirectlyResult:
        """Have one member of a group handle a message now (by its offset id)."""
        return self._thread.run(self._inner.consume_directly(group, client_id, message_id))

    def broker_config(self, address: str) -> dict[str, str]:
        """Every setting of a broker."""
        return self._thread.run(self._inner.broker_config(address))

    def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker."""
        self._thread.run(self._inner.update_broker_config(address, settings))

    def runtime_info(self, address: str) -> dict[str, str]:
        """What a broker tells about itself: rates, disk, offsets, version."""
        return self._thread.run(self._inner.runtime_info(address))

    def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData:
        """One counter of a broker, e.g. ``TOPIC_PUT_NUMS`` of a topic."""
        return self._thread.run(self._inner.broker_stats(address, name, key))

    def broker_consume_stats(self, address: str, *, ordered: bool = False) -> ConsumeStatsList:
        """Offsets of every group of a broker, and how far they are behind in all."""
        return self._thread.run(self._inner.broker_consume_stats(address, ordered=ordered))

    def queue_entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int = 10, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a ConsumeQueue file; with a group also whether its filter lets them through."""
        return self._thread.run(self._inner.queue_entries(address, topic, queue_id, index, count, group))

    def clean_unused_topics(self, address: str) -> None:
        """Have a broker delete the queues of topics that do not exist any more."""
        self._thread.run(self._inner.clean_unused_topics(address))

    def clean_expired_queues(self, address: str) -> None:
        """Have a broker delete the files of queues whose messages are gone from the log."""
        self._thread.run(self._inner.clean_expired_queues(address))

    def delete_expired_log(self, address: str) -> None:
        """Have a broker delete the files of its log whose time is over, now."""
        self._thread.run(self._inner.delete_expired_log(address))

    def wipe_write_permission(self, broker_name: str) -> int:
        """Let producers avoid a broker; returns the number of topics concerned."""
        return self._thread.run(self._inner.wipe_write_permission(broker_name))

    def add_write_permission(self, broker_name: str) -> int:
        """Let clients send to a broker again that ``wipe_write_permission`` took out; how many topics it concerns."""
        return self._thread.run(self._inner.add_write_permission(broker_name))

    def name_server_config(self, address: str) -> dict[str, str]:
        """The settings of a NameServer."""
        return self._thread.run(self._inner.name_server_config(address))

    def update_name_server_config(self, settings: Mapping[str, str]) -> None:
        """Change settings at every NameServer."""
        self._thread.run(self._inner.update_name_server_config(settings))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a pair of the NameServers' key-value table, at every NameServer."""
        self._thread.run(self._inner.put_kv(namespace, key, value))

    def get_kv(self, namespace: str, key: str) -> str | None:
        """A value of the NameServers' key-value table, None if there is none."""
        return self._thread.run(self._inner.get_kv(namespace, key))

    def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a pair of the NameServers' key-value table."""
        self._thread.run(self._inner.delete_kv(namespace, key))

    def kv_list(self, namespace: str) -> dict[str, str]:
        """All pairs of a namespace of the NameServers' key-value table."""
        return self._thread.run(self._inner.kv_list(namespace))

    def ha_status(self, address: str) -> dict[str, Any] | None:
        """What a replica says about itself and its group; None if the broker's group does not elect its master."""
        return self._thread.run(self._inner.ha_status(address))

    def ha_checksum(self, address: str, begin: int, end: int) -> str:
        """SHA-256 of a part of a replica's log, in hexadecimal."""
        return self._thread.run(self._inner.ha_checksum(address, begin, end))

    def switch_master(self, broker: str, to: int = 0) -> dict[str, Any]:
        """Hand the mastership of a group over, to a replica or to whom the controllers choose."""
        return self._thread.run(self._inner.switch_master(broker, to))

    def remove_replica(self, broker: str, replica_id: int) -> None:
        """Forget a replica for ever; its number is not used again."""
        self._thread.run(self._inner.remove_replica(broker, replica_id))

    def force_master(self, broker: str, replica_id: int) -> None:
        """Make a replica master that may lack confirmed messages. Refused while a better one is alive."""
        self._thread.run(self._inner.force_master(broker, replica_id))

    def accounts(self, address: str) -> AclConfig:
        """All accounts and the addresses that need none; brokers tell secrets only to admins, in part or not at all."""
        return self._thread.run(self._inner.accounts(address))

    def account_version(self, address: str) -> AclInfoResponseHeader:
        """Counts and times the changes."""
        return self._thread.run(self._inner.account_version(address))

    def set_account(
        self,
        address: str,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool | None = None,
        topic_perms: str | None = None,
        group_perms: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        white_remote_address: str | None = None,
    ) -> None:
        """Create an account or change what is given of it; permissions as ``topicA=PUB|SUB,topicB=DENY``."""
        self._thread.run(
            self._inner.set_account(
                address,
                access_key,
                secret_key=secret_key,
                admin=admin,
                topic_perms=topic_perms,
                group_perms=group_perms,
                default_topic_perm=default_topic_perm,
                default_group_perm=default_group_perm,
                white_remote_address=white_remote_address,
            )
        )

    def delete_account(self, address: str, access_key: str) -> None:
        """Delete an account at a broker."""
        self._thread.run(self._inner.delete_account(address, access_key))

    def set_white_addresses(self, address: str, addresses: Sequence[str]) -> None:
        """Whoever comes from these needs no account."""
        self._thread.run(self._inner.set_white_addresses(address, addresses))
