"""Handlers declared with decorators, and running them as a program.

``@client.subscribe(...)`` only remembers; ``client.run()`` (or ``await client.serve()``) starts a consumer
for each, waits for a signal, drains and leaves. Nothing happens at import time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cometmq.client.arguments import ConsumerArguments
from cometmq.client.subscription import Filter, Subscriptions
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.client.client import Client

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

EXIT_OK = 0
EXIT_FAILED = 1


@dataclass(frozen=True, slots=True)
class Declared:
    """One ``@client.subscribe``."""

    handler: Callable[..., Any]
    group: str
    subscriptions: Subscriptions
    decode: Any
    options: ConsumerArguments


class Handlers:
    """The handlers declared on one client."""

    def __init__(self) -> None:
        self._declared: list[Declared] = []

    def subscribe(
        self,
        topics: Subscriptions,
        group: str,
        filter: Filter | str | None,
        decode: Any,
        options: ConsumerArguments,
    ) -> Callable[[F], F]:
        if filter is not None:
            if not isinstance(topics, str):
                raise TypeError("filter= goes with one topic; for several topics give {topic: filter}")
            topics = {topics: filter}

        def remember(handler: F) -> F:
            self._declared.append(Declared(handler, group, topics, decode, options))
            return handler

        return remember

    async def serve(self, client: Client, stop: asyncio.Event) -> None:
        """Run every handler until ``stop`` is set; a consumer that cannot start ends it."""
        if not self._declared:
            raise CometMQError("no handler is declared; use @client.subscribe(topic, group=...)")
        consumers = [client.consumer(one.group, one.subscriptions, **one.options) for one in self._declared]
        running = [
            asyncio.ensure_future(consumer.run(one.handler, decode=one.decode))
            for consumer, one in zip(consumers, self._declared, strict=True)
        ]
        stopping = asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            stopping.cancel()
            await asyncio.gather(*(consumer.aclose() for consumer in consumers))
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def on_signals(stop: asyncio.Event) -> None:
    """SIGINT and SIGTERM set ``stop``; where the loop cannot watch signals (Windows), Ctrl-C interrupts as usual."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop.set)
