"""Pulls of messages that are on disk, from a running broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cold_pages import drop_pages
from wire_client import running_broker

QUEUES = 2
COUNT = 1500  # a queue; 12 MB in all
BODY_SIZE = 4000


async def read_queue(client: Any, queue_id: int, tags: str) -> list[bytes]:
    found: list[bytes] = []
    queue_offset = 0
    while queue_offset < COUNT:
        messages = await client.messages("TopicA", queue_offset, queue_id=queue_id, subscription=tags)
        found += [message.body for message in messages]
        queue_offset = messages[-1].queue_offset + 1
    return found


def test_everything_on_disk_is_pulled_while_others_send(run: Any, tmp_path: Path) -> None:
    async def fill() -> None:
        async with running_broker(tmp_path) as (_, client):
            for start in range(0, COUNT, 100):
                sends = [
                    client.send("TopicA", f"{number}".encode().ljust(BODY_SIZE), queue_id=queue_id)
                    for number in range(start, start + 100)
                    for queue_id in range(QUEUES)
                ]
                assert {answer.code for answer in await asyncio.gather(*sends)} == {0}

    async def read() -> None:
        async with running_broker(tmp_path) as (broker, client):
            found, _ = await asyncio.gather(
                asyncio.gather(*(read_queue(client, queue_id, "*") for queue_id in range(QUEUES))),
                asyncio.gather(*(client.send("TopicB") for _ in range(100))),
            )
            wanted = [f"{number}".encode().ljust(BODY_SIZE) for number in range(COUNT)]
            assert found == [wanted] * QUEUES
            # Far less than one for each of the pulls: the blocks behind the first ones were read ahead.
            assert broker.counters.cold_reads < QUEUES * COUNT // 32 // 2

    run(fill())
    drop_pages(tmp_path)
    run(read())
