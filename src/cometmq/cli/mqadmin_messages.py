"""mqadmin commands that look for messages, print them, or send some."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import TYPE_CHECKING

from cometmq.cli.mqadmin_base import (
    CLUSTER,
    TOPIC,
    Lines,
    Option,
    cells,
    command,
    is_true,
    parse_time,
    time_text,
    whole,
)
from cometmq.cli.render import body_text
from cometmq.errors import ClientError
from cometmq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cometmq.client.client import Client
    from cometmq.client.message import ReceivedMessage
    from cometmq.client.queue import Queue


def message_lines(message: ReceivedMessage) -> Lines:
    record = message.record
    pairs = [
        ("OffsetID:", message.offset_msg_id),
        ("Topic:", message.topic),
        ("Tags:", f"[{message.tag}]"),
        ("Keys:", f"[{' '.join(message.keys)}]"),
        ("Queue ID:", record.queue_id),
        ("Queue Offset:", record.queue_offset),
        ("CommitLog Offset:", record.physical_offset),
        ("Reconsume Times:", record.reconsume_times),
        ("Born Timestamp:", time_text(record.born_timestamp_ms)),
        ("Store Timestamp:", time_text(record.store_timestamp_ms)),
        ("Born Host:", record.born_host),
        ("Store Host:", record.store_host),
        ("System Flag:", record.sys_flag),
        ("Properties:", "{" + ", ".join(f"{k}={v}" for k, v in message.properties.items()) + "}"),
        ("Message Body:", body_text(message.body)),
    ]
    return [f"{name:<20} {value}" for name, value in pairs]


@command("queryMsgById", "Query Message by Id", Option("i", "msgId", "Message Id", True))
async def query_msg_by_id(client: Client, args: argparse.Namespace) -> Lines:
    return message_lines(await client.admin.message(args.msgId))


@command(
    "queryMsgByUniqueKey",
    "Query Message by Unique key",
    TOPIC,
    Option("i", "msgId", "Message Id", True),
)
async def query_msg_by_unique_key(client: Client, args: argparse.Namespace) -> Lines:
    found = await client.admin.by_unique_id(args.topic, args.msgId)
    if not found:
        raise ClientError(f"no message {args.msgId!r} in topic {args.topic!r}")
    return [line for message in found for line in message_lines(message)]


@command("queryMsgByKey", "Query Message by Key", TOPIC, Option("k", "msgKey", "Message Key", True))
async def query_msg_by_key(client: Client, args: argparse.Namespace) -> Lines:
    widths = (50, 4, 40)
    found = await client.admin.by_key(args.topic, args.msgKey)
    rows = [(message.msg_id, message.record.queue_id, message.offset) for message in found]
    return [cells(widths, row) for row in (("#Message ID", "#QID", "#Offset"), *rows)]


@command(
    "queryMsgByOffset",
    "Query Message by offset",
    TOPIC,
    Option("b", "brokerName", "Broker Name", True),
    Option("i", "queueId", "Queue Id", True),
    Option("o", "offset", "Queue Offset", True),
)
async def query_msg_by_offset(client: Client, args: argparse.Namespace) -> Lines:
    from cometmq.client.queue import Queue

    queue = Queue(args.topic, args.brokerName, whole(args, "queueId"))
    messages, _ = await client.admin.read(queue, whole(args, "offset"), 1)
    return message_lines(messages[0]) if messages else [f"no message at offset {args.offset}"]


@command(
    "sendMessage",
    "Send a message",
    TOPIC,
    Option("p", "body", "UTF-8 string format of the message body", True),
    Option("k", "key", "Message keys"),
    Option("c", "tags", "Message tags"),
    Option("b", "broker", "Send message to target broker"),
    Option("i", "qid", "Send message to target queue"),
)
async def send_message(client: Client, args: argparse.Namespace) -> Lines:
    from cometmq.client.queue import Queue
    from cometmq.protocol.message import Message

    queue = None
    if args.broker and args.qid:
        queue = Queue(args.topic, args.broker, whole(args, "qid"))
    message = Message(args.topic, args.body.encode(), tag=args.tags, keys=args.key or ())
    result = await client.producer("mqadmin_producer").send(message, queue=queue)
    widths = (32, 4, 20, 40)
    return [
        cells(widths, ("#Broker Name", "#QID", "#Send Result", "#MsgId")),
        cells(widths, (result.queue.broker_name, result.queue.queue_id, result.status.name, result.msg_id)),
    ]


# --- printing whole queues ---

BATCH = 32
PRINT_BODY = Option("d", "printBody", "print body. eg: true | false(default)")
BEGIN = Option("b", "beginTimestamp", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]")
END = Option("e", "endTimestamp", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]")
TAGS = Option("s", "subExpression", "Subscribe Expression(eg: TagA || TagB)")
CHARSET = Option("c", "charsetName", "CharsetName(eg: UTF-8,GBK)")


def _line_of(message: ReceivedMessage, *, body: bool, charset: str | None = None) -> str:
    record = message.record
    text = message.body.decode(charset or "utf-8", "replace") if body else "NOT PRINT BODY"
    facts = (
        f"queueId={record.queue_id}, storeSize={record.store_size}, queueOffset={record.queue_offset}, "
        f"sysFlag={record.sys_flag}, bornTimestamp={record.born_timestamp_ms}, bornHost=/{record.born_host}, "
        f"storeTimestamp={record.store_timestamp_ms}, storeHost=/{record.store_host}, "
        f"msgId={record.offset_msg_id}, commitLogOffset={record.physical_offset}, "
        f"reconsumeTimes={record.reconsume_times}, topic={message.topic}, properties={message.properties}"
    )
    return f"MSGID: {message.msg_id} MessageExt [{facts}] BODY: {text}"


async def _range(client: Client, queue: Queue, args: argparse.Namespace) -> tuple[int, int]:
    """Offsets of a queue between the two times."""
    low, high = await client.admin.min_offset(queue), await client.admin.max_offset(queue)
    if args.beginTimestamp:
        low = await client.admin.offset_at(queue, parse_time(args.beginTimestamp))
    if args.endTimestamp:
        high = await client.admin.offset_at(queue, parse_time(args.endTimestamp))
    return low, high


async def _messages(client: Client, queue: Queue, low: int, high: int) -> AsyncIterator[ReceivedMessage]:
    while low < high:
        messages, after = await client.admin.read(queue, low, min(BATCH, high - low))
        if not messages and after <= low:
            return
        for message in messages:
            if message.offset < high:
                yield message
        low = after


def _wanted(message: ReceivedMessage, expression: str | None) -> bool:
    tags = {tag.strip() for tag in (expression or "*").split("||")}
    return "*" in tags or (message.tag or "") in tags


@command("printMsg", "Print Message Detail", TOPIC, CHARSET, TAGS, BEGIN, END, PRINT_BODY)
async def print_msg(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for queue in await client.admin.queues(args.topic):
        low, high = await _range(client, queue, args)
        name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        lines.append(f"minOffset={low}, maxOffset={high}, {name}")
        async for message in _messages(client, queue, low, high):
            if _wanted(message, args.subExpression):
                body = is_true(args.printBody, otherwise=True)
                lines.append(_line_of(message, body=body, charset=args.charsetName))
        lines.append(f"{name} print msg finished. status=NO_NEW_MSG, offset={high}")
        lines.append("-" * 56)
    return lines


@command(
    "printMsgByQueue",
    "Print Message Detail by queueId",
    TOPIC,
    Option("a", "brokerName", "broker name", True),
    Option("i", "queueId", "queue id", True),
    CHARSET,
    TAGS,
    BEGIN,
    END,
    Option("p", "printMsg", "print msg. eg: true | false(default)"),
    PRINT_BODY,
    Option("f", "calculate", "calculate by tag. eg: true | false(default)"),
)
async def print_msg_by_queue(client: Client, args: argparse.Namespace) -> Lines:
    from cometmq.client.queue import Queue

    queue = Queue(args.topic, args.brokerName, whole(args, "queueId"))
    lines, counts = [], Counter[str]()
    async for message in _messages(client, queue, *await _range(client, queue, args)):
        if not _wanted(message, args.subExpression):
            continue
        counts[message.tag or ""] += 1
        if is_true(args.printMsg):
            lines.append(_line_of(message, body=is_true(args.printBody), charset=args.charsetName))
    if is_true(args.calculate):
        lines += [f"Tag: {tag:<30} Count: {count}" for tag, count in counts.most_common()]
    return lines


@command(
    "consumeMessage",
    "Consume message",
    TOPIC,
    Option("b", "brokerName", "Broker name"),
    Option("i", "queueId", "Queue Id"),
    Option("o", "offset", "Queue offset"),
    Option("g", "consumerGroup", "Consumer group name"),
    Option("s", "beginTimestamp", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
    Option("e", "endTimestamp", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
    Option("c", "MessageNumber", "Number of message to be consumed"),
)
async def consume_message(client: Client, args: argparse.Namespace) -> Lines:
    """Reads the oldest messages; no group moves by it, as in the original."""
    left = whole(args, "MessageNumber", 128)
    lines = []
    for queue in await client.admin.queues(args.topic):
        if args.brokerName and queue.broker_name != args.brokerName:
            continue
        if args.queueId and queue.queue_id != whole(args, "queueId"):
            continue
        low, high = await _range(client, queue, args)
        low = max(low, whole(args, "offset", 0))
        async for message in _messages(client, queue, low, min(high, low + left)):
            lines.append(_line_of(message, body=True))
            left -= 1
    return ["Consume ok", *lines]


# --- trace ---


@command(
    "queryMsgTraceById",
    "Query a message trace",
    Option("i", "msgId", "Message Id", True),
    Option("t", "traceTopic", "The name value of message trace topic"),
)
async def query_msg_trace(client: Client, args: argparse.Namespace) -> Lines:
    found = await client.admin.by_key(args.traceTopic or TRACE_TOPIC, args.msgId)
    widths = (10, 20, 20, 20, 10, 10)
    published, consumed = [], []
    for message in found:
        host = str(message.record.born_host).rpartition(":")[0]
        for text in message.body.decode().split("\x02"):
            fields = text.split("\x01")
            if fields[0] == "Pub" and fields[5] == args.msgId:
                done = "success" if fields[-1] == "true" else "failed"
                row = ("Pub", fields[3], host, time_text(int(fields[1])), f"{fields[10]}ms", done)
                published.append(cells(widths, row))
            elif fields[0] == "SubAfter" and fields[2] == args.msgId:
                done = "success" if fields[4] == "true" else "failed"
                row = ("Sub", fields[8], host, time_text(int(fields[7])), f"{fields[3]}ms", done)
                consumed.append(cells(widths, row))
    head = ("#ClientHost", "#SendTime", "#CostTimes", "#Status")
    lines = [cells(widths, ("#Type", "#ProducerGroup", *head)), *published, ""]
    if consumed:
        head = ("#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
        lines += [cells(widths, ("#Type", "#ConsumerGroup", *head)), *consumed, ""]
    return lines


# --- how long sends take ---


async def _send_times(
    client: Client, queues: list[Queue], count: int, size: int
) -> list[tuple[Queue, bool, float]]:
    """Sends round the queues, one after the other: where, whether it worked, milliseconds."""
    from cometmq.errors import CometMQError
    from cometmq.protocol.message import Message

    producer = client.producer("mqadmin_producer", retries=0)
    found = []
    for number in range(count):
        queue = queues[number % len(queues)]
        began = time.perf_counter()
        try:
            done = (await producer.send(Message(queue.topic, b"a" * size), queue=queue)).ok
        except CometMQError:
            done = False
        found.append((queue, done, (time.perf_counter() - began) * 1000))
    return found


def _average(found: list[tuple[Queue, bool, float]]) -> float:
    """Without the first, which connects."""
    rest = [spent for _, _, spent in found[1:]] or [spent for _, _, spent in found]
    return sum(rest) / max(1, len(rest))


@command(
    "checkMsgSendRT",
    "check message send response time",
    TOPIC,
    Option("a", "amount", "message amount | default 100"),
    Option("s", "size", "message size | default 128 Byte"),
)
async def check_msg_send_rt(client: Client, args: argparse.Namespace) -> Lines:
    queues = await client.admin.queues(args.topic)
    found = await _send_times(client, queues, whole(args, "amount", 100), whole(args, "size", 128))
    widths = (32, 4, 22, 10)
    rows = [(queue.broker_name, queue.queue_id, str(ok).lower(), round(spent)) for queue, ok, spent in found]
    head = ("#Broker Name", "#QID", "#Send Result", "#RT")
    return [*(cells(widths, row) for row in (head, *rows)), f"Avg RT: {_average(found):.2f}"]


@command(
    "sendMsgStatus",
    "send msg to broker.",
    Option("b", "brokerName", "Broker Name", True),
    Option("s", "messageSize", "Message Size, Default: 128"),
    Option("c", "count", "send message count, Default: 50"),
)
async def send_msg_status(client: Client, args: argparse.Namespace) -> Lines:
    from cometmq.client.queue import Queue

    queues = [Queue(args.brokerName, args.brokerName, 0)]  # every broker has a topic of its name
    found = await _send_times(client, queues, whole(args, "count", 50), whole(args, "messageSize", 128))
    return [f"rt={spent:.0f}ms, SendResult={'SEND_OK' if ok else 'FAILED'}" for _, ok, spent in found]


@command(
    "clusterRT",
    "List All clusters Message Send RT (one round)",
    Option("a", "amount", "message amount | default 100"),
    Option("s", "size", "message size | default 128 Byte"),
    CLUSTER,
    Option("p", "print log", "print as tlog | default false"),
    Option("m", "machine room", "machine room name | default noname"),
    Option("i", "interval", "print interval; one round is printed here: repeat it with watch"),
)
async def cluster_rt(client: Client, args: argparse.Namespace) -> Lines:
    from cometmq.client.queue import Queue

    info = await client.admin.cluster_info()
    widths = (24, 24, 8, 14, 10)
    lines = [cells(widths, ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"))]
    for cluster, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names) if args.clusterName in (None, cluster) else ():
            queues = [Queue(name, name, 0)]
            found = await _send_times(client, queues, whole(args, "amount", 100), whole(args, "size", 128))
            good = sum(ok for _, ok, _ in found)
            lines.append(cells(widths, (cluster, name, f"{_average(found):.2f}", good, len(found) - good)))
    return lines
