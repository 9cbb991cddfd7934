"""The replication port: slaves connect here and are sent the log.

Every broker listens, slaves too: the protocol lets a slave follow a slave. The log tells the server that it has
grown only while somebody follows (``store.on_append``), so a broker without slaves pays nothing. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cometmq.broker.config import BrokerConfig
from cometmq.broker.ha.acknowledgements import Acknowledgements
from cometmq.broker.ha.first_bytes import FirstBytes
from cometmq.broker.ha.gathering import Gathering
from cometmq.broker.ha.peer_link import PeerLink
from cometmq.broker.ha.slave_link import SlaveLink
from cometmq.net.config import NetConfig
from cometmq.net.listener import bind
from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

CHECKS_PER_INTERVAL = 5  # how finely heartbeats and silence are timed
CHECK_S_MIN = 0.01


class HaServer:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        acknowledgements: Acknowledgements,
        replica_link: Callable[[], PeerLink] | None = None,
    ) -> None:
        """``replica_link`` serves replicas of a group that elects its master, which then tells when to ``pump``."""
        self.config = config
        self.store = store
        self.links: list[SlaveLink] = []
        self.refused = 0  # connections closed because of what the slave said
        self._acknowledgements = acknowledgements
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gathering = Gathering(self.pump, lambda: acknowledgements.may_wait)
        self._replica_link = replica_link
        self._undecided: set[FirstBytes] = set()  # connections that have not said what they are

    # -- life -----------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, net_config: NetConfig) -> None:
        """Raises ConfigError if the port is taken."""
        sock = bind(host, port, net_config)
        self._server = await asyncio.get_running_loop().create_server(self._protocol, sock=sock)
        self._check()

    def _protocol(self) -> asyncio.Protocol:
        if self._replica_link is None:
            return SlaveLink(self)
        return FirstBytes(lambda: SlaveLink(self), self._replica_link, self._undecided)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is None:
            return
        self._server.close()
        for link in list(self.links):
            link.close()
        for connection in list(self._undecided):
            connection.close()
        await self._server.wait_closed()
        self._server = None
        self._watch_log(False)

    # -- what links tell ------------------------------------------------------------------------------------------

    def link_opened(self, link: SlaveLink) -> None:
        self.links.append(link)
        log.info("slave connected slave=%s", link.peer)

    def link_reported(self, link: SlaveLink) -> None:
        self._watch_log(True)
        self._count()
        self._acknowledgements.acknowledge(link.acknowledged_offset)

    def link_refused(self, link: SlaveLink, reason: str) -> None:
        self.refused += 1
        log.warning("slave refused slave=%s: %s", link.peer, reason)

    def link_closed(self, link: SlaveLink) -> None:
        self.links.remove(link)
        self._count()
        if not self.links:
            self._watch_log(False)
        log.info("slave disconnected slave=%s acknowledged=%d", link.peer, link.acknowledged_offset)

    def _watch_log(self, on: bool) -> None:
        if self._replica_link is None:
            self.store.on_append = self._gathering.grew if on else None

    def _count(self) -> None:
        self._acknowledgements.slave_count = sum(link.reported for link in self.links)

    # -- sending --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what there is."""
        for link in list(self.links):
            link.pump()

    def _check(self) -> None:
        """Heartbeats to idle slaves; silent ones are closed."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        heartbeat_s = self.config.ha_send_heartbeat_interval / 1000
        silence_s = self.config.ha_housekeeping_interval / 1000
        for link in list(self.links):
            if now_s - link.heard_s > silence_s:
                log.warning("slave is silent slave=%s seconds=%.1f", link.peer, now_s - link.heard_s)
                link.close()
            elif now_s - link.wrote_s >= heartbeat_s:
                link.heartbeat()
        for connection in list(self._undecided):
            if now_s - connection.since_s > silence_s:
                connection.close()
        pause_s = max(min(heartbeat_s, silence_s) / CHECKS_PER_INTERVAL, CHECK_S_MIN)
        self._timer = loop.call_later(pause_s, self._check)
