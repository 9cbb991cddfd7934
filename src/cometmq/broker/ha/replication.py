"""Replication of one broker: the port for slaves and, on a slave, the way to the master and its metadata.

The broker starts and stops it, and asks it whether an answer must wait for a slave (``Durability``). Roles are those
of 4.9 and fixed by the configuration: nothing here ever turns a slave into a master. Event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cometmq.broker.config import HA_PORT_DISTANCE
from cometmq.broker.ha.acknowledgements import Acknowledgements
from cometmq.broker.ha.follower import Follower, LogRange
from cometmq.broker.ha.metadata import MetadataSync
from cometmq.broker.ha.server import HaServer
from cometmq.errors import CometMQError
from cometmq.net.addresses import parse_address
from cometmq.store.model import PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

SEARCH_MASTER_MS = 1_000  # a slave that does not know its master asks the NameServers this often
QUESTIONS_MAX = 5  # unanswered ones about the begin of the master's log


class Replication:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.acknowledgements = Acknowledgements(broker.config)
        self.server = HaServer(broker.config, broker.store, self.acknowledgements)
        self.metadata: MetadataSync | None = None
        self.follower: Follower | None = None
        self._questions = 0

    # -- what Durability asks -------------------------------------------------------------------------------------

    def must_wait(self, result: PutResult) -> bool:
        return self.acknowledgements.must_wait(result)

    def wait(self, result: PutResult, callback: Callable[[PutStatus], None]) -> None:
        self.acknowledgements.wait(result, callback)

    # -- life -----------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        """Raises ConfigError if the port is taken."""
        await self.server.listen(host, port, self._broker.net_config)

    def start(self) -> None:
        """On a slave: begin to follow."""
        broker = self._broker
        if not broker.config.is_slave:
            return
        self.metadata = MetadataSync(broker)
        self.follower = Follower(broker.config, broker.store, self._master_range)
        self.follower.on_connected = self.metadata.begin
        self.metadata.start()
        broker.registration.on_master = self._master_is
        self.metadata.master_address = self._remoting_address(None)
        self.follower.start()
        broker.periodic.every(SEARCH_MASTER_MS, self._search_master)

    async def stop(self) -> None:
        if self.follower is not None:
            await self.follower.stop()
        if self.metadata is not None:
            await self.metadata.stop()
        await self.server.stop()
        self.acknowledgements.stop()

    # -- the master -----------------------------------------------------------------------------------------------

    def _master_is(self, address: str | None, ha_address: str | None) -> None:
        """A NameServer answered; without a master it says nothing, and we go on trying where it was."""
        assert self.follower is not None
        assert self.metadata is not None
        if address:
            self.metadata.master_address = self._remoting_address(address)
        if ha_address:
            self.follower.follow(ha_address)

    def _remoting_address(self, told: str | None) -> str:
        """Where to ask for metadata: what a NameServer told, else beside the configured replication port."""
        assert self.follower is not None
        if told or not self.follower.address:
            return told or ""
        host, port = parse_address(self.follower.address)
        return f"{host}:{port - HA_PORT_DISTANCE}"

    def _search_master(self) -> None:
        assert self.follower is not None
        if not self.follower.address:
            self._broker.registration.topics_changed(())  # registers again, and the answer names the master

    async def _master_range(self) -> LogRange:
        """What the master has. One that starts opens its replication port before it answers questions.

        A master that never answers (only its replication port can be reached) is followed all the same.
        """
        assert self.metadata is not None
        try:
            return await self.metadata.log_range()
        except CometMQError as error:
            self._questions += 1
            if self._questions < QUESTIONS_MAX:
                raise
            log.warning("the whole log is asked for, a master of 4.9 may send its last file only: %s", error)
            return LogRange(0, 0)

    # -- for people -----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Role, position and what is known of the other side; for administrators and metrics."""
        store = self._broker.store
        end = store.max_physical_offset
        slaves = [
            {"address": link.peer, "acknowledgedOffset": link.acknowledged_offset,
             "lagBytes": end - max(link.acknowledged_offset, 0)}
            for link in self.server.links
            if link.reported
        ]  # fmt: skip
        status = {
            "role": self._broker.config.broker_role,
            "minOffset": store.min_physical_offset,
            "maxOffset": end,
            "acknowledgedOffset": self.acknowledgements.acknowledged_offset,
            "slaves": slaves,
        }
        if self.follower is not None:
            status |= {"master": self.follower.address, "connected": self.follower.link is not None}
        return status
