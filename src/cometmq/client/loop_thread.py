"""An event loop in a thread of its own: for the blocking client, and for brokers inside tests.

``run`` is called from any other thread and waits for a coroutine there. The hop is kept cheap, because the blocking
client pays it with each send: one wake-up of the loop, one lock to wait at, no condition variables.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from cometmq.client import forks
from cometmq.errors import ClientClosed, Timeout

T = TypeVar("T")

CLOSE_LIMIT_S = 10.0
NO_LIMIT = -1.0


class _Call(Generic[T]):
    """One coroutine under way for another thread."""

    __slots__ = ("_work", "done", "error", "result", "task")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.task: asyncio.Task[T] | None = None
        self.result: T | None = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._work)
        self.task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.error = asyncio.CancelledError()
        else:
            self.error = task.exception()
            if self.error is None:
                self.result = task.result()
        self.done.release()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        else:
            self._work.close()


class LoopThread:
    """A running loop. ``run`` is not for use from its own thread."""

    def __init__(
        self,
        name: str = "cometmq-loop",
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self.loop = loop_factory()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._closed = False
        self._generation = forks.generation()
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    @property
    def alive(self) -> bool:
        return not self._closed and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine there and wait here. An interrupt (Ctrl-C) or the timeout cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking call was made on the client's own loop thread; await it instead")
        if not self.alive:
            work.close()
            forks.check(self._generation)
            raise ClientClosed("this client is closed; make a new one")
        call = _Call(work)
        self.loop.call_soon_threadsafe(call.begin)
        try:
            finished = call.done.acquire(timeout=NO_LIMIT if timeout_s is None else timeout_s)
        except BaseException:
            self.loop.call_soon_threadsafe(call.cancel)
            raise
        if not finished:
            self.loop.call_soon_threadsafe(call.cancel)
            raise Timeout(f"not done within {timeout_s} s")
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a plain function there and wait for its result."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def close(self) -> None:
        """Stop the loop and wait for the thread. Idempotent."""
        if self._closed:
            return
        try:
            if self._thread.is_alive():
                self.run(_cancel_others(), CLOSE_LIMIT_S)
        finally:
            self._closed = True
            if self._thread.is_alive():
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join(CLOSE_LIMIT_S)


async def _cancel_others() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)
