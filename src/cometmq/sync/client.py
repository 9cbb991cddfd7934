"""The blocking client: owns the loop thread that everything made of it runs on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, Unpack

from cometmq.client.arguments import ClientArguments, ConsumerArguments, ProducerArguments, StreamArguments
from cometmq.client.client import Client as AsyncClient
from cometmq.client.loop_thread import LoopThread
from cometmq.client.settings import Settings
from cometmq.client.subscription import Subscriptions
from cometmq.client.transactions import Check
from cometmq.errors import ClientClosed
from cometmq.sync.admin import Admin
from cometmq.sync.consumer import Consumer
from cometmq.sync.lifetime import Lifetime
from cometmq.sync.producer import Producer, TransactionalProducer
from cometmq.sync.stream import Stream


class Client(Lifetime):
    """As ``cometmq.Client``, blocking. Nothing happens before ``start()`` or ``with``."""

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        settings: Settings | None = None,
        **options: Unpack[ClientArguments],
    ) -> None:
        self._inner = AsyncClient(name_servers, settings=settings, **options)
        self._thread: LoopThread | None = None
        self._admin: Admin | None = None
        self._producers: list[Producer] = []

    @classmethod
    def from_env(cls, **options: Unpack[ClientArguments]) -> Self:
        """A client for the servers that NAMESRV_ADDR or COMETMQ_* in the environment name."""
        return cls(None, **options)

    def start(self) -> None:
        """Begin: starts the thread that does the network. Happens by itself in ``with``."""
        if self._thread is None:
            self._thread = LoopThread("cometmq-client")
            self._thread.run(self._inner.start())

    def close(self) -> None:
        """Close everything made of this client. Idempotent and bounded."""
        thread, self._thread = self._thread, None
        for producer in self._producers:
            producer.close_sockets()
        self._producers.clear()
        if thread is not None:
            try:
                if thread.alive:
                    thread.run(self._inner.aclose())
            finally:
                thread.close()

    @property
    def _loop(self) -> LoopThread:
        if self._thread is None:
            raise ClientClosed("this client is not started; use 'with Client(...)' or client.start()")
        return self._thread

    @property
    def client_id(self) -> str:
        """The name that brokers know this client by."""
        return self._loop.call(lambda: self._inner.client_id)

    def producer(self, group: str = "cometmq-producer", **options: Unpack[ProducerArguments]) -> Producer:
        """A producer of a group; usable at once."""
        inner = self._loop.call(lambda: self._inner.producer(group, **options))
        self._producers.append(Producer(self._loop, inner))
        return self._producers[-1]

    def transactional(
        self, group: str, *, check: Check, **options: Unpack[ProducerArguments]
    ) -> TransactionalProducer:
        """A producer of transactional messages; ``check`` is asked about those whose end got lost."""
        inner = self._loop.call(lambda: self._inner.transactional(group, check=check, **options))
        producer = TransactionalProducer(self._loop, inner)
        self._producers.append(producer)
        return producer

    def consumer(
        self, group: str, subscriptions: Subscriptions, **options: Unpack[ConsumerArguments]
    ) -> Consumer:
        """A member of a consumer group; options as in ConsumerOptions."""
        return Consumer(self._loop, lambda: self._inner.consumer(group, subscriptions, **options))

    def stream(
        self, group: str, subscriptions: Subscriptions | None = None, **options: Unpack[StreamArguments]
    ) -> Stream:
        """A reader with its own offsets, of topics or (``assign=``) of queues."""
        return Stream(self._loop, lambda: self._inner.stream(group, subscriptions, **options))

    @property
    def admin(self) -> Admin:
        """Operations on the cluster."""
        if self._admin is None:
            self._admin = Admin(self._loop, self._loop.call(lambda: self._inner.admin))
        return self._admin
