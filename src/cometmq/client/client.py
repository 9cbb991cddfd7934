"""The client: one object that producers, consumers, streams and the admin are made of.

Nothing happens before ``start()`` (or ``async with``), so a client may be declared when a module is imported.
Everything made of it shares its connections, routes and heartbeats and is closed with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

from cometmq.client.app import EXIT_FAILED, EXIT_OK, Handlers, on_signals
from cometmq.client.arguments import ClientArguments, ConsumerArguments, ProducerArguments, StreamArguments
from cometmq.client.consumer.push import Consumer
from cometmq.client.consumer.stream import Stream
from cometmq.client.instance import Instance
from cometmq.client.isolation import IsolatedSettler, hop, isolated
from cometmq.client.lifetime import Lifetime
from cometmq.client.loop_thread import LoopThread
from cometmq.client.producer import Producer
from cometmq.client.settings import Settings
from cometmq.client.subscription import Filter, Subscriptions
from cometmq.client.trace import Tracer
from cometmq.client.transactions import Check, TransactionalProducer
from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.admin import Admin

log = logging.getLogger(__name__)

_T = TypeVar("_T")
F = TypeVar("F", bound=Callable[..., Any])
TRACE_GROUP = "_INNER_TRACE_PRODUCER"


class _Child(Protocol):
    async def aclose(self) -> None: ...


class Client(Lifetime):
    """A client of a RocketMQ 4.9 or CometMQ cluster.

    ``name_servers`` is ``"host:9876"``, several joined by ``;`` or in a list; without it ``NAMESRV_ADDR`` of the
    environment is used, then discovery over HTTP. Options are the fields of :class:`Settings`.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock = wall_clock,
        **options: Unpack[ClientArguments],
    ) -> None:
        if settings is None:
            settings = Settings.load(name_servers, **options)
        elif options or name_servers:
            raise TypeError("give either settings or single options")
        self.settings = settings
        self._clock = clock
        self._instance: Instance | None = None
        self._children: list[_Child] = []
        self._handlers = Handlers()
        self._tracer: Tracer | None = None
        self._admin: Admin | None = None

    @classmethod
    def from_env(cls, **options: Unpack[ClientArguments]) -> Self:
        """A client whose settings come from the environment (``NAMESRV_ADDR``, ``COMETMQ_*``)."""
        return cls(None, **options)

    # --- life ---

    async def start(self) -> None:
        """Bind to the running loop (with ``isolate`` to one in a thread). Nothing is sent before the first use."""
        if self.settings.isolate and self.instance.thread is None:
            self.instance.thread = LoopThread("cometmq-network")
        await self._on_network(self.instance.start())

    async def _on_network(self, work: Coroutine[Any, Any, None]) -> None:
        thread = self.instance.thread
        if thread is None:
            await work
        else:
            await hop(thread.loop, work)

    async def aclose(self) -> None:
        """Close what was made of this client, last made first, then the connections. Idempotent and bounded."""
        children, self._children = self._children, []
        for child in reversed(children):
            await child.aclose()
        if self._tracer is not None:
            await self._on_network(self._tracer.aclose())
            self._tracer = None
        instance, thread = self._instance, self._instance.thread if self._instance is not None else None
        if instance is not None:
            await self._on_network(instance.close())
        if thread is not None:
            await asyncio.to_thread(thread.close)

    @property
    def instance(self) -> Instance:
        """The shared part, for parts of this package."""
        if self._instance is None:
            self._instance = Instance(self.settings, now_ms=self._clock)
        return self._instance

    @property
    def client_id(self) -> str:
        """How brokers and tools name this client."""
        return self.instance.client_id

    # --- children ---

    def producer(self, group: str = "cometmq-producer", **options: Unpack[ProducerArguments]) -> Producer:
        """A producer; the options are those of :class:`Producer`."""
        kind = self._kind(Producer)
        return self._adopt(kind(self.instance, group, tracer=self._trace(), **options))

    def transactional(
        self, group: str, *, check: Check, **options: Unpack[ProducerArguments]
    ) -> TransactionalProducer:
        """A producer of transactional messages; ``check`` tells what became of a transaction left open."""
        kind = self._kind(TransactionalProducer)
        return self._adopt(kind(self.instance, group, check=check, tracer=self._trace(), **options))

    def consumer(
        self, group: str, subscriptions: Subscriptions, **options: Unpack[ConsumerArguments]
    ) -> Consumer:
        """A consumer of topics (a name, or ``{name: filter}``); the options are those of ConsumerOptions."""
        kind = self._kind(Consumer)
        consumer = kind(self.instance, group, subscriptions, tracer=self._trace(), **options)
        if self.settings.isolate:
            consumer.settler = IsolatedSettler(consumer)
        return self._adopt(consumer)

    def stream(
        self, group: str, subscriptions: Subscriptions | None = None, **options: Unpack[StreamArguments]
    ) -> Stream:
        """A reader with offsets of its own; the options are those of :class:`Stream`."""
        return self._adopt(self._kind(Stream)(self.instance, group, subscriptions, **options))

    @property
    def admin(self) -> Admin:
        """Administration: topics, groups, offsets, brokers."""
        if self._admin is None:
            from cometmq.admin import Admin

            self._admin = self._kind(Admin)(self.instance)
        return self._admin

    _C = TypeVar("_C", bound=_Child)

    def _adopt(self, child: _C) -> _C:
        self._children.append(child)
        return child

    def _kind(self, cls: type[_T]) -> type[_T]:
        return isolated(cls) if self.settings.isolate else cls

    def _trace(self) -> Tracer | None:
        """One tracer for all, made with the first traced child."""
        if self.settings.trace and self._tracer is None:
            producer = Producer(self.instance, TRACE_GROUP)
            self._tracer = Tracer(self.instance, producer, self.settings.trace_topic)
        return self._tracer

    # --- handlers ---

    def subscribe(
        self,
        topics: Subscriptions,
        *,
        group: str,
        filter: Filter | str | None = None,
        decode: Any = None,
        **options: Unpack[ConsumerArguments],
    ) -> Callable[[F], F]:
        """Declare a handler: ``@client.subscribe("orders", group="billing")``.

        The function gets the message; with ``decode=`` first the decoded body; with ``batch=n`` a list. Plain
        functions run in threads. Returned bytes are the reply to a request.
        """
        return self._handlers.subscribe(topics, group, filter, decode, options)

    async def serve(self, stop: asyncio.Event | None = None) -> None:
        """Run the declared handlers until ``stop`` is set (or SIGINT or SIGTERM comes), then drain."""
        if stop is None:
            stop = asyncio.Event()
            on_signals(stop)
        async with self:
            await self._handlers.serve(self, stop)

    def run(self) -> int:
        """Run the declared handlers as a program; returns the exit code."""
        try:
            asyncio.run(self.serve())
        except KeyboardInterrupt:
            return EXIT_OK
        except CometMQError as error:
            log.error("%s", error)
            return EXIT_FAILED
        return EXIT_OK
