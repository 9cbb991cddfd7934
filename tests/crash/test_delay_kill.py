"""Delayed messages while the broker is killed twice: none lost, none early (issue, Delays).

The plain suite sends a reduced number over short levels. The full run of the issue:
``COMETMQ_DELAY_COUNT=100000 pytest -s tests/crash/test_delay_kill.py``.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
from killable import KillableBroker

from cometmq.clock import now_ms
from cometmq.errors import CometMQError
from cometmq.net.client import RemotingClient
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import PullMessageHeader, SendMessageV2Header
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record_cy import decode_records

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

COUNT = int(os.environ.get("COMETMQ_DELAY_COUNT", "1200"))
FULL = COUNT >= 50_000
LEVELS_S = (1, 5, 10) if FULL else (1, 2, 3)
TOPIC, QUEUES = "TopicDelayKill", 4
SENDERS = 50
SEND_PAUSE_S = 0.01


class Sent:
    """What the sender knows of a message: when it asked at the earliest, and when it was told that it is stored."""

    __slots__ = ("acknowledged_ms", "asked_ms", "level")

    def __init__(self, level: int, asked_ms: int, acknowledged_ms: int) -> None:
        self.level = level
        self.asked_ms = asked_ms
        self.acknowledged_ms = acknowledged_ms


async def send(client: RemotingClient, broker: KillableBroker, number: int, level: int) -> Sent:
    """Try until the broker says that it is stored; an attempt without an answer may be stored as well."""
    first_ms = now_ms()
    while True:
        header = SendMessageV2Header(
            producer_group="PG", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=QUEUES,
            queue_id=number % QUEUES, sys_flag=0, born_timestamp=first_ms, flag=0,
            properties=encode_properties({"DELAY": str(level), "KEYS": str(number)}),
        )  # fmt: skip
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
        try:
            response = await client.invoke(broker.address, request, 3_000)
            if response.code == 0:
                return Sent(level, first_ms, now_ms())
        except (CometMQError, OSError):
            pass
        await asyncio.sleep(0.05)


async def send_all(broker: KillableBroker) -> dict[int, Sent]:
    client, sent, numbers = RemotingClient(), dict[int, Sent](), iter(range(COUNT))
    chance = random.Random(5)

    async def sender() -> None:
        for number in numbers:
            sent[number] = await send(client, broker, number, chance.randrange(1, len(LEVELS_S) + 1))
            await asyncio.sleep(SEND_PAUSE_S)

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    await client.close()
    return sent


async def read_new(client: RemotingClient, broker: KillableBroker, places: list[int]) -> dict[int, list[int]]:
    """Store times of the copies that came since the last call, by number."""
    found: dict[int, list[int]] = {}
    for queue_id in range(QUEUES):
        while True:
            header = PullMessageHeader(
                consumer_group="CG", topic=TOPIC, queue_id=queue_id, queue_offset=places[queue_id],
                max_msg_nums=1_000, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*",
                sub_version=0,
            )  # fmt: skip
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            response = await client.invoke(broker.address, request, 5_000)
            if response.code != 0:
                break
            places[queue_id] = int((response.ext_fields or {})["nextBeginOffset"])
            for message in decode_records(response.body):
                found.setdefault(int(message.body), []).append(message.store_timestamp_ms)
    return found


async def all_delivered(broker: KillableBroker, limit_s: float) -> dict[int, list[int]]:
    client, places, copies = RemotingClient(), [0] * QUEUES, dict[int, list[int]]()
    deadline = asyncio.get_running_loop().time() + limit_s
    while len(copies) < COUNT:
        assert asyncio.get_running_loop().time() < deadline, f"{COUNT - len(copies)} messages are missing"
        for number, times in (await read_new(client, broker, places)).items():
            copies.setdefault(number, []).extend(times)
        await asyncio.sleep(0.1)
    await client.close()
    return copies


def test_no_delayed_message_is_lost_or_early_when_the_broker_is_killed_twice(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        levels = " ".join(f"{seconds}s" for seconds in LEVELS_S)
        broker = KillableBroker(tmp_path, messageDelayLevel=levels, flushDelayOffsetInterval=500)
        await broker.start()
        try:
            sending = asyncio.ensure_future(send_all(broker))
            for _ in range(2):
                await asyncio.sleep(5 if FULL else 1.2)
                await broker.kill_and_start()
            sent = await sending
            copies = await all_delivered(broker, max(LEVELS_S) + 60)
        finally:
            await broker.kill()
        assert set(sent) == set(copies) == set(range(COUNT))
        early = [
            number
            for number, times in copies.items()
            if min(times) < sent[number].asked_ms + LEVELS_S[sent[number].level - 1] * 1_000
        ]
        assert early == []
        report(sent, copies, broker.down_ms)

    run(main(), timeout=580)


def report(sent: dict[int, Sent], copies: dict[int, list[int]], down_ms: list[tuple[int, int]]) -> None:
    """Lateness of all, and of those that were not due while the broker was away."""
    every, meanwhile_up = [], []
    for number, times in copies.items():
        due_ms = sent[number].acknowledged_ms + LEVELS_S[sent[number].level - 1] * 1_000
        every.append(min(times) - due_ms)
        if not any(since <= due_ms <= until for since, until in down_ms):
            meanwhile_up.append(min(times) - due_ms)
    repeated = sum(len(times) - 1 for times in copies.values())
    away = ", ".join(f"{until - since} ms" for since, until in down_ms)
    print(f"\n{COUNT} delayed messages, broker killed twice (away {away}); delivered again: {repeated}")
    print(
        f"late by ms, all: {percentiles(every)}; due while the broker was there: {percentiles(meanwhile_up)}"
    )


def percentiles(values: list[int]) -> str:
    values = sorted(values) or [0]
    shown = [
        f"p{p / 10:g}={values[min(len(values) * p // 1000, len(values) - 1)]}" for p in (500, 900, 990, 999)
    ]
    return f"{' '.join(shown)} max={values[-1]}"
