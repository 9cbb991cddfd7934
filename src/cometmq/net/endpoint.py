"""What a remoting server and a remoting client share: handler table, limits, counters, expiry scan.

Loop thread only. Requests that arrive on any connection of an endpoint are routed through one table,
``code -> handler``. A plain function answers at once; a coroutine becomes a task, counted per connection, per
lane and per endpoint, and refused with SYSTEM_BUSY above a limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.errors import BrokerError
from cometmq.net.config import NetConfig
from cometmq.net.connection import Connection
from cometmq.net.expiry import expiry_reason
from cometmq.net.metrics import CloseReason, NetMetrics
from cometmq.net.pump_cy import BatchPath
from cometmq.net.receive import SharedBuffer
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)

Answer = RemotingCommand | None
Handler = Callable[[Connection, RemotingCommand], Answer | Awaitable[Answer]]
# Gets received bytes view[start:end] before they are split, handles as many frames from the begin as it can, and
# returns how many bytes that was. The view is valid during the call only. What it writes leaves with the answers
# of the same read event.
FastPath = Callable[[Connection, memoryview, int, int], int]


OVERLOAD_REMARK = "[OVERLOAD]system busy, start flow control for a while"
UNKNOWN_CODE = -1  # all unknown codes together, in counters by code
SCAN_CHUNK_COUNT = 200  # connections looked at in one turn of the loop
SCAN_COUNT_MIN = 500  # connections looked at in one scan, if there are so many
SCANS_MAX = 10  # in which all are looked at: limits of time are that much coarser where connections are many


@dataclass
class Lane:
    """Requests of one kind share a limit of how many are handled at a time (Java: a thread pool's queue)."""

    name: str
    in_flight_max: int
    in_flight: int = 0
    rejected: int = 0


class Endpoint:
    """Base of RemotingServer and RemotingClient."""

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        fallback: Handler | None = None,
        config: NetConfig | None = None,
        now_ms: Clock = wall_clock,
        metrics: NetMetrics | None = None,
        lanes: Mapping[int, Lane] | None = None,
        idle_ms: int = 120_000,
    ) -> None:
        self.handlers: dict[int, Handler] = dict(handlers or {})
        self.fallback = fallback
        self.config = config or NetConfig()
        self.now_ms = now_ms
        self.metrics = metrics or NetMetrics()
        self.lanes: dict[int, Lane] = dict(lanes or {})
        self.fast_path: FastPath | None = None
        self.batch_path: BatchPath | None = None  # used instead where the transports allow it
        self.shared_buffer = SharedBuffer()
        self.connections: set[Connection] = set()
        self.in_flight = 0
        self.loop: asyncio.AbstractEventLoop = cast(asyncio.AbstractEventLoop, None)  # set by open_endpoint()
        self._idle_ms = idle_ms
        self._tasks: set[asyncio.Task[None]] = set()
        self._scan_timer: asyncio.TimerHandle | None = None
        self._unscanned: list[Connection] = []
        self._all_closed: asyncio.Event | None = None

    # --- called by connections ---

    def connection_opened(self, connection: Connection) -> None:
        self.metrics.connections_opened += 1
        self.connections.add(connection)

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self.metrics.connections_closed[reason] += 1
        self.connections.discard(connection)
        callbacks, connection.on_close = connection.on_close, []
        for callback in callbacks:
            try:
                callback(connection)
            except Exception:
                self.metrics.background_errors += 1
                log.exception("connection=%s peer=%s close callback failed", connection.id, connection.peer)
        if self._all_closed is not None and not self.connections:
            self._all_closed.set()

    def dispatch(self, connection: Connection, command: RemotingCommand) -> None:
        """Route one decoded frame."""
        if command.is_response:
            connection.resolve(command)
            return
        handler = self.handlers.get(command.code)
        if handler is not None:
            self.metrics.requests[command.code] += 1
        else:  # not by code: a peer can invent two billion of them
            self.metrics.unknown_codes += 1
            handler = self.fallback or unsupported
        try:
            result = handler(connection, command)
        except Exception as error:  # noqa: BLE001 - the peer gets it as code 1
            self._answer(connection, command, self._failure(connection, command, error))
            return
        if result is None or isinstance(result, RemotingCommand):
            self._answer(connection, command, result)
        else:
            self._start(connection, command, result)

    # --- requests that take time ---

    def _start(self, connection: Connection, command: RemotingCommand, work: Awaitable[Answer]) -> None:
        lane = self.lanes.get(command.code)
        if self._is_busy(connection, lane):
            _discard(work)
            self._refuse_busy(connection, command, lane)
            return
        task = self.loop.create_task(self._work(connection, command, work, lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_busy(self, connection: Connection, lane: Lane | None) -> bool:
        config = self.config
        return (
            self.in_flight >= config.in_flight_max
            or connection.in_flight >= config.in_flight_per_connection_max
            or (lane is not None and lane.in_flight >= lane.in_flight_max)
        )

    def _refuse_busy(self, connection: Connection, command: RemotingCommand, lane: Lane | None) -> None:
        if lane is not None:
            lane.rejected += 1
        if command.is_oneway:
            self.metrics.oneway_dropped += 1
            return
        self.metrics.busy_answers += 1
        self._answer(connection, command, command.response(ResponseCode.SYSTEM_BUSY, OVERLOAD_REMARK))

    async def _work(
        self, connection: Connection, command: RemotingCommand, work: Awaitable[Answer], lane: Lane | None
    ) -> None:
        self._count_in_flight(connection, lane, 1)
        try:
            answer = await work
        except Exception as error:  # noqa: BLE001 - the peer gets it as code 1
            answer = self._failure(connection, command, error)
        finally:
            self._count_in_flight(connection, lane, -1)
        self._answer(connection, command, answer)

    def _count_in_flight(self, connection: Connection, lane: Lane | None, step: int) -> None:
        self.in_flight += step
        connection.in_flight += step
        if lane is not None:
            lane.in_flight += step

    # --- answers ---

    def _answer(self, connection: Connection, command: RemotingCommand, answer: Answer) -> None:
        if answer is None or command.is_oneway or connection.closed:
            return
        answer.opaque = command.opaque
        answer.serialize_type = command.serialize_type
        try:
            connection.send(answer)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be written, mostly one too large
            connection.send(self._failure(connection, command, error))

    def _failure(self, connection: Connection, command: RemotingCommand, error: Exception) -> RemotingCommand:
        """The response for an exception: a BrokerError has its own code and remark, others are code 1."""
        if isinstance(error, BrokerError):
            return command.response(error.code, error.remark)
        self.metrics.handler_errors[command.code if command.code in self.handlers else UNKNOWN_CODE] += 1
        log.warning(
            "code=%s peer=%s opaque=%s failed", command.code, connection.peer, command.opaque, exc_info=error
        )
        return command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # --- expiry: one timer for all connections ---

    def open_endpoint(self) -> None:
        """Bind to the running loop and begin to look for connections that must end."""
        self.loop = asyncio.get_running_loop()
        self._schedule_scan()

    def _schedule_scan(self) -> None:
        self._scan_timer = self.loop.call_later(self.config.scan_interval_ms / 1000, self._scan)

    def _scan(self) -> None:
        self.scan_extra()
        if not self._unscanned:
            self._unscanned = list(self.connections)
        count = max(SCAN_COUNT_MIN, len(self.connections) // SCANS_MAX)
        due = self._unscanned[-count:]
        del self._unscanned[-count:]
        self._scan_chunk(due)

    def _scan_chunk(self, left: list[Connection]) -> None:
        """A chunk now, the rest in later turns of the loop: thousands of idle connections delay nobody."""
        now_ms = self.now_ms()
        for connection in left[-SCAN_CHUNK_COUNT:]:
            reason = expiry_reason(connection, now_ms, self.config, self._idle_ms)
            if reason is None or connection not in self.connections:
                continue
            if connection.closed:
                connection.abort()
            else:
                connection.close(reason)
        del left[-SCAN_CHUNK_COUNT:]
        if self._scan_timer is None:
            return  # stopped
        if left:
            self.loop.call_soon(self._scan_chunk, left)
        else:
            self._schedule_scan()

    def scan_extra(self) -> None:
        """What a subclass looks at in each scan."""

    def _stop_scan(self) -> None:
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None

    async def close_endpoint(self, grace_ms: int = 1_000) -> None:
        """Close every connection, give running requests ``grace_ms`` to answer first, then cancel them."""
        self._stop_scan()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_ms / 1000)
        for task in self._tasks:
            task.cancel()
        self._all_closed = asyncio.Event()
        for connection in list(self.connections):
            connection.close(CloseReason.STOPPED)
        await self._wait_closed(grace_ms)

    async def _wait_closed(self, grace_ms: int) -> None:
        assert self._all_closed is not None
        if self.connections:
            try:
                await asyncio.wait_for(self._all_closed.wait(), grace_ms / 1000)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort()
                await asyncio.sleep(0)
        self._all_closed = None


def unsupported(_connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """The answer to an unknown code, in the words (and with the leading blank) of the Java broker."""
    return command.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
    )


def _discard(work: Awaitable[Any]) -> None:
    """Drop a coroutine that will not run, without a warning about it."""
    if isinstance(work, Coroutine):
        work.close()
    elif isinstance(work, asyncio.Future):
        work.cancel()
