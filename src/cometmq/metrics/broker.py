"""The metrics of a broker, read from its counters when somebody asks; nothing is kept here."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.broker.counters import LATENCY_BOUNDS_US, Histogram
from cometmq.broker.stats import GROUP_GET_NUMS, GROUP_GET_SIZE, TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
from cometmq.metrics.controller import controller_families
from cometmq.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Family
from cometmq.metrics.net import net_families
from cometmq.metrics.replica import replica_families

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

LAG_SERIES_MAX = 10_000  # (group, topic) pairs in one answer
SECONDS = [bound / 1_000_000 for bound in LATENCY_BOUNDS_US]


def broker_families(broker: Broker) -> Iterator[Family]:
    broker.collect()
    yield from _identity(broker)
    yield from _traffic(broker)
    yield from _topics(broker)
    yield _lag(broker)
    yield from _store(broker)
    yield from _held_pulls(broker)
    yield from _waiting(broker)
    yield from _clients(broker)
    yield from controller_families(broker.group.controller if broker.group is not None else None)
    yield from replica_families(broker.group)
    yield from _process()
    yield from net_families(broker.net_metrics, "broker")


def _identity(broker: Broker) -> Iterator[Family]:
    from cometmq import __version__

    config = broker.config
    yield Family("cometmq_broker_info", "Name, cluster and address of the broker").add(
        1,
        version=__version__,
        broker=config.broker_name,
        cluster=config.broker_cluster_name,
        address=broker.address,
        role=config.broker_role,
    )
    yield Family("cometmq_broker_start_time_seconds", "When the broker was started").add(
        broker.boot_timestamp_ms / 1000
    )


def _traffic(broker: Broker) -> Iterator[Family]:
    counters = broker.counters
    yield _total("cometmq_messages_in", "Messages stored for clients", counters.puts)
    yield _total("cometmq_bytes_in", "Bytes of records stored for clients", counters.put_bytes)
    yield _total("cometmq_sends_failed", "Sends that stored nothing", counters.puts_failed)
    yield _total("cometmq_sends_refused", "Sends answered with SYSTEM_BUSY", broker.flow_control.refused)
    if broker.acl is not None:
        yield _total("cometmq_requests_denied", "Requests that access control refused", broker.acl.denied)
    yield Family("cometmq_sends_waiting", "Sends stored, answer waits for disk or replica").add(
        broker.flow_control.waiting
    )
    yield _total("cometmq_messages_out", "Messages handed out to pulls", counters.messages_out)
    yield _total("cometmq_bytes_out", "Bytes of records handed out to pulls", counters.bytes_out)
    yield (
        Family("cometmq_pulls_total", "Pulls answered, by whether they got messages", COUNTER)
        .add(counters.gets_found, result="found")
        .add(counters.gets_missed, result="empty")
    )
    yield _total("cometmq_offsets_moved", "Pulls from an offset that does not exist", counters.offsets_moved)
    yield _latency("cometmq_send_seconds", "From request to answer of a send", counters.put_times)
    yield _latency(
        "cometmq_pull_seconds", "Serving a pull, without waiting for messages", counters.pull_times
    )


def _topics(broker: Broker) -> Iterator[Family]:
    families = {
        TOPIC_PUT_NUMS: Family("cometmq_topic_messages_in_total", "Messages stored per topic", COUNTER),
        TOPIC_PUT_SIZE: Family("cometmq_topic_bytes_in_total", "Bytes stored per topic", COUNTER),
        GROUP_GET_NUMS: Family("cometmq_group_messages_out_total", "Messages pulled per group", COUNTER),
        GROUP_GET_SIZE: Family("cometmq_group_bytes_out_total", "Bytes pulled per group", COUNTER),
    }
    for name, key, total in broker.stats.totals():
        family = families.get(name)
        if family is None:
            continue
        if name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
            family.add(total, topic=key)
        else:
            topic, _, group = key.partition("@")
            family.add(total, topic=topic, group=group)
    yield from families.values()
    yield Family("cometmq_topics", "Topics known").add(len(broker.topics.table))
    yield Family("cometmq_groups", "Consumer groups known").add(len(broker.groups))


def _lag(broker: Broker) -> Family:
    """Messages that a group has not yet committed. Queues without a committed offset do not count."""
    family = Family("cometmq_group_lag_messages", "Messages not yet consumed by a group")
    pairs = [(group, topic) for group in broker.offsets.groups() for topic in broker.offsets.topics_of(group)]
    for group, topic in pairs[:LAG_SERIES_MAX]:
        queues = broker.offsets.queues(group, topic)
        behind = [broker.store.max_offset(topic, queue) - offset for queue, offset in queues.items()]
        family.add(sum(lag for lag in behind if lag > 0), group=group, topic=topic)
    return family


def _waiting(broker: Broker) -> Iterator[Family]:
    yield (
        Family("cometmq_messages_waiting", "Messages that wait for their time or for their commit")
        .add(broker.delay.pending, kind="delay_level")
        .add(broker.timers.pending, kind="timer")
        .add(broker.transactions.pending, kind="transaction")
    )
    yield _total("cometmq_transaction_checks", "Questions to producers", broker.transactions.checks_sent)
    yield _total("cometmq_transactions_given_up", "Transactions nobody ended", broker.transactions.given_up)


def _store(broker: Broker) -> Iterator[Family]:
    store = broker.store
    yield Family("cometmq_commit_log_min_offset_bytes", "First byte still in the log").add(
        store.min_physical_offset
    )
    yield Family("cometmq_commit_log_max_offset_bytes", "End of the log").add(store.max_physical_offset)
    yield Family("cometmq_commit_log_flushed_offset_bytes", "Everything below is on disk").add(
        store.flushed_offset
    )
    yield Family("cometmq_flush_behind_bytes", "Written, not yet on disk").add(
        max(0, store.max_physical_offset - store.flushed_offset)
    )
    yield Family("cometmq_store_writable", "1 when the store takes messages").add(int(store.writable))
    log_ratio, queue_ratio, index_ratio = broker.disk_ratios()
    yield (
        Family("cometmq_disk_used_ratio", "How full the disk is, 0 to 1")
        .add(log_ratio, part="commitlog")
        .add(queue_ratio, part="consumequeue")
        .add(index_ratio, part="index")
    )
    yield _total(
        "cometmq_cold_reads", "Pulls whose pages were read from disk first", broker.counters.cold_reads
    )


def _held_pulls(broker: Broker) -> Iterator[Family]:
    held = broker.held_pulls
    yield Family("cometmq_held_pulls", "Pulls that wait for a message").add(held.count)
    yield (
        Family("cometmq_held_pulls_ended_total", "Held pulls by how they ended", COUNTER)
        .add(held.woken, end="woken")
        .add(held.expired, end="expired")
        .add(held.abandoned, end="connection_closed")
    )


def _clients(broker: Broker) -> Iterator[Family]:
    yield Family("cometmq_producer_groups_online", "Producer groups with a connection").add(
        len(broker.producers.groups())
    )
    yield Family("cometmq_consumer_groups_online", "Consumer groups with a connection").add(
        len(broker.consumers)
    )
    registration = broker.registration
    yield _total("cometmq_registrations", "Registrations taken by NameServers", registration.registrations)
    yield _total("cometmq_registration_failures", "Registrations that failed", registration.failures)
    yield _total("cometmq_periodic_failures", "Rounds of periodic work that failed", broker.periodic.failures)


def _process() -> Iterator[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Family("process_cpu_seconds_total", "CPU time of the process", COUNTER).add(
        usage.ru_utime + usage.ru_stime
    )
    yield (
        Family("cometmq_page_faults_total", "Page faults; major ones waited for the disk", COUNTER)
        .add(usage.ru_majflt, kind="major")
        .add(usage.ru_minflt, kind="minor")
    )
    memory = _resident_bytes()
    yield (
        Family("process_resident_memory_bytes", "Resident memory, mapped files included").add(
            sum(memory.values())
        )
    )
    family = Family("cometmq_resident_memory_bytes", "Resident memory by what it holds", GAUGE)
    for kind, size in memory.items():
        family.add(size, kind=kind)
    yield family


def _resident_bytes() -> dict[str, int]:
    """Own memory and mapped files apart: only the first is a cost, the second is page cache."""
    names = {"RssAnon:": "anonymous", "RssFile:": "files", "RssShmem:": "shared"}
    found = {}
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                word = line.split()
                if word and word[0] in names:
                    found[names[word[0]]] = int(word[1]) * 1024
    except OSError:
        pass  # not Linux
    return found


def _total(name: str, help_text: str, value: float) -> Family:
    return Family(f"{name}_total", help_text, COUNTER).add(value)


def _latency(name: str, help_text: str, histogram: Histogram) -> Family:
    return Family(name, help_text, HISTOGRAM).add_histogram(
        SECONDS, histogram.counts, histogram.total_us / 1_000_000
    )
