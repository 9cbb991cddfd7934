"""Isolation: the network of an asyncio client on a loop thread of its own, the application on its own loop.

With ``Client(..., isolate=True)`` a handler that blocks the application's loop cannot stop heartbeats, pulls and
renewals of locks. The objects are the ordinary ones: ``isolated(Producer)`` is a subclass whose public coroutines hop
to the network's loop when they are called from another one. The hop costs some tens of microseconds per call.

Handlers and everything the application awaits stay on the application's loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from cometmq.client.results import SendResult

if TYPE_CHECKING:
    from cometmq.client.consumer.push import Consumer
    from cometmq.client.message import ReceivedMessage

T = TypeVar("T")

_made: dict[type, Any] = {}
_DUNDERS = frozenset({"__anext__", "__aenter__", "__aexit__"})


async def hop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another loop and wait for it here; cancelling here cancels it there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def isolated(cls: type[T]) -> type[T]:
    """A subclass whose public coroutine methods run on the loop of the client's network."""
    known: type[T] | None = _made.get(cls)
    if known is not None:
        return known
    members: dict[str, Any] = {"__doc__": cls.__doc__}
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if inspect.iscoroutinefunction(method) and (not name.startswith("_") or name in _DUNDERS):
            members[name] = _hopping(method)
    if "send_soon" in dir(cls):
        members["send_soon"] = _send_soon
    if "run" in members:
        members["run"] = _running_at_home(members["run"])
    made: type[T] = type(cls.__name__, (cls,), members)
    _made[cls] = made
    return made


def _network_loop(target: Any) -> asyncio.AbstractEventLoop:
    instance = getattr(target, "instance", None) or target._instance  # the admin keeps it private
    thread = instance.thread
    assert thread is not None, "isolated objects belong to a client with isolate=True"
    loop: asyncio.AbstractEventLoop = thread.loop
    return loop


def _hopping(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(method)
    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        loop = _network_loop(self)
        if asyncio.get_running_loop() is loop:
            return await method(self, *arguments, **options)
        return await hop(loop, method(self, *arguments, **options))

    return call


def _running_at_home(run: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    @functools.wraps(run)
    async def call(self: Any, handler: Any, *, decode: Any = None) -> None:
        await run(self, handler, decode=decode, home=asyncio.get_running_loop())

    return call


def _send_soon(self: Any, message: Any, **options: Any) -> asyncio.Future[SendResult]:
    """Begin to send on the network's loop; the future belongs to the caller's."""
    self.check()

    async def work() -> SendResult:
        result: SendResult = await super(type(self), self).send_soon(message, **options)
        return result

    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), _network_loop(self)))


class IsolatedSettler:
    """Settles messages of an isolated consumer from whatever loop the application uses."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def _soon(self, function: Callable[..., None], *arguments: Any) -> None:
        loop = _network_loop(self._consumer)
        loop.call_soon_threadsafe(function, *arguments)

    def settle_success(self, message: ReceivedMessage) -> None:
        self._soon(self._consumer.settle_success, message)

    async def settle_failure(self, message: ReceivedMessage, reason: BaseException) -> None:
        await self._consumer.settle_failure(message, reason)

    def begin_processing(self, count: int = 1) -> None:
        self._soon(self._consumer.begin_processing, count)

    def end_processing(self, count: int = 1) -> None:
        self._soon(self._consumer.end_processing, count)

    async def reply(self, message: ReceivedMessage, body: bytes) -> SendResult:
        return await self._consumer.reply(message, body)
