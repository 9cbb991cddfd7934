"""Blocking producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from cometmq.client.loop_thread import LoopThread
from cometmq.client.message import ReceivedMessage
from cometmq.client.producer import Producer as AsyncProducer
from cometmq.client.producer import Selector
from cometmq.client.queue import Queue
from cometmq.client.results import SendResult, TransactionState
from cometmq.client.send_pipe import SendAnswer
from cometmq.client.sender import result_of
from cometmq.client.settings import Duration, seconds
from cometmq.client.transactions import HalfMessage
from cometmq.client.transactions import TransactionalProducer as AsyncTransactionalProducer
from cometmq.protocol.message import Message
from cometmq.sync.direct_send import DirectSends
from cometmq.sync.lifetime import Lifetime


class Producer(Lifetime):
    """As ``cometmq.Producer``, blocking. May be shared by threads."""

    def __init__(self, thread: LoopThread, inner: AsyncProducer) -> None:
        self._thread = thread
        self._inner = inner
        self._direct = None if inner.plain is None else DirectSends(inner.instance, inner.plain)

    @property
    def group(self) -> str:
        """The producer group."""
        return self._inner.group

    def start(self) -> None:
        """Announce the group to the brokers. Happens by itself with the first send."""
        self._thread.run(self._inner.start())

    def close(self, timeout: Duration | None = None) -> None:
        """Wait for pending sends (bounded), then take leave."""
        self.close_sockets()
        self._thread.run(self._inner.aclose(timeout))

    def close_sockets(self) -> None:
        """Close the sockets of direct sends; the client does so too when it is closed."""
        if self._direct is not None:
            self._direct.close()

    def send(
        self,
        message: Message,
        *,
        ordering_key: str | None = None,
        hash: str = "java",
        queue: Queue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send and wait until a broker has stored it."""
        if ordering_key is None and queue is None and selector is None and self._direct is not None:
            result = self._send_directly(self._direct, message, timeout)
            if result is not None:
                return result
        return self._thread.run(
            self._inner.send(
                message,
                ordering_key=ordering_key,
                hash=hash,
                queue=queue,
                selector=selector,
                timeout=timeout,
            )
        )

    def _send_directly(
        self, direct: DirectSends, message: Message, timeout: Duration | None
    ) -> SendResult | None:
        """None when this send must go over the loop. A failure goes on there as the second attempt."""
        self._inner.instance.check_usable()
        done = direct.send(message, self._inner.timeout_s if timeout is None else seconds(timeout))
        if done is None:
            return None
        target, unique_id, born_ms, outcome = done
        if isinstance(outcome, SendAnswer) and outcome.code == 0:
            return result_of(outcome, target.queue, unique_id, target.address)
        return self._thread.run(
            self._inner.after_plain(message, target, unique_id, born_ms, outcome, timeout)
        )

    def send_oneway(self, message: Message, *, ordering_key: str | None = None) -> None:
        """Send without waiting for an answer: fast, and nobody knows whether it arrived."""
        self._thread.run(self._inner.send_oneway(message, ordering_key=ordering_key))

    def send_batch(
        self, messages: Iterable[Message], *, queue: Queue | None = None, timeout: Duration | None = None
    ) -> SendResult:
        """Send messages of one topic in one request, to one queue."""
        return self._thread.run(self._inner.send_batch(messages, queue=queue, timeout=timeout))

    def send_soon(self, message: Message, **options: Any) -> Future[SendResult]:
        """Begin to send; the future is a concurrent one. ``flush()`` waits for all of them."""
        result: Future[SendResult] = Future()

        def begin() -> None:
            try:
                task = self._inner.send_soon(message, **options)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asks the future
                result.set_exception(error)
                return
            task.add_done_callback(lambda done: _copy(done, result))

        self._thread.loop.call_soon_threadsafe(begin)
        return result

    def flush(self) -> None:
        """Wait for everything that ``send_soon`` began; raises the first failure."""
        self._thread.run(self._inner.flush())

    def request(self, message: Message, *, timeout: Duration = 3.0) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it."""
        return self._thread.run(self._inner.request(message, timeout=timeout))

    def queues(self, topic: str) -> list[Queue]:
        """The queues that messages of a topic are spread over."""
        return self._thread.run(self._inner.queues(topic))


def _copy(done: Any, result: Future[SendResult]) -> None:
    if done.cancelled():
        result.cancel()
    elif done.exception() is not None:
        result.set_exception(done.exception())
    else:
        result.set_result(done.result())


class TransactionalProducer(Producer):
    """As ``cometmq.TransactionalProducer``: ``with tx.begin(message) as half:`` around the local work."""

    def __init__(self, thread: LoopThread, inner: AsyncTransactionalProducer) -> None:
        super().__init__(thread, inner)
        self._transactional = inner

    @contextmanager
    def begin(self, message: Message) -> Iterator[HalfMessage]:
        """Commits at the end of the block, rolls back on an exception."""
        half = self._thread.run(self._transactional.prepare(message))
        try:
            yield half
        except Exception as error:
            self._thread.run(self._transactional.finish(half, TransactionState.ROLLBACK, error))
            raise
        except BaseException as error:
            self._thread.run(self._transactional.finish(half, TransactionState.UNKNOWN, error))
            raise
        self._thread.run(self._transactional.finish(half, half.state or TransactionState.COMMIT))
