"""For tests of message kinds: a clock that stands still, properties, reading what a queue holds."""

from __future__ import annotations

import asyncio
from typing import Any

from live_broker import WAIT_S, LiveClient

from cometmq.clock import now_ms as wall_clock
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.message import MessageExt
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record_cy import decode_records

CALM_S = 0.25  # longer than two looks of a delay queue at the clock


class StoppedClock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.ms = wall_clock()

    def __call__(self) -> int:
        return self.ms


def props(**properties: object) -> str:
    return encode_properties({name: str(value) for name, value in properties.items()})


def fields_of(response: RemotingCommand) -> dict[str, str]:
    assert response.code == 0, response
    assert response.ext_fields is not None
    return response.ext_fields


async def stored(
    client: LiveClient, topic: str, queue_id: int = 0, offset: int = 0, **header: Any
) -> list[MessageExt]:
    """All messages of a queue from an offset on, as a pulling consumer sees them."""
    messages: list[MessageExt] = []
    while True:
        response = await client.pull("CG_kit", topic, queue_id, offset, **header)
        if response.code == 0:
            messages += decode_records(response.body)
        next_offset = int((response.ext_fields or {}).get("nextBeginOffset", offset))
        if response.code not in (0, 20) or next_offset <= offset:
            return messages
        offset = next_offset


async def arrived(
    client: LiveClient, topic: str, count: int = 1, queue_id: int = 0, *, timeout_s: float = WAIT_S
) -> list[MessageExt]:
    """Wait until a queue holds at least so many messages."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        messages = await stored(client, topic, queue_id)
        if len(messages) >= count:
            return messages
        assert asyncio.get_running_loop().time() < deadline, (
            f"{topic} has {len(messages)} messages, not {count}"
        )
        await asyncio.sleep(0.01)


async def calm() -> None:
    """Time enough for a delay queue to do what it should not."""
    await asyncio.sleep(CALM_S)
