"""Faults of a broker, by request code: drop the request, answer late, answer with an error.

Installed in the handler table of the running broker. While a fault for a send is active, the compiled send path is
switched off, because it does not look into the table. Called through LocalBroker, on the broker's loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.endpoint import Endpoint, Handler

FOREVER = -1
NAMES: dict[str, tuple[RequestCode, ...]] = {
    "send": (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    ),
    "pull": (RequestCode.PULL_MESSAGE,),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET,),
    "lock": (RequestCode.LOCK_BATCH_MQ,),
    "send_back": (RequestCode.CONSUMER_SEND_MSG_BACK,),
    "end_transaction": (RequestCode.END_TRANSACTION,),
}


@dataclass(slots=True)
class Fault:
    """What happens to requests of some codes; ``hits`` counts them."""

    codes: tuple[int, ...]
    drop: bool = False
    delay_s: float = 0.0
    error: int | None = None
    remark: str = "injected fault"
    times: int = FOREVER
    close: bool = False
    hits: int = 0
    active: bool = field(default=True)

    def strikes(self) -> bool:
        """Whether this request is hit; counts it."""
        if not self.active or self.times == 0:
            return False
        self.times -= self.times > 0
        self.hits += 1
        return True


class Faults:
    """The faults of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._originals: list[tuple[Endpoint, dict[int, Handler], Any]] = []
        self._active: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self._active.append(fault)
        if not self._originals:
            self._install()

    def remove(self, fault: Fault) -> None:
        fault.active = False
        if fault in self._active:
            self._active.remove(fault)
        if not self._active:
            self._uninstall()

    def _install(self) -> None:
        for server in (self._broker.server, self._broker.fast_server):
            if server is None:
                continue
            self._originals.append((server, dict(server.handlers), server.fast_path))
            server.fast_path = None
            for code, handler in list(server.handlers.items()):
                server.handlers[code] = self._wrapped(handler)

    def _uninstall(self) -> None:
        for server, handlers, fast_path in self._originals:
            server.handlers.clear()
            server.handlers.update(handlers)
            server.fast_path = fast_path
        self._originals.clear()

    def _wrapped(self, handler: Handler) -> Handler:
        def serve(connection: Connection, command: RemotingCommand) -> Any:
            for fault in self._active:
                if command.code in fault.codes and fault.strikes():
                    return self._faulty(fault, handler, connection, command)
            return handler(connection, command)

        return serve

    def _faulty(
        self, fault: Fault, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Any:
        if fault.close:
            connection.abort()
            return None
        if fault.drop:
            return None
        if fault.delay_s:
            return _late(fault, handler, connection, command)
        if fault.error is not None:
            return command.response(fault.error, fault.remark)
        return handler(connection, command)


async def _late(fault: Fault, handler: Handler, connection: Connection, command: RemotingCommand) -> Any:
    await asyncio.sleep(fault.delay_s)
    if fault.error is not None:
        return command.response(fault.error, fault.remark)
    answer = handler(connection, command)
    return await answer if asyncio.iscoroutine(answer) else answer


def codes_of(request: str | int) -> tuple[int, ...]:
    """``"send"``, ``"pull"`` ... or a request code."""
    if isinstance(request, int):
        return (request,)
    if request in NAMES:
        return NAMES[request]
    try:
        return (RequestCode[request.upper()],)
    except KeyError:
        raise ValueError(f"{request!r} is no request; use a code or one of {', '.join(NAMES)}") from None
