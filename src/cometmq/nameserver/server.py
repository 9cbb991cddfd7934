"""NameServer: the composition of route table, KV configuration, handlers and network.

NameServers do not know each other: brokers register with each of them, clients ask one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.nameserver.config import NameServerConfig
from cometmq.nameserver.handlers import Handlers
from cometmq.nameserver.kv import KvConfig
from cometmq.nameserver.routes import LiveBroker, RouteTable
from cometmq.net.addresses import format_address
from cometmq.net.config import NetConfig, frame_size_from
from cometmq.net.connection import Connection
from cometmq.net.metrics import CloseReason
from cometmq.net.server import RemotingServer
from cometmq.net.tls import TlsConfig

if TYPE_CHECKING:
    from cometmq.controller.config import ControllerConfig
    from cometmq.controller.controller import Controller

log = logging.getLogger(__name__)

EXPIRY_SCAN_SECONDS = 1.0  # brokers that fell silent are found within this after their 120 s


class NameServer:
    """``await start()`` gives the address; ``await stop()`` ends it. Both on the loop that serves."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        now_ms: Clock = wall_clock,
        scan_seconds: float = EXPIRY_SCAN_SECONDS,
    ) -> None:
        self.config = config or NameServerConfig()
        self.now_ms = now_ms
        self.routes = RouteTable()
        self.kv = KvConfig(self.config.kv_config_path)
        self._scan_seconds = scan_seconds
        self._scan_timer: asyncio.TimerHandle | None = None
        self._watched: set[Connection] = set()
        self.address = ""  # host:port once started
        controller = self.config.controller()
        self.controller = _open_controller(controller) if controller is not None else None
        self.net = RemotingServer(
            Handlers(self).table(),
            config=self._net_config(),
            now_ms=now_ms,
            tls=TlsConfig.load(self.config.extra),
        )

    async def start(self) -> str:
        """Load the KV configuration and listen; returns ``host:port`` to connect to."""
        await asyncio.to_thread(self.kv.load)
        port = await self.net.start(self.config.bind_address, self.config.listen_port)
        if self.controller is not None:
            await asyncio.to_thread(self.controller.start)
        self._schedule_scan()
        self.address = format_address(_reachable(self.config.bind_address), port)
        log.info("NameServer address=%s ready", self.address)
        return self.address

    async def stop(self) -> None:
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        if self.controller is not None:
            await asyncio.to_thread(self.controller.stop)
        await self.net.stop()

    @property
    def port(self) -> int:
        return self.net.port

    def update_config(self, properties: Mapping[str, str]) -> list[str]:
        """Change settings while running; the port and TLS change with the next start."""
        warnings = self.config.update(properties)
        self.net.configure(self._net_config())
        return warnings

    def _net_config(self) -> NetConfig:
        return NetConfig.from_settings(self.config, frame_size_max=frame_size_from(self.config.extra))

    # --- liveness ---

    def watch(self, connection: Connection) -> None:
        """The brokers that registered over this connection go when it goes."""
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close.append(self._connection_lost)

    def _connection_lost(self, connection: Connection) -> None:
        self._watched.discard(connection)
        self._report(self.routes.lost(connection), "connection lost")

    def _schedule_scan(self) -> None:
        self._scan_timer = asyncio.get_running_loop().call_later(self._scan_seconds, self._scan)

    def _scan(self) -> None:
        gone = self.routes.expire(self.now_ms())
        self._report(gone, "no registration for 120 s")
        for live in gone:
            if isinstance(live.owner, Connection):
                live.owner.close(CloseReason.EXPIRED)
        self._schedule_scan()

    @staticmethod
    def _report(gone: list[LiveBroker], why: str) -> None:
        for live in gone:
            log.warning("broker=%s address=%s removed: %s", live.broker_name, live.address, why)


def _open_controller(config: ControllerConfig) -> Controller:
    from cometmq.controller.controller import open_controller  # most NameServers have none

    return open_controller(config)


def _reachable(bind_address: str) -> str:
    """An address one can connect to, for a listener on every address."""
    return "127.0.0.1" if bind_address in ("", "0.0.0.0", "::") else bind_address
