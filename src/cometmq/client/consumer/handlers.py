"""Handlers: the application's functions, called for messages; coroutines on the loop, plain functions in threads.

A handler that returns normally acknowledges. An exception retries (``Retry`` and ``Reject`` say how). The return value
is ignored, except that bytes returned for a request become its reply.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cometmq.client.codecs import decoder_for
from cometmq.client.isolation import hop
from cometmq.client.message import ReceivedMessage
from cometmq.client.results import Disposition

if TYPE_CHECKING:
    from cometmq.client.consumer.push import Consumer

log = logging.getLogger(__name__)


class HandlerWorkers:
    """As many workers as the concurrency says, each: take, call, settle."""

    def __init__(
        self,
        consumer: Consumer,
        handler: Callable[..., Any],
        decode: Any = None,
        home: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._home = home  # where coroutine handlers run, if not here
        self._consumer = consumer
        self._handler = handler
        self._batch = consumer.options.batch
        self._decode = None if decode is None else decoder_for(decode)
        self._pool: ThreadPoolExecutor | None = None
        self._call = self._bind(handler)
        self._tasks: list[asyncio.Task[None]] = []

    def _bind(self, handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            return handler if self._home is None else functools.partial(self._at_home, handler)
        self._pool = ThreadPoolExecutor(
            self._consumer.options.concurrency, thread_name_prefix=f"cometmq-{self._consumer.plain_group}"
        )
        return functools.partial(self._in_thread, handler)

    async def _at_home(self, handler: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        """An isolated client: the handler runs on the application's loop, whatever the network does."""
        assert self._home is not None
        return await hop(self._home, handler(*arguments))

    async def _in_thread(self, handler: Callable[..., Any], *arguments: Any) -> Any:
        result = await asyncio.get_running_loop().run_in_executor(self._pool, handler, *arguments)
        return await result if inspect.isawaitable(result) else result

    async def run(self) -> None:
        """Until the consumer is closed; an error of the workers themselves is raised."""
        self._tasks = [asyncio.ensure_future(self._work()) for _ in range(self._consumer.options.concurrency)]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in self._tasks:
                task.cancel()
        for task in done:
            if not task.cancelled():
                task.result()

    async def close(self) -> None:
        """End the workers; a handler that still runs is cancelled, one in a thread is left to itself."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        while True:
            messages = await self._consumer.take(self._batch)
            if not messages:
                return
            await self.handle(messages)

    async def handle(self, messages: Sequence[ReceivedMessage]) -> None:
        consumer = self._consumer
        consumer.begin_processing(len(messages))
        started = time.monotonic()
        tracer = consumer.tracer
        trace_id = "" if tracer is None else tracer.before(consumer.plain_group, messages)
        error: Exception | None = None
        try:
            result = await self.call(messages)
            if isinstance(result, bytes) and messages[0].wants_reply:
                await messages[0].reply(result)
        except Exception as raised:  # noqa: BLE001 - whatever a handler raises means: retry
            error = raised
        finally:
            consumer.end_processing(len(messages))
        took_ms = (time.monotonic() - started) * 1000
        consumer.rates.consumed(messages[0].record.topic, len(messages), took_ms, error is None)
        if tracer is not None:
            tracer.after(consumer.plain_group, trace_id, messages, took_ms, error)
        await self._settle(messages, error)

    async def _settle(self, messages: Sequence[ReceivedMessage], error: Exception | None) -> None:
        if error is None:
            self._consumer.settlement.success(messages)
            return
        if not isinstance(error, Disposition):
            log.warning("handler failed for %s, it will be retried", messages[0], exc_info=error)
        await self._consumer.settlement.failure(messages, error)

    async def call(self, messages: Sequence[ReceivedMessage]) -> Any:
        """The handler with the arguments it was declared for."""
        if self._batch > 1:
            return await self._call(list(messages))
        message = messages[0]
        if self._decode is not None:
            return await self._call(self._decode(message.body), message)
        return await self._call(message)
