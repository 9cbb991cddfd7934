"""The count at the end: every message of both topics is read back, and every confirmed user looked for in each step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from cometmq.client.consumer.options import StartFrom
from cometmq.demo.plan import STEPS, STEPS_TOPIC, TOPIC
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.client.client import Client

READ_LIMIT_S = 30.0


class StepCount(NamedTuple):
    """What is in the broker about one step. ``lost`` are confirmed users without it."""

    step: str
    users: int
    events: int
    lost: int

    @property
    def twice(self) -> int:
        return self.events - self.users


def count_steps(confirmed: Iterable[str], events: Mapping[str, Counter[str]]) -> list[StepCount]:
    """
    >>> count_steps(["a", "b"], {"register": Counter("ab"), "sms": Counter("aab")})[1].twice
    1
    """
    wanted = set(confirmed)
    return [
        StepCount(step, len(found), found.total(), len(wanted - set(found)))
        for step in STEPS
        for found in [events.get(step, Counter())]
    ]


async def read_steps(mq: Client) -> dict[str, Counter[str]]:
    """Users of every step, as often as they are there."""
    queues = [*await mq.admin.queues(TOPIC), *await mq.admin.queues(STEPS_TOPIC)]
    left = sum([await mq.admin.max_offset(queue) - await mq.admin.min_offset(queue) for queue in queues])
    found: dict[str, Counter[str]] = {step: Counter() for step in STEPS}
    try:
        async with (
            asyncio.timeout(READ_LIMIT_S),
            mq.stream("demo-count", assign=queues, start=StartFrom.FIRST, auto_commit=False) as stream,
        ):
            while left > 0:
                for message in await stream.poll(timeout=1.0):
                    found[message.tag or ""][message.body.decode()] += 1
                    left -= 1
    except TimeoutError:
        raise CometMQError(f"{left} messages could not be read back in {READ_LIMIT_S:g} s.") from None
    return found
