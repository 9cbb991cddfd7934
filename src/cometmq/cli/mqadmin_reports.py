"""mqadmin commands that report on many things at once, export settings, or change permissions of topics."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cometmq.cli.mqadmin_base import (
    BROKER,
    CLUSTER,
    GROUP,
    TOPIC,
    Lines,
    Option,
    broker_name,
    cells,
    command,
    targets_of,
    time_text,
    whole,
)
from cometmq.errors import ClientError
from cometmq.protocol import json_java
from cometmq.protocol.codes import version_name

if TYPE_CHECKING:
    from cometmq.client.client import Client
    from cometmq.protocol.bodies.running_info import ConsumerRunningInfo
    from cometmq.protocol.bodies.stats import BrokerStatsData

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
EXPORT_DIRECTORY = Path("/tmp/rocketmq/export")  # the original's
RULER = "=" * 38
PASSED_ON = ("%RETRY%", "%DLQ%")
EXPORTED_SETTINGS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip


# --- topics ---


@command(
    "updateTopicPerm",
    "Update topic perm",
    TOPIC,
    BROKER,
    CLUSTER,
    Option("p", "perm", "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]", True),
)
async def update_topic_perm(client: Client, args: argparse.Namespace) -> Lines:
    perm, lines = whole(args, "perm"), []
    known = {one.broker_name: one for one in (await client.admin.topic_route(args.topic)).queue_datas}
    for address in await targets_of(client, args):
        name = await broker_name(client, address)
        if name not in known:
            raise ClientError(f"broker {name!r} does not hold topic {args.topic!r}")
        old = known[name]
        if old.perm == perm and args.brokerAddr:
            return ["new perm equals to the old one!"]
        await client.admin.create_topic(
            args.topic,
            read_queues=old.read_queue_nums,
            write_queues=old.write_queue_nums,
            perm=perm,
            broker=name,
        )
        lines.append(f"update topic perm from {old.perm} to {perm} in {address} success.")
    return lines


@command(
    "updateOrderConf",
    "Create or update or delete order conf",
    TOPIC,
    Option("v", "orderConf", "set order conf [eg. brokerName1:num;brokerName2:num]"),
    Option("m", "method", "option type [eg. put|get|delete]", True),
)
async def update_order_conf(client: Client, args: argparse.Namespace) -> Lines:
    method = args.method.strip()
    if method == "get":
        found = await client.admin.get_kv(ORDER_NAMESPACE, args.topic)
        if found is None:
            raise ClientError(f"topic {args.topic!r} has no order conf; set it with -m put -v broker:queues")
        return [f"get orderConf success. topic=[{args.topic}], orderConf=[{found}] "]
    if method == "put":
        if not args.orderConf:
            raise ClientError("please set orderConf with option -v")
        await client.admin.put_kv(ORDER_NAMESPACE, args.topic, args.orderConf)
        return [f"update orderConf success. topic=[{args.topic}], orderConf=[{args.orderConf}]"]
    if method == "delete":
        await client.admin.delete_kv(ORDER_NAMESPACE, args.topic)
        return [f"delete orderConf success. topic=[{args.topic}]"]
    raise ClientError(f"-m is put, get or delete, not {method!r}")


# --- rates and lags ---


def _day_sum(stats: BrokerStatsData) -> int:
    """The longest period that was counted."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


async def _rate(client: Client, masters: list[str], name: str, key: str) -> tuple[float, int]:
    """Messages a second in the last minute, and of the last day, over all brokers."""
    from cometmq.errors import BrokerError

    rate, day = 0.0, 0
    for address in masters:
        try:
            stats = await client.admin.broker_stats(address, name, key)
        except BrokerError:  # nothing was counted there yet
            continue
        rate += stats.stats_minute.tps
        day += _day_sum(stats)
    return rate, day


