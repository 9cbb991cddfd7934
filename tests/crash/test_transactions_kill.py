"""Transactions while producers and the broker are killed: consumers see exactly the committed ones.

The plain suite runs a reduced number; the full one: ``COMETMQ_TRANSACTION_COUNT=10000 pytest -s`` on this file.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from killable import KillableBroker

from cometmq.clock import now_ms
from cometmq.errors import CometMQError
from cometmq.net.client import RemotingClient
from cometmq.net.connection import Connection
from cometmq.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    CheckTransactionStateHeader,
    EndTransactionHeader,
    PullMessageHeader,
    SendMessageV2Header,
)
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record_cy import decode_records

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

COUNT = int(os.environ.get("COMETMQ_TRANSACTION_COUNT", "400"))
TOPIC, GROUP = "TopicTransactionKill", "PG"
COMMIT, ROLLBACK = 8, 12
PRODUCERS = 8


def decision(key: str) -> int:
    """What the application decided about a transaction; every producer of the group finds the same in its database."""
    return COMMIT if int(key) % 3 else ROLLBACK


class Producer:
    """One producer of the group; ``kill`` drops its connection in the middle of whatever it does."""

    def __init__(self, broker: KillableBroker, number: int) -> None:
        self._broker = broker
        self._number = number
        self._lives = 0
        self._client = RemotingClient(fallback=self._asked)
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._beating = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        while True:
            data = HeartbeatData(client_id=f"p{self._number}-{self._lives}")
            data.producer_data_set.append(ProducerData(group_name=GROUP))
            await self._call(RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode()))
            await asyncio.sleep(0.2)

    async def kill(self) -> None:
        self._lives += 1
        old, self._client = self._client, RemotingClient(fallback=self._asked)
        await old.close()

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        await self._client.close()

    def _asked(self, connection: Connection, request: RemotingCommand) -> None:
        header = CheckTransactionStateHeader.decode(request.ext_fields)
        key = header.transaction_id or ""
        connection.send(self._end(key, header.tran_state_table_offset, header.commit_log_offset, oneway=True))

    def _end(self, key: str, queue_offset: int, physical_offset: int, *, oneway: bool) -> RemotingCommand:
        header = EndTransactionHeader(
            producer_group=GROUP, tran_state_table_offset=queue_offset, commit_log_offset=physical_offset,
            commit_or_rollback=decision(key), from_transaction_check=oneway, msg_id=key, transaction_id=key,
        )  # fmt: skip
        return RemotingCommand.request(RequestCode.END_TRANSACTION, header, oneway=oneway)

    async def _call(self, request: RemotingCommand) -> dict[str, str] | None:
        """The fields of a good answer; None when there is none, for whatever reason."""
        try:
            response = await self._client.invoke(self._broker.address, request, 2_000)
        except (CometMQError, OSError):
            return None
        return response.ext_fields or {} if response.code == 0 else None

    async def transaction(self, key: str, chance: random.Random) -> None:
        """Prepare until it is stored; then end it, or die before that, or end it several times."""
        header = SendMessageV2Header(
            producer_group=GROUP, topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
            sys_flag=4, born_timestamp=now_ms(), flag=0,
            properties=encode_properties({"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": key}),
        )  # fmt: skip
        while True:
            request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, key.encode())
            half = await self._call(request)
            if half is not None:
                break
            await asyncio.sleep(0.05)
        if chance.random() < 0.2:
            if chance.random() < 0.3:
                await self.kill()
            return
        place = int(half["queueOffset"]), int(half["msgId"][16:], 16)
        for _ in range(chance.choice([1, 1, 1, 3])):
            await self._call(self._end(key, *place, oneway=False))


async def consumed(broker: KillableBroker) -> Counter[str]:
    """How often each transaction is visible."""
    client, found, offset = RemotingClient(), Counter[str](), 0
    while True:
        header = PullMessageHeader(
            consumer_group="CG", topic=TOPIC, queue_id=0, queue_offset=offset, max_msg_nums=1_000, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
        )  # fmt: skip
        response = await client.invoke(
            broker.address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), 5_000
        )
        if response.code != 0:
            await client.close()
            return found
        offset = int((response.ext_fields or {})["nextBeginOffset"])
        found.update(message.body.decode() for message in decode_records(response.body))


def test_exactly_the_committed_transactions_are_seen(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        broker = KillableBroker(
            tmp_path, transactionTimeOut=400, transactionCheckInterval=200, transactionCheckMax=1_000,
            flushConsumerOffsetInterval=200,
        )  # fmt: skip
        await broker.start()
        producers = [Producer(broker, number) for number in range(PRODUCERS)]
        try:
            for producer in producers:
                producer.start()
            working = asyncio.ensure_future(work(producers))
            for _ in range(2):
                await asyncio.sleep(0.7 + COUNT / 4_000)
                await broker.kill_and_start()
            await working
            wanted = {str(number) for number in range(COUNT) if decision(str(number)) == COMMIT}
            found = await settled(broker, wanted)
        finally:
            for producer in producers:
                await producer.close()
            await broker.kill()
        assert set(found) == wanted
        again = sum(found.values()) - len(found)
        print(
            f"\n{COUNT} transactions, 2 kills of the broker: {len(found)} committed, {again} delivered again"
        )

    run(main(), timeout=580)


async def work(producers: list[Producer]) -> None:
    chance, numbers = random.Random(9), iter(range(COUNT))

    async def run_one(producer: Producer) -> None:
        for number in numbers:
            await producer.transaction(str(number), chance)
            await asyncio.sleep(0.02)

    await asyncio.gather(*(run_one(producer) for producer in producers))


async def settled(broker: KillableBroker, wanted: set[str]) -> Counter[str]:
    """Wait until every committed transaction is visible, then a few check rounds more for what should not come."""
    deadline = asyncio.get_running_loop().time() + 60 + COUNT / 100
    while not wanted <= set(found := await consumed(broker)):
        assert asyncio.get_running_loop().time() < deadline, f"{len(wanted - set(found))} are missing"
        await asyncio.sleep(0.2)
    await asyncio.sleep(2)
    return await consumed(broker)
