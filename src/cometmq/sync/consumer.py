"""Blocking consumers: iterate, or give a function to ``run``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cometmq.client.consumer.push import Consumer as AsyncConsumer
from cometmq.client.loop_thread import LoopThread
from cometmq.client.message import ReceivedMessage
from cometmq.client.queue import Queue
from cometmq.client.results import Disposition, Reject, Retry, SendResult
from cometmq.client.settings import Duration
from cometmq.client.subscription import Filter
from cometmq.sync.lifetime import Lifetime

log = logging.getLogger(__name__)


class SyncMessage:
    """A received message with blocking verbs; everything else is that of ``ReceivedMessage``."""

    __slots__ = ("_consumer", "_thread", "inner")

    def __init__(self, thread: LoopThread, consumer: AsyncConsumer, inner: ReceivedMessage) -> None:
        self._thread = thread
        self._consumer = consumer
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    @property
    def topic(self) -> str:
        """The topic as the application knows it."""
        return self.inner.topic

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed if it came compressed."""
        return self.inner.body

    @contextmanager
    def process(self, *, reraise: bool = False) -> Iterator[SyncMessage]:
        """``with msg.process():`` acknowledges at the end of the block; an exception sends the message back."""
        self._thread.call(self._consumer.begin_processing)
        try:
            yield self
        except Exception as error:
            self._thread.run(self._consumer.settle_failure(self.inner, error))
            if isinstance(error, Disposition):
                return
            log.warning("%s failed and will be retried", self.inner, exc_info=error)
            if reraise:
                raise
        else:
            self.ack()
        finally:
            self._thread.call(self._consumer.end_processing)

    def ack(self) -> None:
        """Done; the offset of the group may pass this message."""
        self._thread.call(self._consumer.settle_success, self.inner)

    def retry(self, *, delay_level: int = 0) -> None:
        """Have it come again later."""
        self._thread.run(self._consumer.settle_failure(self.inner, Retry(delay_level=delay_level)))

    def reject(self, reason: str = "") -> None:
        """Never again: it goes to the dead letters of the group."""
        self._thread.run(self._consumer.settle_failure(self.inner, Reject(reason)))

    def reply(self, body: bytes) -> SendResult:
        """Answer a request."""
        return self._thread.run(self.inner.reply(body))


class Consumer(Lifetime):
    """As ``cometmq.Consumer``, blocking."""

    def __init__(self, thread: LoopThread, make: Callable[[], AsyncConsumer]) -> None:
        self._thread = thread
        self._inner = thread.call(make)

    def start(self) -> None:
        """Join the group: returns when the first assignment was made."""
        self._thread.run(self._inner.start())

    def close(self, timeout: Duration | None = None) -> None:
        """Stop pulling, finish what is in work, store offsets, leave the group."""
        self._thread.run(self._inner.aclose(timeout))

    def __iter__(self) -> Iterator[SyncMessage]:
        """Messages until the consumer is closed by another thread."""
        while (message := self.get(None)) is not None:
            yield message

    def get(self, timeout: float | None = 5.0) -> SyncMessage | None:
        """The next message, or None when none came in time or the consumer was closed."""
        try:
            messages = self._thread.run(self._inner.take(1, iterated=True), timeout)
        except TimeoutError:
            return None
        return SyncMessage(self._thread, self._inner, messages[0]) if messages else None

    def run(self, handler: Callable[..., Any], *, decode: Any = None) -> None:
        """Call ``handler`` in worker threads for every message until the consumer is closed."""
        self._thread.run(self._inner.run(handler, decode=decode))

    def commit(self) -> None:
        """Store how far this member came, and wait for the brokers' confirmation."""
        self._thread.run(self._inner.commit())

    def subscribe(self, topic: str, filter: Filter | str | None = None) -> None:
        """Read another topic, or read one with another filter."""
        self._thread.run(self._inner.subscribe(topic, filter))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self._thread.run(self._inner.unsubscribe(topic))

    def pause(self) -> None:
        """Stop pulling; what was pulled is still handed out."""
        self._thread.call(self._inner.pause)

    def resume(self) -> None:
        """Pull again after ``pause()``."""
        self._thread.call(self._inner.resume)

    def assignment(self) -> list[Queue]:
        """The queues that this member has now."""
        return self._thread.call(self._inner.assignment)
