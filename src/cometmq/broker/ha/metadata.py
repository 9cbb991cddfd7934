"""A slave's copies of what is not in the log: topics, consumer offsets, delay offsets, consumer groups.

Every 10 s, and when the connection to the master is made, the slave asks its master for all four, one after the
other as 4.9 does: topics on the fast port, the rest on the main port. Topics and groups are replaced when their data
version differs. Offsets overwrite ours per topic and group; the master's word counts. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.broker.config import FAST_PORT_DISTANCE
from cometmq.broker.delay import DELAY_OFFSET_FILE
from cometmq.broker.ha.follower import LogRange
from cometmq.broker.topics import TOPICS_FILE
from cometmq.errors import BrokerError, CometMQError
from cometmq.net.addresses import parse_address
from cometmq.protocol import json_java
from cometmq.protocol.bodies.group import SubscriptionGroupWrapper
from cometmq.protocol.bodies.topic import TopicConfigSerializeWrapper
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

SYNC_FIRST_MS = 3_000
SYNC_MS = 10_000
REQUEST_TIMEOUT_MS = 3_000


class MetadataSync:
    """``master_address`` is the master's remoting address; empty while unknown."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._task: asyncio.Task[None] | None = None
        self.master_address = ""
        self.rounds = 0
        self.failures = 0

    def start(self) -> None:
        self._broker.periodic.every(SYNC_MS, self.begin, first_ms=SYNC_FIRST_MS)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def begin(self) -> None:
        """Start a round unless one is under way."""
        if self.master_address and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._guarded(), name="ha-metadata")

    async def _guarded(self) -> None:
        try:
            await self.sync()
            self.rounds += 1
        except CometMQError as error:
            self.failures += 1
            log.warning("metadata not copied master=%s: %s", self.master_address, error)

    async def sync(self) -> None:
        """One round; raises CometMQError at the first request that fails."""
        await self._sync_topics()
        await self._sync_offsets()
        await self._sync_delays()
        await self._sync_groups()

    async def _sync_topics(self) -> None:
        host, port = parse_address(self.master_address)
        body = await self._get(RequestCode.GET_ALL_TOPIC_CONFIG, f"{host}:{port - FAST_PORT_DISTANCE}")
        wrapper = TopicConfigSerializeWrapper.decode(body)
        topics = self._broker.topics
        if wrapper.data_version != topics.data_version:
            topics.replace_all(wrapper.topic_config_table, wrapper.data_version)
            self._broker.save(TOPICS_FILE)
            log.info("topics copied count=%d", len(wrapper.topic_config_table))

    async def _sync_offsets(self) -> None:
        self._broker.offsets.load_text(await self._get(RequestCode.GET_ALL_CONSUMER_OFFSET))
        self._broker.offsets.unsaved = True

    async def _sync_delays(self) -> None:
        self._broker.delay.load_text(await self._get(RequestCode.GET_ALL_DELAY_OFFSET))
        self._broker.save(DELAY_OFFSET_FILE)

    async def _sync_groups(self) -> None:
        body = await self._get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        wrapper = SubscriptionGroupWrapper.from_json(json_java.loads(body))
        groups = self._broker.groups
        if wrapper.data_version != groups.data_version:
            groups.replace_all(wrapper)
            log.info("consumer groups copied count=%d", len(groups))

    async def log_range(self) -> LogRange:
        """First and end physical offset of the master's log."""
        body = await self._get(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = json_java.loads(body).get("table") or {}
        try:
            return LogRange(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
        except (KeyError, ValueError) as error:
            raise CometMQError(
                f"The master {self.master_address} does not say where its log begins."
            ) from error

    async def _get(self, code: RequestCode, address: str | None = None) -> bytes:
        address = address or self.master_address
        request = RemotingCommand.request(code)
        response = await self._broker.client.invoke(address, request, REQUEST_TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)
        return bytes(response.body)
