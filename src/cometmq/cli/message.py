"""Messages: send, tail, get, query."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, parse_moment, parse_pairs, run_verb, verbs_of
from cometmq.cli.parser import amount, count
from cometmq.cli.render import Done, Facts, Listing, Output, Progress, Report, body_text, moment

if TYPE_CHECKING:
    from cometmq.client.client import Client
    from cometmq.client.consumer.stream import Stream
    from cometmq.client.message import ReceivedMessage

run = run_verb

BODY_LIMIT = 200
TAIL_GROUP = "cometmq-tail"
POLL_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    send = add_verb(verbs, "send", send_message, "send messages: '{n}' in the body becomes a number")
    send.add_argument("topic")
    send.add_argument(
        "body", nargs="?", help="the body; '-' or nothing: each line of standard input is one message"
    )
    send.add_argument("--file", type=Path, help="the body is the content of this file")
    send.add_argument("--tag", help="what consumers filter by")
    send.add_argument("--key", action="append", default=[], help="may be given several times")
    send.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", help="may be given several times"
    )
    send.add_argument("--delay-level", type=amount, default=0, help="1 to 18: 1s 5s 10s 30s 1m ... 2h")
    send.add_argument("--ordering-key", help="messages of one key stay in order")
    send.add_argument("-c", "--count", type=count, default=1, help="send it so many times")

    tail = add_verb(verbs, "tail", tail_topic, "print messages as they come")
    tail.add_argument("topic")
    tail.add_argument(
        "--from", dest="start", default="end", help="begin, end, -N (last N of each queue) or a time"
    )
    tail.add_argument("--tag", default="*", help="only these tags: 'a || b'")
    tail.add_argument("-c", "--count", type=count, help="stop after so many")
    tail.add_argument("--no-wait", action="store_true", help="stop when everything there was printed")
    tail.add_argument("--bodies", action="store_true", help="print only the bodies, one per line")

    get = add_verb(verbs, "get", get_message, "one message by its id")
    get.add_argument("id")
    get.add_argument("--topic", help="needed for ids that producers give")

    query = add_verb(verbs, "query", query_messages, "messages by key")
    query.add_argument("topic")
    query.add_argument("key")
    query.add_argument("--max", type=count, default=32, help="at most so many (32)")


async def send_message(client: Client, args: argparse.Namespace) -> Output:
    from cometmq.protocol.message import Message

    producer = client.producer("cometmq-cli")
    bodies = [body for body in _bodies(args) for _ in range(args.count)]
    properties = parse_pairs(args.property)
    progress = Progress("sending", len(bodies))
    results = []
    for number, body in enumerate(bodies):
        message = Message(
            args.topic,
            body.replace(b"{n}", b"%d" % number),
            tag=args.tag,
            keys=args.key,
            properties=properties,
            delay_level=args.delay_level,
        )
        results.append(await producer.send(message, ordering_key=args.ordering_key))
        progress.advance()
    progress.close()
    rows = [
        {"id": one.msg_id, "broker": one.queue.broker_name, "queue": one.queue.queue_id, "offset": one.offset}
        for one in results
    ]
    return Listing(rows, empty="no body, nothing was sent")


def _bodies(args: argparse.Namespace) -> list[bytes]:
    if args.file is not None:
        return [args.file.read_bytes()]
    if args.body is not None and args.body != "-":
        return [args.body.encode()]
    return [line for line in sys.stdin.buffer.read().splitlines() if line]


async def tail_topic(client: Client, args: argparse.Namespace) -> Output | None:
    queues = await client.admin.queues(args.topic)
    stream = client.stream(TAIL_GROUP, assign=queues, filter=args.tag, auto_commit=False)
    printed = 0
    async with stream:
        await _seek(client, stream, args.start)
        while args.count is None or printed < args.count:
            left = 500 if args.count is None else args.count - printed
            batch = await stream.poll(min(500, left), timeout=POLL_S)
            for message in batch:
                _print(message, args)
            printed += len(batch)
            if not batch and args.no_wait:
                break
    return None if printed or args.json else Done(f"topic {args.topic} has no message there")


async def _seek(client: Client, stream: Stream, start: str) -> None:
    if start == "begin":
        await stream.seek_to_begin()
    elif start == "end":
        await stream.seek_to_end()
    elif start.startswith("-") and start[1:].isdigit():
        for queue in stream.assignment():
            low, high = await client.admin.min_offset(queue), await client.admin.max_offset(queue)
            await stream.seek(queue, max(low, high - int(start[1:])))
    else:
        await stream.seek_to_time(parse_moment(start))


def _print(message: ReceivedMessage, args: argparse.Namespace) -> None:
    if args.bodies:
        line = body_text(message.body)
    elif args.json:
        line = json.dumps(facts_of(message), ensure_ascii=False)
    else:
        record = message.record
        where = f"{record.broker_name}/{record.queue_id}@{message.offset}"
        extra = " ".join(filter(None, [message.tag or "", ",".join(message.keys)]))
        line = f"{moment(record.store_timestamp_ms)}  {where:<20}  {extra:<12}  {body_text(message.body, BODY_LIMIT)}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def facts_of(message: ReceivedMessage) -> dict[str, Any]:
    record = message.record
    return {
        "id": message.msg_id,
        "offset id": message.offset_msg_id,
        "topic": message.topic,
        "broker": record.broker_name,
        "queue": record.queue_id,
        "offset": message.offset,
        "tag": message.tag,
        "keys": message.keys,
        "stored": moment(record.store_timestamp_ms),
        "born": moment(record.born_timestamp_ms),
        "born at": str(record.born_host),
        "delivered before": message.reconsume_times,
        "size": record.store_size,
        "body": body_text(message.body),
    }


async def get_message(client: Client, args: argparse.Namespace) -> Output:
    message = await client.admin.message(args.id, args.topic)
    return Report(
        {"message": Facts(facts_of(message)), "properties": Facts(dict(sorted(message.properties.items())))}
    )


async def query_messages(client: Client, args: argparse.Namespace) -> Output:
    found = await client.admin.by_key(args.topic, args.key, max_count=args.max)
    if len(found) >= args.max:
        sys.stderr.write(f"only the first {args.max} are shown; --max shows more\n")
    rows = []
    for message in found:
        facts = facts_of(message)
        facts["body"] = body_text(message.body, BODY_LIMIT)
        rows.append(
            {name: facts[name] for name in ("id", "broker", "queue", "offset", "tag", "stored", "body")}
        )
    return Listing(rows, empty=f"topic {args.topic} has no message with key {args.key!r}")
