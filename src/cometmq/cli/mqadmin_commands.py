"""mqadmin commands on topics, groups, the cluster and NameServers, each with the lines it prints.

One function per command, on top of the admin functions. Lines follow the columns of the original, so that
scripts that cut them by column go on working.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cometmq.cli.cluster import first_number
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
    parse_time,
    targets_of,
    time_text,
    whole,
)
from cometmq.errors import ClientError
from cometmq.protocol import json_java
from cometmq.protocol.codes import version_name

if TYPE_CHECKING:
    from cometmq.client.client import Client

# --- topics ---


@command(
    "updateTopic",
    "Update or create topic",
    TOPIC,
    BROKER,
    CLUSTER,
    Option("r", "readQueueNums", "set read queue nums"),
    Option("w", "writeQueueNums", "set write queue nums"),
    Option("p", "perm", "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]"),
    Option("o", "order", "set topic's order(true|false)"),
)
async def update_topic(client: Client, args: argparse.Namespace) -> Lines:
    made = []
    for address in await targets_of(client, args):
        made += await client.admin.create_topic(
            args.topic,
            queues=8,
            read_queues=whole(args, "readQueueNums", 8),
            write_queues=whole(args, "writeQueueNums", 8),
            perm=whole(args, "perm", 6),
            order=(args.order or "").lower() == "true",
            broker=await broker_name(client, address),
        )
        one = made[-1]
    lines = [f"create topic to {address} success." for address in await targets_of(client, args)]
    config = {
        "topicName": args.topic,
        "readQueueNums": one.read_queues,
        "writeQueueNums": one.write_queues,
        "perm": "RW-" if one.perm == 6 else "R--" if one.perm == 4 else "-W-",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": str(one.order).lower(),
    }
    return [*lines, "TopicConfig [" + ", ".join(f"{key}={value}" for key, value in config.items()) + "]"]


@command("deleteTopic", "Delete topic from broker and NameServer.", TOPIC, CLUSTER)
async def delete_topic(client: Client, args: argparse.Namespace) -> Lines:
    await client.admin.delete_topic(args.topic, args.clusterName)
    return [
        f"delete topic [{args.topic}] from cluster [{args.clusterName}] success.",
        f"delete topic [{args.topic}] from NameServer success.",
    ]


@command("topicList", "Fetch all topic list from name server", CLUSTER)
async def topic_list(client: Client, args: argparse.Namespace) -> Lines:
    return await client.admin.topics(args.clusterName, system=True)


@command("topicRoute", "Examine topic route info", TOPIC)
async def topic_route(client: Client, args: argparse.Namespace) -> Lines:
    route = await client.admin.topic_route(args.topic)
    return [json_java.dumps_pretty(route)]


@command("topicStatus", "Examine topic Status info", TOPIC)
async def topic_status(client: Client, args: argparse.Namespace) -> Lines:
    widths = (32, 4, 20, 20, 20)
    lines = [cells(widths, ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"))]
    for queue, one in (await client.admin.topic_stats(args.topic)).items():
        row = (
            queue.broker_name,
            queue.queue_id,
            one.min_offset,
            one.max_offset,
            time_text(one.last_update_timestamp),
        )
        lines.append(cells(widths, row))
    return lines


@command("topicClusterList", "Get cluster info for topic", TOPIC)
async def topic_cluster_list(client: Client, args: argparse.Namespace) -> Lines:
    route = await client.admin.topic_route(args.topic)
    return sorted({broker.cluster for broker in route.broker_datas})


@command("allocateMQ", "Allocate MQ", TOPIC, Option("i", "ipList", "ipList", True))
async def allocate_mq(client: Client, args: argparse.Namespace) -> Lines:
    from cometmq.client.consumer.allocation import Average

    queues = await client.admin.queues(args.topic)
    ids = sorted(args.ipList.split(","))
    table = {
        one: [{"brokerName": q.broker_name, "queueId": q.queue_id, "topic": q.topic} for q in mine]
        for one in ids
        for mine in [Average().allocate("", one, queues, ids)]
    }
    return [json.dumps({"result": table}, separators=(",", ":"))]


# --- groups ---


@command(
    "updateSubGroup",
    "Update or create subscription group",
    Option("g", "groupName", "consumer group name", True),
    BROKER,
    CLUSTER,
    Option("s", "consumeEnable", "consume enable"),
    Option("m", "consumeFromMinEnable", "from min offset"),
    Option("d", "consumeBroadcastEnable", "broadcast"),
    Option("q", "retryQueueNums", "retry queue nums"),
    Option("r", "retryMaxTimes", "retry max times"),
)
async def update_sub_group(client: Client, args: argparse.Namespace) -> Lines:
    settings: dict[str, Any] = {
        "consume_enable": (args.consumeEnable or "true").lower() == "true",
        "consume_from_min_enable": (args.consumeFromMinEnable or "false").lower() == "true",
        "consume_broadcast_enable": (args.consumeBroadcastEnable or "false").lower() == "true",
        "retry_queue_nums": whole(args, "retryQueueNums", 1),
        "retry_max_times": whole(args, "retryMaxTimes", 16),
    }
    lines = []
    for address in await targets_of(client, args):
        await client.admin.create_group(args.groupName, broker=await broker_name(client, address), **settings)
        lines.append(f"create subscription group to {address} success.")
    return lines


@command(
    "deleteSubGroup",
    "Delete subscription group from broker.",
    Option("g", "groupName", "subscription group name", True),
    CLUSTER,
    BROKER,
    Option("r", "removeOffset", "remove offset"),
)
async def delete_sub_group(client: Client, args: argparse.Namespace) -> Lines:
    remove = (args.removeOffset or "").lower() == "true"
    await client.admin.delete_group(args.groupName, remove_offsets=remove, cluster=args.clusterName)
    return [f"delete subscription group [{args.groupName}] success."]


@command(
    "consumerProgress",
    "Query consumers's progress, speed",
    Option("g", "groupName", "consumer group name"),
    Option("t", "topicName", "topic name"),
)
async def consumer_progress(client: Client, args: argparse.Namespace) -> Lines:
    if not args.groupName:
        return await _progress_of_all(client)
    stats = await client.admin.consume_stats(args.groupName, args.topicName)
    widths = (32, 32, 4, 20, 20, 20, 20)
    head = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    lines, total = [cells(widths, head)], 0
    for queue, one in stats.offset_table.items():
        diff = one.broker_offset - one.consumer_offset
        total += diff
        last = time_text(one.last_timestamp) if one.last_timestamp > 0 else "N/A"
        row = (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            diff,
            last,
        )
        lines.append(cells(widths, row))
    return [*lines, "", f"Consume TPS: {stats.consume_tps:.2f}", f"Diff Total: {total}"]


async def _progress_of_all(client: Client) -> Lines:
    widths = (64, 6, 24, 5, 14, 7, 20)
    lines = [cells(widths, ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))]
    for group in await client.admin.groups():
        members = await client.admin.members(group)
        stats = await client.admin.consume_stats(group)
        diff = sum(one.broker_offset - one.consumer_offset for one in stats.offset_table.values())
        connections = [] if members is None else members.connection_set
        version = version_name(connections[0].version) if connections else "OFFLINE"
        kind = "" if members is None else "PUSH" if members.consume_type == "CONSUME_PASSIVELY" else "PULL"
        model = "" if members is None else members.message_model
        lines.append(
            cells(widths, (group, len(connections), version, kind, model, round(stats.consume_tps), diff))
        )
    return lines


@command("consumerConnection", "Query consumer's socket connection, client version and subscription", GROUP)
async def consumer_connection(client: Client, args: argparse.Namespace) -> Lines:
    members = await client.admin.members(args.consumerGroup)
    if members is None:
        raise ClientError(
            f"Not found the consumer group connection: group {args.consumerGroup!r} is not online"
        )
    rows = [
        (one.client_id, one.client_addr, one.language, version_name(one.version))
        for one in members.connection_set
    ]
    head = ("#ClientId", "#ClientAddr", "#Language", "#Version")
    lines = [cells((36, 22, 10, 20), row) for row in (head, *rows)]
    lines += ["", "Below is subscription:", cells((20, 10), ("#Topic", "#SubExpression"))]
    lines += [
        cells((20, 10), (topic, subscription.sub_string))
        for topic, subscription in sorted(members.subscription_table.items())
    ]
    return [
        *lines,
        "",
        f"ConsumeType: {members.consume_type}",
        f"MessageModel: {members.message_model}",
        f"ConsumeFromWhere: {members.consume_from_where}",
    ]


@command(
    "producerConnection",
    "Query producer's socket connection and client version",
    Option("g", "producerGroup", "producer group name", True),
    Option("t", "topic", "topic name"),
)
async def producer_connection(client: Client, args: argparse.Namespace) -> Lines:
    found = await client.admin.producers(args.producerGroup)
    return [
        f"{number:04d}  {one.client_id:<32} {one.client_addr:<22} {one.language!s:<8} {version_name(one.version)}"
        for number, one in enumerate([] if found is None else found.connection_set, 1)
    ]


@command(
    "resetOffsetByTime",
    "Reset consumer offset by timestamp(without client restart).",
    Option("g", "group", "set the consumer group", True),
    Option("t", "topic", "set the topic", True),
    Option("s", "timestamp", "now|milliseconds|yyyy-MM-dd#HH:mm:ss:SSS", True),
    Option("f", "force", "set the force rollback by timestamp switch[true|false]"),
)
async def reset_offset_by_time(client: Client, args: argparse.Namespace) -> Lines:
    to: float | str = "end" if args.timestamp == "now" else parse_time(args.timestamp)
    force = (args.force or "true").lower() == "true"
    moved = await client.admin.reset_offsets(args.group, args.topic, to, force=force)
    widths = (40, 40, 40)
    lines = [cells(widths, ("#brokerName", "#queueId", "#offset"))]
    return lines + [
        cells(widths, (queue.broker_name, queue.queue_id, offset)) for queue, offset in moved.items()
    ]


@command(
    "skipAccumulatedMessage",
    "Skip all messages that are accumulated (not consumed) currently",
    Option("g", "group", "set the consumer group", True),
    Option("t", "topic", "set the topic", True),
    Option("f", "force", "set the force rollback by timestamp switch[true|false]"),
)
async def skip_accumulated(client: Client, args: argparse.Namespace) -> Lines:
    args.timestamp = "now"
    return await reset_offset_by_time(client, args)


@command(
    "cloneGroupOffset",
    "clone offset from other group.",
    Option("s", "srcGroup", "set source consumer group", True),
    Option("d", "destGroup", "set destination consumer group", True),
    Option("t", "topic", "set the topic", True),
    Option("o", "offline", "the group or the topic is offline"),
)
async def clone_group_offset(client: Client, args: argparse.Namespace) -> Lines:
    await client.admin.clone_offsets(args.srcGroup, args.destGroup, args.topic)
    return [
        f"clone group offset success. srcGroup[{args.srcGroup}], destGroup=[{args.destGroup}], topic[{args.topic}]"
    ]


# --- cluster and brokers ---


@command("clusterList", "List all of clusters", CLUSTER)
async def cluster_list(client: Client, args: argparse.Namespace) -> Lines:
    info = await client.admin.cluster_info()
    widths = (16, 22, 4, 22, 16, 19, 19, 10, 5, 6)
    head = (
        "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)",
        "#PCWait(ms)", "#Hour", "#SPACE",
    )  # fmt: skip
    lines = [cells(widths, head)]
    now_ms = datetime.now().timestamp() * 1000
    for cluster, names in sorted(info.cluster_addr_table.items()):
        if args.clusterName and cluster != args.clusterName:
            continue
        for name in sorted(names):
            for number, address in sorted(info.broker_addr_table[name].broker_addrs.items()):
                facts = await client.admin.runtime_info(address)
                earliest_ms = float(facts.get("earliestMessageTimeStamp") or 0)
                hours = (now_ms - earliest_ms) / 3_600_000 if earliest_ms > 0 else 0.0
                row = (
                    cluster, name, number, address, facts.get("brokerVersionDesc", ""),
                    f"{first_number(facts.get('putTps')):.2f}({facts.get('sendThreadPoolQueueSize', 0)},"
                    f"{facts.get('sendThreadPoolQueueHeadWaitTimeMills', 0)}ms)",
                    f"{first_number(facts.get('getTransferedTps')):.2f}({facts.get('pullThreadPoolQueueSize', 0)},"
                    f"{facts.get('pullThreadPoolQueueHeadWaitTimeMills', 0)}ms)",
                    facts.get("pageCacheLockTimeMills", ""), f"{hours:.2f}",
                    f"{float(facts.get('commitLogDiskRatio') or 0):.4f}",
                )  # fmt: skip
                lines.append(cells(widths, row))
    return lines


@command("brokerStatus", "Fetch broker runtime status data", BROKER, CLUSTER)
async def broker_status(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        facts = await client.admin.runtime_info(address)
        lines += [f"{key:<32}: {value}" for key, value in sorted(facts.items())]
    return lines


@command("getBrokerConfig", "Get broker config by cluster or special broker!", BROKER, CLUSTER)
async def get_broker_config(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        lines.append(f"============{address}============")
        settings = await client.admin.broker_config(address)
        lines += [f"{key:<50}=  {value}" for key, value in sorted(settings.items())]
    return lines


@command(
    "updateBrokerConfig",
    "Update broker's config",
    BROKER,
    CLUSTER,
    Option("k", "key", "config key", True),
    Option("v", "value", "config value", True),
)
async def update_broker_config(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        await client.admin.update_broker_config(address, {args.key: args.value})
        lines.append(f"update broker config success, {address}")
    return lines


@command(
    "wipeWritePerm", "Wipe write perm of broker in all name server", Option("b", "brokerName", "broker", True)
)
async def wipe_write_perm(client: Client, args: argparse.Namespace) -> Lines:
    count = await client.admin.wipe_write_permission(args.brokerName)
    return [f"wipe write perm of broker[{args.brokerName}] OK, {count}"]


@command(
    "addWritePerm", "Add write perm of broker in all name server", Option("b", "brokerName", "broker", True)
)
async def add_write_perm(client: Client, args: argparse.Namespace) -> Lines:
    count = await client.admin.add_write_permission(args.brokerName)
    return [f"add write perm of broker[{args.brokerName}] OK, {count}"]


@command("cleanUnusedTopic", "Clean unused topic on broker.", BROKER, CLUSTER)
async def clean_unused_topic(client: Client, args: argparse.Namespace) -> Lines:
    for address in await targets_of(client, args):
        await client.admin.clean_unused_topics(address)
    return ["success"]


@command("cleanExpiredCQ", "Clean expired ConsumeQueue on broker.", BROKER, CLUSTER)
async def clean_expired_cq(client: Client, args: argparse.Namespace) -> Lines:
    for address in await targets_of(client, args):
        await client.admin.clean_expired_queues(address)
    return ["success"]


@command("deleteExpiredCommitLog", "Delete expired CommitLog files", BROKER, CLUSTER)
async def delete_expired_commit_log(client: Client, args: argparse.Namespace) -> Lines:
    for address in await targets_of(client, args):
        await client.admin.delete_expired_log(address)
    return ["success"]


# --- NameServers ---


@command("getNamesrvConfig", "Get configs of name server.")
async def get_namesrv_config(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in client.instance.name_servers.addresses:
        lines.append(f"============{address}============")
        settings = await client.admin.name_server_config(address)
        lines += [f"{key:<50}=  {value}" for key, value in sorted(settings.items())]
    return lines


@command(
    "updateNamesrvConfig",
    "Update configs of name server.",
    Option("k", "key", "config key", True),
    Option("v", "value", "config value", True),
)
async def update_namesrv_config(client: Client, args: argparse.Namespace) -> Lines:
    await client.admin.update_name_server_config({args.key: args.value})
    return [f"update name server config success!{list(client.instance.name_servers.addresses)}"]


@command(
    "updateKvConfig",
    "Create or update KV config.",
    Option("s", "namespace", "set the namespace", True),
    Option("k", "key", "set the key name", True),
    Option("v", "value", "set the key value", True),
)
async def update_kv_config(client: Client, args: argparse.Namespace) -> Lines:
    await client.admin.put_kv(args.namespace, args.key, args.value)
    return ["create or update kv config to namespace success."]


@command(
    "deleteKvConfig",
    "Delete KV config.",
    Option("s", "namespace", "set the namespace", True),
    Option("k", "key", "set the key name", True),
)
async def delete_kv_config(client: Client, args: argparse.Namespace) -> Lines:
    await client.admin.delete_kv(args.namespace, args.key)
    return ["delete kv config from namespace success."]
