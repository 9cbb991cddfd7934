"""Controller: one voice in who is master, in a thread and an event loop of its own, on a port of its own.

It is started by a broker (its voters are the brokers) or by a NameServer (the third vote of a pair). What the process
does beside never delays it, except through the interpreter, and then the lateness of its timer tells.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from cometmq.controller.config import ControllerConfig
from cometmq.controller.guard import GroupGuard
from cometmq.controller.metadata import Metadata
from cometmq.controller.raft_metadata import RaftMetadata
from cometmq.controller.requests import ControllerRequests
from cometmq.net.addresses import format_address
from cometmq.net.server import RemotingServer

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0

Answer = TypeVar("Answer")


class Controller:
    """``start`` and ``stop`` are called from any other thread and wait. ``on_failure`` comes from this thread."""

    def __init__(
        self,
        config: ControllerConfig,
        metadata: Metadata,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.address = ""
        self._guard = GroupGuard(config, metadata)
        self._requests = ControllerRequests(metadata, self._guard)
        self._net = RemotingServer({**self._requests.handlers(), **metadata.handlers()})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        metadata.on_change = self._guard.changed
        metadata.on_leadership = self._guard.leadership
        metadata.on_failure = on_failure or (lambda _error: None)

    def start(self) -> str:
        """Listen and take part; returns ``host:port``."""
        self.listen()
        self.begin()
        return self.address

    def listen(self, port: int | None = None) -> str:
        """Open the port only; it answers, but knows nothing and says so."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
        self._thread.start()
        try:
            self.address = self.call(self._listen(self.config.port if port is None else port))
        except BaseException:
            self._end_thread()
            raise
        return self.address

    def begin(self) -> None:
        try:
            self.call(self.metadata.start(self.address))
        except BaseException:
            self.stop()
            raise
        log.info("controller=%s address=%s started", self.config.self_id, self.address)

    def stop(self) -> None:
        """Idempotent."""
        if self._loop is None or self._thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STOP_SECONDS)
        except TimeoutError:
            log.error("controller=%s did not stop within %g s", self.config.self_id, STOP_SECONDS)
        finally:
            self._end_thread()

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run on the loop of the controller and wait for it."""
        if self._loop is None:
            work.close()
            raise RuntimeError("This controller does not run.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def status(self) -> Mapping[str, object]:
        """For people and metrics, from any thread."""

        async def look() -> Mapping[str, object]:
            return self.metadata.status()

        return self.call(look())

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self, port: int) -> str:
        port = await self._net.start(self.config.bind_address, port)
        own = self.config.peers.get(self.config.self_id, "")
        host = own.rpartition(":")[0] or self.config.bind_address or "127.0.0.1"
        return format_address(host.strip("[]"), port)

    async def _stop(self) -> None:
        await self._net.stop(grace_ms=100)
        await self._guard.close()
        await self.metadata.stop()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
        self._loop = self._thread = None


def open_controller(
    config: ControllerConfig, on_failure: Callable[[BaseException], None] | None = None
) -> Controller:
    """A controller that keeps its metadata where the configuration says; not started yet."""
    if config.metadata == "etcd":
        from cometmq.controller.etcd_metadata import EtcdMetadata

        return Controller(config, EtcdMetadata(config), on_failure)
    return Controller(config, RaftMetadata(config), on_failure)
