"""The NameServers of a client: where their addresses come from and which one is asked.

One server is used as long as it answers; any failure moves on to the next. Without an address the list comes over HTTP
(RocketMQ's discovery), read again from time to time. Loop thread only; the HTTP request runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterable

from cometmq.client.settings import Settings, parse_name_servers
from cometmq.errors import BrokerError, ClientError, CometMQError, ConnectionLost, Timeout
from cometmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)

DISCOVERY_TIMEOUT_S = 3.0
DISCOVERY_PORT = 8080
DISCOVERY_BYTES_MAX = 64 * 1024

Invoke = Callable[[str, RemotingCommand, int], Awaitable[RemotingCommand]]


class NoNameServer(ClientError):
    """No NameServer address is known."""


class NameServers:
    """A list with a sticky choice."""

    def __init__(self, settings: Settings, invoke: Invoke) -> None:
        self._settings = settings
        self._invoke = invoke
        self._addresses: list[str] = []
        self._chosen = 0
        self.update(settings.name_servers)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def discovers(self) -> bool:
        """No address was given: they come over HTTP."""
        return not self._settings.name_servers

    def update(self, addresses: Iterable[str]) -> None:
        """Take a new list; an unchanged one changes nothing. Shuffled, so that clients spread over the servers."""
        fresh = list(addresses)
        if not fresh or set(fresh) == set(self._addresses):
            return
        random.shuffle(fresh)
        self._addresses = fresh
        self._chosen = 0

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Ask the chosen server; on failure each of the others once."""
        if not self._addresses and self.discovers:
            await self.discover()
        if not self._addresses:
            raise NoNameServer(
                "no NameServer is known: pass Client('host:9876') or set NAMESRV_ADDR in the environment"
            )
        errors: list[str] = []
        for _ in range(len(self._addresses)):
            address = self._addresses[self._chosen % len(self._addresses)]
            try:
                return await self._invoke(address, command, timeout_ms)
            except (ConnectionLost, Timeout, OSError) as error:
                errors.append(f"{address}: {_reason(error)}")
                self._chosen += 1
        raise ConnectionLost(
            f"no NameServer answers ({'; '.join(errors)}); check the address, or start one: cometmq standalone"
        )

    async def discover(self) -> None:
        """Read the list over HTTP. A failure is logged and keeps the old list."""
        try:
            text = await asyncio.to_thread(_fetch, discovery_url(self._settings))
            self.update(parse_name_servers(text))
        except (OSError, CometMQError, ValueError) as error:
            log.warning("discovery of NameServers at %s failed: %s", discovery_url(self._settings), error)


def _reason(error: Exception) -> str:
    """In two words, if it is one of the two usual mistakes: nobody listens there, or there is no such host."""
    cause = error.__cause__
    if isinstance(cause, ConnectionRefusedError):
        return "Connection refused"
    return (cause.strerror if isinstance(cause, socket.gaierror) else None) or str(error)


def discovery_url(settings: Settings) -> str:
    """
    >>> discovery_url(Settings(discovery_domain="ns.example:80", unit_name="u1"))
    'http://ns.example:80/rocketmq/nsaddr-u1?nofix=1'
    """
    domain = settings.discovery_domain
    if ":" not in domain:
        domain = f"{domain}:{DISCOVERY_PORT}"
    unit = f"-{settings.unit_name}?nofix=1" if settings.unit_name else ""
    return f"http://{domain}/rocketmq/{settings.discovery_group}{unit}"


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DISCOVERY_TIMEOUT_S) as answer:
        if answer.status != 200:
            raise urllib.error.URLError(f"status {answer.status}")
        lines = answer.read(DISCOVERY_BYTES_MAX).decode().strip().splitlines()
    return lines[0].strip() if lines else ""


def checked(response: RemotingCommand, address: str | None = None, *accepted: int) -> RemotingCommand:
    """The response if its code is success (or one of ``accepted``), else a BrokerError."""
    if response.code != 0 and response.code not in accepted:
        raise BrokerError(response.code, response.remark, address)
    return response