@command(
    "statsAll",
    "Topic and Consumer tps stats",
    Option("a", "activeTopic", "print active topic only", flag=True),
    Option("t", "topic", "print select topic only"),
)
async def stats_all(client: Client, args: argparse.Namespace) -> Lines:
    head = (
        "#Topic",
        "#Consumer Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    )
    lines = ["{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}".format(*head)]
    for topic in await client.admin.topics(system=True):
        if not topic.startswith(PASSED_ON) and args.topic in (None, topic):
            lines += await _topic_rates(client, topic, active_only=args.activeTopic)
    return lines


async def _topic_rates(client: Client, topic: str, *, active_only: bool) -> Lines:
    masters = list((await client.admin.masters()).values())
    in_rate, in_day = await _rate(client, masters, "TOPIC_PUT_NUMS", topic)
    groups = await client.admin.topic_groups(topic)
    lines = []
    for group in groups:
        out_rate, out_day = await _rate(client, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        if active_only and not (in_rate or out_rate or in_day or out_day):
            continue
        behind = sum((await client.admin.lag(group, topic)).values())
        lines.append(
            f"{topic:<64}  {group:<64} {behind:>12} {in_rate:>11.2f} {out_rate:>11.2f} {in_day:>14} {out_day:>14}"
        )
    if not groups and (in_day or not active_only):
        lines.append(
            f"{topic:<64}  {'':<64} {0:>12} {in_rate:>11.2f} {'':>11} {in_day:>14} {'NO_CONSUMER':>14}"
        )
    return lines


@command(
    "brokerConsumeStats",
    "Fetch broker consume stats data",
    Option("b", "brokerAddr", "Broker address", True),
    Option("t", "timeoutMillis", "request timeout Millis"),
    Option("l", "level", "threshold of print diff"),
    Option("o", "order", "order topic"),
)
async def broker_consume_stats(client: Client, args: argparse.Namespace) -> Lines:
    order = (args.order or "false").lower() == "true"
    found = await client.admin.broker_consume_stats(args.brokerAddr, ordered=order)
    widths = (64, 64, 32, 4, 20, 20, 20, 20)
    head = (
        "#Topic",
        "#Group",
        "#Broker Name",
        "#QID",
        "#Broker Offset",
        "#Consumer Offset",
        "#Diff",
        "#LastTime",
    )
    lines, level = [cells(widths, head)], whole(args, "level", 0)
    for groups in found.consume_stats_list:
        for group, listed in groups.items():
            for queue, one in (pair for stats in listed for pair in stats.offset_table.items()):
                diff = one.broker_offset - one.consumer_offset
                if diff >= level:
                    row = (queue.topic, group, queue.broker_name, queue.queue_id, one.broker_offset)
                    last = time_text(one.last_timestamp)
                    lines.append(cells(widths, (*row, one.consumer_offset, diff, last)))
    return [*lines, "", f"Diff Total: {found.total_diff}"]


# --- clients and groups ---


@command(
    "getConsumerConfig",
    "Get consumer config by subscription group name!",
    Option("g", "groupName", "subscription group name", True),
)
async def get_consumer_config(client: Client, args: argparse.Namespace) -> Lines:
    info, lines = await client.admin.cluster_info(), []
    for name, address in (await client.admin.masters()).items():
        config = (await client.admin.group_configs(address)).get(args.groupName)
        if config is not None:
            line = "=" * 29
            lines.append(f"{line}{info.broker_addr_table[name].cluster}:{name}{line}")
            facts = msgspec.to_builtins(config)
            lines += [f"{key:<40}=  {_java(value)}" for key, value in facts.items()]
    return lines


def _java(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else value


@command(
    "producer",
    "Query producer's instances, connection, status, etc.",
    Option("b", "broker", "broker address", True),
)
async def producer(client: Client, args: argparse.Namespace) -> Lines:
    return [
        f"producer group ({group}) instance : clientId={one.client_id},remoteIP={one.remote_ip}, "
        f"language={one.language}, version={one.version}, lastUpdateTimestamp={one.last_update_timestamp}"
        for group, listed in (await client.admin.all_producers(args.broker)).items()
        for one in listed
    ]


@command(
    "consumerStatus",
    "Query consumer's internal data structure",
    GROUP,
    Option("i", "clientId", "The consumer's client id"),
    BROKER,
    Option("s", "jstack", "Run jstack command in the consumer progress", flag=True),
)
async def consumer_status(client: Client, args: argparse.Namespace) -> Lines:
    group = args.consumerGroup
    if args.clientId:
        return _running_lines(await client.admin.running_info(group, args.clientId, stacks=args.jstack))
    members = await client.admin.members(group)
    if members is None:
        raise ClientError(f"Not found the consumer group connection: group {group!r} is not online")
    widths = (10, 40, 20)
    lines, subscriptions = [cells(widths, ("#Index", "#ClientId", "#Version"))], set()
    for number, one in enumerate(members.connection_set, 1):
        lines.append(cells(widths, (number, one.client_id, version_name(one.version))))
        info = await client.admin.running_info(group, one.client_id)
        subscriptions.add(frozenset((each.topic, each.sub_string) for each in info.subscription_set))
    if len(subscriptions) > 1:
        return [*lines, "", "WARN: Different subscription in the same group of consumer!!!"]
    return [*lines, "", "Same subscription in the same group of consumer"]


def _running_lines(info: ConsumerRunningInfo) -> Lines:
    lines = ["#Consumer Properties#", *(f"{key:<40}: {value}" for key, value in info.properties.items())]
    lines += ["", "#Consumer Subscription#"]
    lines += [
        f"{number:03d} Topic: {each.topic:<40} ClassFilter: {str(each.class_filter_mode).lower():<8} "
        f"SubExpression: {each.sub_string}"
        for number, each in enumerate(info.subscription_set)
    ]
    widths = (32, 32, 4, 20)
    lines += ["", "#Consumer Offset#", cells(widths, ("#Topic", "#Broker Name", "#QID", "#Consumer Offset"))]
    for queue, one in sorted(info.mq_table.items()):
        lines.append(cells(widths, (queue.topic, queue.broker_name, queue.queue_id, one.commit_offset)))
    if info.jstack:
        lines += ["", "#Consumer jstack#", info.jstack]
    return lines


# --- queues ---


@command(
    "queryCq",
    "Query cq command.",
    TOPIC,
    Option("q", "queue", "queue num, ie. 1", True),
    Option("i", "index", "start queue index.", True),
    Option("c", "count", "how many."),
    Option("b", "broker", "broker addr."),
    Option("g", "consumer", "consumer group."),
)
async def query_cq(client: Client, args: argparse.Namespace) -> Lines:
    address = args.broker or next(iter((await client.admin.masters()).values()))
    found = await client.admin.queue_entries(
        address,
        args.topic,
        whole(args, "queue"),
        whole(args, "index"),
        whole(args, "count", 10),
        args.consumer,
    )
    lines = []
    if found.subscription_data is not None:
        lines += ["Subscription data: ", json_java.dumps_pretty(found.subscription_data), RULER]
    if found.filter_data:
        lines += ["Filter data: ", found.filter_data, RULER]
    lines += ["Queue data: ", f"max: {found.max_queue_index}, min: {found.min_queue_index}", RULER]
    for number, one in enumerate(found.queue_data, whole(args, "index")):
        lines += [
            f"idx: {number}",
            f"ConsumeQueueData{{physicOffset={one.physic_offset}, physicSize={one.physic_size}, "
            f"tagsCode={one.tags_code}, extendDataJson='{one.extend_data_json or 'null'}', "
            f"bitMap='{one.bit_map or 'null'}', eval={str(one.eval).lower()}, msg='{one.msg or 'null'}'}}",
            RULER,
        ]
    return lines


# --- exports ---

FILE_PATH = Option("f", "filePath", "directory of the file | default /tmp/rocketmq/export")


def _write(args: argparse.Namespace, name: str, content: dict[str, Any]) -> Lines:
    path = Path(args.filePath or EXPORT_DIRECTORY) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_java.dumps_pretty(content), "utf-8")
    return [f"export {path} success"]


@command(
    "exportMetadata",
    "export metadata",
    CLUSTER,
    BROKER,
    FILE_PATH,
    Option("t", "topic", "only export topic metadata", flag=True),
    Option("g", "subscriptionGroup", "only export subscriptionGroup metadata", flag=True),
    Option("s", "specialTopic", "need retryTopic and dlqTopic", flag=True),
)
async def export_metadata(client: Client, args: argparse.Namespace) -> Lines:
    own = set(await client.admin.topics())
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in await targets_of(client, args):
        for name, config in (await client.admin.topic_configs(address)).items():
            if name not in own and not (args.specialTopic and name.startswith(PASSED_ON)):
                continue
            if name in topics:  # of the cluster: the queues of all brokers
                config.read_queue_nums += topics[name].read_queue_nums
                config.write_queue_nums += topics[name].write_queue_nums
            topics[name] = config
        groups |= await client.admin.group_configs(address)
    parts = {"topicConfigTable": topics, "subscriptionGroupTable": groups}
    if args.topic:
        return _write(args, "topic.json", {"topicConfigTable": topics})
    if args.subscriptionGroup:
        return _write(args, "subscriptionGroup.json", {"subscriptionGroupTable": groups})
    return _write(args, "metadata.json", parts)


@command("exportConfigs", "export configs", Option("c", "clusterName", "which cluster", True), FILE_PATH)
async def export_configs(client: Client, args: argparse.Namespace) -> Lines:
    info = await client.admin.cluster_info()
    masters = await client.admin.masters(args.clusterName)
    configs = {}
    for name, address in masters.items():
        settings = await client.admin.broker_config(address)
        configs[name] = {key: settings[key] for key in EXPORTED_SETTINGS if key in settings}
    replicas = sum(len(info.broker_addr_table[name].broker_addrs) - 1 for name in masters)
    scale = {
        "namesrvSize": len(client.instance.name_servers.addresses),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": replicas,
    }
    return _write(args, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})
