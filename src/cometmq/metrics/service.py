"""Metrics of a running server at ``--metrics-port``: what to collect for a broker, a NameServer, or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.metrics.exposition import Family

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.metrics.http import MetricsServer
    from cometmq.nameserver.server import NameServer
    from cometmq.standalone import Standalone


class Metrics:
    """Serves ``families`` when a port was given; without one nothing is even imported."""

    def __init__(self, host: str, port: int | None) -> None:
        self._host = host
        self._port = port
        self._server: MetricsServer | None = None

    async def start(self) -> None:
        if self._port is None:
            return
        from cometmq.metrics.http import MetricsServer

        self._server = MetricsServer(self.families, self.problem)
        await self._server.start(self._host, self._port)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    @property
    def url(self) -> str:
        return f"http://{self._host or 'localhost'}:{self._server.port}/metrics" if self._server else ""

    @property
    def suffix(self) -> str:
        """For the machine-readable line that says ready."""
        return f" metrics={self.url}" if self._server else ""

    def families(self) -> Iterator[Family]:
        raise NotImplementedError

    def problem(self) -> str | None:
        """Why the server should get no requests now, or None."""
        raise NotImplementedError


class BrokerMetrics(Metrics):
    def __init__(self, broker: Broker, host: str, port: int | None) -> None:
        super().__init__(host, port)
        self._broker = broker

    def families(self) -> Iterator[Family]:
        from cometmq.metrics.broker import broker_families

        return broker_families(self._broker)

    def problem(self) -> str | None:
        if self._broker.server is None:
            return "the broker is stopping"
        if not self._broker.store.writable and not self._broker.config.is_slave:
            return "the store takes no messages"
        return None


class NameServerMetrics(Metrics):
    def __init__(self, nameserver: NameServer, host: str, port: int | None) -> None:
        super().__init__(host, port)
        self._nameserver = nameserver

    def families(self) -> Iterator[Family]:
        from cometmq.metrics.nameserver import nameserver_families

        return nameserver_families(self._nameserver)

    def problem(self) -> str | None:
        return None


class StandaloneMetrics(BrokerMetrics):
    def __init__(self, standalone: Standalone, host: str, port: int | None) -> None:
        super().__init__(standalone.broker, host, port)
        self._nameserver = standalone.nameserver

    def families(self) -> Iterator[Family]:
        from cometmq.metrics.nameserver import nameserver_families

        yield from super().families()
        yield from nameserver_families(self._nameserver)
