"""A follower in a process of its own: reads registrations, makes its call, tells that it is done.

``python -m cometmq.demo.follower STEP NAMESERVER CONCURRENCY``; ends in order when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from cometmq.client.client import Client
from cometmq.client.consumer.options import StartFrom
from cometmq.demo.children import input_ended
from cometmq.demo.plan import CALL_S, STEPS_TOPIC, TOPIC, group_of
from cometmq.protocol.message import Message

if TYPE_CHECKING:
    from cometmq.client.message import ReceivedMessage

OFFSET_INTERVAL_S = 0.2  # progress is drawn: report it more often than every five seconds


async def follow(step: str, name_server: str, concurrency: int) -> None:
    async with Client(name_server, offset_interval=OFFSET_INTERVAL_S) as mq:
        done = mq.producer(f"{step}-done")

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(CALL_S)
            # First tell, then acknowledge by returning: a death in between repeats a step, none is left out.
            await done.send(Message(STEPS_TOPIC, message.body, tag=step, keys=message.keys))

        consumer = mq.consumer(group_of(step), TOPIC, start=StartFrom.FIRST, concurrency=concurrency)
        await consumer.start()
        print("ready", flush=True)
        working = asyncio.create_task(consumer.run(handle))
        await input_ended()
        await consumer.aclose()
        await working


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1], sys.argv[2], int(sys.argv[3])))
