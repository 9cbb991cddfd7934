"""The client: one object that producers, consumers, streams and the admin are made of.

Nothing happens before ``start()`` (or ``async with``), so a client may be declared when a module is imported. Everything made
of it shares its connections, routes and heartbeats and is closed with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol, Self

from cometmq.client.consumer.push import Consumer
from cometmq.client.instance import Instance
from cometmq.client.producer import Producer
from cometmq.client.settings import Settings
from cometmq.client.subscription import Subscriptions
from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock

log = logging.getLogger(__name__)


class _Child(Protocol):
    async def aclose(self) -> None: ...


class Client:
    """A client of a RocketMQ 4.9 or CometMQ cluster.

    ``name_servers`` is ``"host:9876"``, several joined by ``;`` or in a list; without it ``NAMESRV_ADDR`` of the environment
    is used, then discovery over HTTP. Options are the fields of :class:`Settings`.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock = wall_clock,
        **options: Any,
    ) -> None:
        if settings is None:
            settings = Settings.load(name_servers, **options)
        elif options or name_servers:
            raise TypeError("give either settings or single options")
        self.settings = settings
        self._clock = clock
        self._instance: Instance | None = None
        self._children: list[_Child] = []

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """A client whose settings come from the environment when it starts being used."""
        return cls(None, **options)

    # --- life ---

    async def start(self) -> None:
        await self.instance.start()

    async def aclose(self) -> None:
        """Close consumers, then producers, then the connections. Idempotent; bounded by ``drain_timeout``."""
        children, self._children = self._children, []
        for child in reversed(children):
            await child.aclose()
        if self._instance is not None:
            await self._instance.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def instance(self) -> Instance:
        """The shared part, for parts of this package."""
        if self._instance is None:
            self._instance = Instance(self.settings, now_ms=self._clock)
        return self._instance

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    # --- children ---

    def producer(self, group: str = "cometmq-producer", **options: Any) -> Producer:
        """A producer; see :class:`Producer` for the options."""
        producer = Producer(self.instance, group, **options)
        self._children.append(producer)
        return producer

    def consumer(self, group: str, subscriptions: Subscriptions, **options: Any) -> Consumer:
        """A consumer of topics; see :class:`ConsumerOptions` for the options."""
        consumer = Consumer(self.instance, group, subscriptions, **options)
        self._children.append(consumer)
        return consumer
