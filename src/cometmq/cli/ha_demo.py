"""``cometmq ha demo``: three brokers as processes, a stream of sends, and kill -9 for whoever is master."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

from cometmq.cli.render import Facts, show
from cometmq.client.client import Client
from cometmq.client.producer import Producer
from cometmq.errors import CometMQError
from cometmq.protocol.message import Message
from cometmq.testing.group_processes import FAST_PROFILE, GroupProcesses

TOPIC = "demo"
FIRST_LIMIT_S = 30.0
AFTER_KILL_S = 4.0
IN_SYNC_LIMIT_S = 30.0
READ_COUNT = 1_000


class Sends:
    """Messages one after the other; the longest time between two that were confirmed."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.confirmed: list[str] = []
        self.errors = 0
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self.one()

    async def one(self) -> None:
        body = f"message {len(self.confirmed)}"
        try:
            await self._producer.send(Message(TOPIC, body.encode()))
        except CometMQError:
            self.errors += 1
            return
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last_s)
        self._last_s = now
        self.confirmed.append(body)

    def begin(self) -> None:
        self.longest_gap_s = 0.0
        self._last_s = time.monotonic()


async def run_demo(args: argparse.Namespace) -> int:
    tell: Callable[[str], None] = (lambda text: None) if args.json else lambda text: print(text, flush=True)
    tell("starting a NameServer and three brokers of the group G ...")
    with GroupProcesses(settings=FAST_PROFILE if args.fast else None) as group:
        async with Client(group.name_server) as client, client.producer("demo") as producer:
            facts = await _rounds(group, client, Sends(producer), args.rounds, tell)
            facts["logs are the same"] = await _same_logs(client, group)
    show(Facts(facts), as_json=args.json)
    lost = facts["confirmed messages lost"]
    return 0 if not lost and facts["logs are the same"] else 1


async def _rounds(
    group: GroupProcesses, client: Client, sends: Sends, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    await _first(sends)
    gaps = []
    for number in range(1, rounds + 1):
        master = await _all_in_sync(client, group)
        sends.begin()
        await sends.run(1.0)
        tell(f"round {number}: replica {master} is master and takes sends; kill -9 ...")
        group.kill(master)
        await sends.run(AFTER_KILL_S)
        gaps.append(round(sends.longest_gap_s, 3))
        after = await _master(client, group)
        tell(
            f"  sends stood still for {gaps[-1]:.3f} s, then went on at replica {after}; errors so far: {sends.errors}"
        )
        group.start(master)
        tell(f"  replica {master} is back and follows")
    await _all_in_sync(client, group)
    found = await _drain(client)
    lost = [body for body in sends.confirmed if body not in found]
    return {
        "masters killed": rounds,
        "send gaps in seconds": gaps,
        "messages confirmed": len(sends.confirmed),
        "errors seen by the producer": sends.errors,
        "confirmed messages lost": len(lost),
    }


async def _first(sends: Sends) -> None:
    deadline = time.monotonic() + FIRST_LIMIT_S
    while not sends.confirmed:
        await sends.one()
        if not sends.confirmed:
            if time.monotonic() > deadline:
                raise CometMQError(f"The group took no message within {FIRST_LIMIT_S:g} s.")
            await asyncio.sleep(0.1)
    sends.errors = 0


async def _master(client: Client, group: GroupProcesses) -> int | None:
    addresses = (await client.admin.cluster_info()).broker_addr_table.get(group.name)
    address = addresses.broker_addrs.get(0) if addresses is not None else None
    return group.id_of(address) if address else None


async def _all_in_sync(client: Client, group: GroupProcesses) -> int:
    """Wait until every replica is in sync; the master."""
    deadline = time.monotonic() + IN_SYNC_LIMIT_S
    while time.monotonic() < deadline:
        master = await _master(client, group)
        if master is not None:
            try:
                status = await client.admin.ha_status(group.address(master))
            except CometMQError:
                status = None
            if status is not None and status["role"] == "MASTER" and len(status["syncSet"]) == len(group.ids):
                return master
        await asyncio.sleep(0.05)
    raise CometMQError(f"Not every replica was in sync within {IN_SYNC_LIMIT_S:g} s.")


async def _drain(client: Client) -> set[str]:
    """Every message that can be read, by body."""
    found: set[str] = set()
    async with client.producer("demo-queues") as producer:
        queues = await producer.queues(TOPIC)
    for queue in queues:
        offset = 0
        while True:
            messages, following = await client.admin.read(queue, offset, READ_COUNT)
            found.update(message.body.decode() for message in messages)
            if following <= offset:
                break
            offset = following
    return found


async def _same_logs(client: Client, group: GroupProcesses) -> bool:
    """SHA-256 of what is confirmed everywhere."""
    statuses = [await client.admin.ha_status(group.address(number)) for number in group.ids]
    end = min(status["confirmOffset"] for status in statuses if status is not None)
    sums = {await client.admin.ha_checksum(group.address(number), 0, end) for number in group.ids}
    return len(sums) == 1
