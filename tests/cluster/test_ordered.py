"""Ordered consumption: order of a queue, locks over the wire and across restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from live_broker import LiveClient, live_broker
from message_kit import StoppedClock, fields_of, stored

from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.message import MessageQueue

TOPIC = "TopicOrder"
QUEUES = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in range(4)]


async def lock(client: LiveClient, *queue_ids: int, group: str = "CG") -> list[int]:
    queues = [QUEUES[queue_id] for queue_id in queue_ids]
    body = LockBatchRequestBody(consumer_group=group, client_id=client.client_id, mq_set=queues)
    response = await client.call(RequestCode.LOCK_BATCH_MQ, body=body.encode())
    assert response.code == 0
    return sorted(queue.queue_id for queue in LockBatchResponseBody.decode(response.body).lock_ok_mq_set)


async def unlock(client: LiveClient, *queue_ids: int) -> None:
    queues = [QUEUES[queue_id] for queue_id in queue_ids]
    body = UnlockBatchRequestBody(consumer_group="CG", client_id=client.client_id, mq_set=queues)
    assert (await client.call(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())).code == 0


def test_queues_are_handed_over_one_by_one_as_consumers_come_and_go(run: Any, tmp_path: Path) -> None:
    """Nobody gets a queue before its owner gave it back or is silent for 60 s."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            first, second = live.client("c1"), live.client("c2")
            assert await lock(first, 0, 1, 2, 3) == [0, 1, 2, 3]
            assert await lock(second, 2, 3) == []
            await unlock(first, 2)
            assert await lock(second, 2, 3) == [2]
            await unlock(second, 0)  # not its own
            assert await lock(second, 0) == []
            clock.ms += 40_000
            assert await lock(first, 0, 1) == [0, 1]
            clock.ms += 20_001
            assert await lock(second, 0, 1, 2, 3) == [2, 3]
            clock.ms += 60_001
            assert await lock(second, 0, 1, 2, 3) == [0, 1, 2, 3]
            assert await lock(first, 0, 1, 2, 3) == []

    run(main())


def test_groups_lock_independently_and_a_restart_forgets_locks(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            first, second = live.client("c1"), live.client("c2")
            assert await lock(first, 0) == [0]
            assert await lock(second, 0, group="other") == [0]
            assert await lock(second, 0) == []
        async with live_broker(tmp_path) as live:
            assert await lock(live.client("c2"), 0) == [0]

    run(main())


def test_messages_of_one_queue_stay_in_the_order_of_their_sends(run: Any, tmp_path: Path) -> None:
    """Several senders, one queue each per key: plain, first through the handlers and then through the compiled path."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            clients = [live.client(f"c{number}") for number in range(4)]
            await clients[0].create_topic(TOPIC, 4)

            async def send_in_order(queue_id: int) -> None:
                for number in range(60):
                    fields_of(await clients[queue_id].send(TOPIC, queue_id, b"%d" % number))

            await asyncio.gather(*(send_in_order(queue_id) for queue_id in range(4)))
            for queue_id in range(4):
                messages = await stored(clients[0], TOPIC, queue_id)
                assert [int(message.body) for message in messages] == list(range(60))
                assert [message.queue_offset for message in messages] == list(range(60))

    run(main())
