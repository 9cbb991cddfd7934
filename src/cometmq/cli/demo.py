"""Start a standalone in a temporary directory, send and pull a few messages over the wire, show what happened."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cometmq.cli.server import loop_factory, say

if TYPE_CHECKING:
    from cometmq.net.client import RemotingClient
    from cometmq.protocol.command import RemotingCommand
    from cometmq.standalone import Standalone

TOPIC = "DemoTopic"
GROUP = "demo-readers"
TEXTS = (("created", "order 1 was created"), ("paid", "order 1 was paid"), ("sent", "order 1 was sent"))
BURST_COUNT = 2_000
REQUEST_TIMEOUT_MS = 5_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--count", type=int, default=BURST_COUNT, help=f"messages of the burst ({BURST_COUNT})"
    )


def run(args: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="cometmq-demo-") as directory,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_demo(directory, args.count))
    return 0


async def _demo(directory: str, burst_count: int) -> None:
    from cometmq.net.client import RemotingClient
    from cometmq.standalone import Standalone, StandaloneConfig

    began = time.perf_counter()
    config = StandaloneConfig(store=directory, port=0, nameserver_port=0)
    async with Standalone(config) as standalone:
        client = RemotingClient()
        rows = [("start NameServer and broker", f"{_ms(began)}", standalone.nameserver_address)]
        try:
            rows += await _few_messages(client, standalone)
            rows += await _burst(client, standalone, burst_count)
        finally:
            await client.close()
    _table(("step", "took", "result"), rows)
    say("\nNext:")
    say(
        "  cometmq standalone                     keep one running; RocketMQ clients find it at 127.0.0.1:9876"
    )
    say("  cometmq broker -c broker.conf -n ...   run a broker with an existing broker.conf")


async def _few_messages(client: RemotingClient, standalone: Standalone) -> list[tuple[str, str, str]]:
    from cometmq.protocol.record_cy import decode_records

    rows = []
    for tag, text in TEXTS:
        began = time.perf_counter()
        answer = await client.invoke(standalone.broker_address, _send(text.encode(), tag), REQUEST_TIMEOUT_MS)
        fields = answer.ext_fields or {}
        rows.append(
            (f"send {text!r}", _ms(began), f"{TOPIC}/{fields['queueId']} offset {fields['queueOffset']}")
        )
    began = time.perf_counter()
    answer = await client.invoke(standalone.broker_address, _pull("*"), REQUEST_TIMEOUT_MS)
    bodies = [bytes(message.body).decode() for message in decode_records(answer.body)]
    rows.append(("pull all", _ms(began), f"{len(bodies)} messages"))
    began = time.perf_counter()
    answer = await client.invoke(standalone.broker_address, _pull("paid"), REQUEST_TIMEOUT_MS)
    bodies = [bytes(message.body).decode() for message in decode_records(answer.body)]
    rows.append(("pull tag 'paid'", _ms(began), ", ".join(bodies)))
    return rows


async def _burst(client: RemotingClient, standalone: Standalone, count: int) -> list[tuple[str, str, str]]:
    began = time.perf_counter()
    sends = [
        client.invoke(standalone.broker_address, _send(b"x" * 128, "burst"), REQUEST_TIMEOUT_MS)
        for _ in range(count)
    ]
    await asyncio.gather(*sends)
    seconds = time.perf_counter() - began
    return [
        (f"send {count} more, pipelined", _ms(began), f"{count / seconds:,.0f} a second, client included")
    ]


def _send(body: bytes, tag: str) -> RemotingCommand:
    from cometmq.protocol.codes import RequestCode
    from cometmq.protocol.command import RemotingCommand
    from cometmq.protocol.headers import SendMessageV2Header

    header = SendMessageV2Header(
        producer_group="demo-writers",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=f"TAGS\x01{tag}",
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)


def _pull(subscription: str) -> RemotingCommand:
    from cometmq.protocol.codes import RequestCode
    from cometmq.protocol.command import RemotingCommand
    from cometmq.protocol.headers import PullMessageHeader
    from cometmq.protocol.sys_flag import PULL_SUBSCRIPTION

    header = PullMessageHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=subscription,
        sub_version=0,
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


def _ms(began: float) -> str:
    return f"{(time.perf_counter() - began) * 1000:.1f} ms"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
