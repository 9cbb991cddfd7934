"""A consumer of ours as a process of its own, to be killed: prints each body when its handler has run.

python python_member.py NAMESRV GROUP TOPIC [ordered]
"""

from __future__ import annotations

import asyncio
import sys

from cometmq import Client, ReceivedMessage, StartFrom
from cometmq.client.consumer import process_queue, push

# The locks of the shared brokers live 10 s instead of a minute.
push.RENEW_INTERVAL_S = 2.0
process_queue.LOCK_LIVES_MS = 8_000


async def main(namesrv: str, group: str, topic: str, ordered: bool) -> None:
    async def handle(message: ReceivedMessage) -> None:
        sys.stdout.write(f"{message.queue.queue_id} {message.offset} {message.body.decode()}\n")
        sys.stdout.flush()

    async with Client(namesrv) as mq:
        await mq.consumer(group, topic, start=StartFrom.FIRST, ordered=ordered).run(handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], ordered=sys.argv[4:] == ["ordered"]))
