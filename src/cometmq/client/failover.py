"""Waiting for the next master: a group with replicas gets one, so an attempt that found none is made again soon.

A group whose only broker is away fails at once, as ever; there is nobody to wait for. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib

from cometmq.client.routes import Routes
from cometmq.errors import BrokerError, CometMQError
from cometmq.protocol.bodies.route import MASTER_ID
from cometmq.protocol.codes import ResponseCode

PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 0.25
PAUSE_PART = 4  # of the time that was waited already: so much longer than the master was away at most


def possible(routes: Routes, topic: str) -> bool:
    """Has every broker group that takes this topic replicas, one of which may become master?"""
    route = routes.known(topic)
    if route is None or not route.data.broker_datas:
        return False
    return all(set(broker.broker_addrs) - {MASTER_ID} for broker in route.data.broker_datas)


def surely_not_stored(error: CometMQError) -> bool:
    return isinstance(error, BrokerError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE


def pause_s(paused_s: float) -> float:
    """How long to wait before the next look, when all pauses so far took this long."""
    return min(max(paused_s / PAUSE_PART, PAUSE_S_MIN), PAUSE_S_MAX)


class MasterWait:
    """The pauses of one send: refresh the route at once, then each 50 ms, later less often.

    Doubled pauses would be half of the time that nobody can send."""

    def __init__(self, routes: Routes, topic: str) -> None:
        self._routes = routes
        self._topic = topic
        self._pause_s = self._paused_s = 0.0

    async def once(self, left_s: float) -> None:
        await asyncio.sleep(max(min(self._pause_s, left_s), 0))
        self._paused_s += self._pause_s
        self._pause_s = pause_s(self._paused_s)
        with contextlib.suppress(CometMQError, TimeoutError):
            await asyncio.wait_for(self._routes.refresh(self._topic), max(left_s, PAUSE_S_MIN))
