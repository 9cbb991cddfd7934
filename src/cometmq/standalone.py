"""A NameServer and a broker in one process, with defaults for trying things out and for tests.

Everything listens on loopback unless told otherwise, and ports may be 0. ``Standalone`` is what the command
``cometmq standalone`` runs, and it can be used as an async context manager::

    async with Standalone(StandaloneConfig(store="/tmp/store", port=0, nameserver_port=0)) as standalone:
        print(standalone.nameserver_address)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cometmq.broker.broker import Broker
from cometmq.broker.config import LISTEN_PORT_DEFAULT, BrokerConfig
from cometmq.clock import Clock, now_ms
from cometmq.nameserver.config import LISTEN_PORT_DEFAULT as NAMESERVER_PORT_DEFAULT
from cometmq.nameserver.config import NameServerConfig
from cometmq.nameserver.server import NameServer

if TYPE_CHECKING:
    from types import TracebackType

HOST_DEFAULT = "127.0.0.1"


@dataclass(kw_only=True)
class StandaloneConfig:
    store: str
    host: str = HOST_DEFAULT
    port: int = LISTEN_PORT_DEFAULT
    nameserver_port: int = NAMESERVER_PORT_DEFAULT
    broker_name: str = "broker-a"
    settings: Mapping[str, str] = field(default_factory=dict)  # keys of broker.conf

    def broker_config(self) -> BrokerConfig:
        config = BrokerConfig.from_properties(self.settings)
        config.broker_name = config.broker_name or self.broker_name
        config.broker_ip1 = config.broker_ip1 or self.host
        config.bind_address = self.host
        config.listen_port = self.port
        config.store_path_root_dir = str(Path(self.store).absolute())
        return config

    def nameserver_config(self) -> NameServerConfig:
        root = Path(self.store).absolute() / "namesrv"
        return NameServerConfig(
            listen_port=self.nameserver_port,
            bind_address=self.host,
            kv_config_path=str(root / "kvConfig.json"),
            config_store_path=str(root / "namesrv.properties"),
        )


class Standalone:
    def __init__(self, config: StandaloneConfig, *, now_ms: Clock = now_ms) -> None:
        self.config = config
        self.nameserver = NameServer(config.nameserver_config(), now_ms=now_ms)
        self.broker = Broker(config.broker_config(), now_ms=now_ms)
        self.nameserver_address = ""

    @property
    def broker_address(self) -> str:
        return self.broker.address

    async def start(self) -> None:
        """The NameServer first: its port may be any, and the broker must know it. Both or none."""
        address = await self.nameserver.start()
        self.nameserver_address = f"{self.config.host}:{address.rpartition(':')[2]}"
        self.broker.config.namesrv_addr = self.nameserver_address
        try:
            await self.broker.start()
        except BaseException:
            await self.nameserver.stop()
            raise

    async def stop(self) -> None:
        await self.broker.stop()
        await self.nameserver.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
