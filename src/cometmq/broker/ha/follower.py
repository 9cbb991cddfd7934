"""A slave follows its master: finds it, connects, keeps the connection, begins an empty log at the right place.

Theory of operation. The master's replication address is haMasterAddress, or what a NameServer answered to our
registration. One task connects, waits for the connection to end, and tries again, at first soon, then every second.

An empty slave wants the whole log. A master of 4.9 answers the report 0 with its last file only; any other report is
taken literally. So an empty slave asks the master for its range first (GET_BROKER_RUNTIME_INFO) and reports the
offset of the oldest file. If that is 0 and there is more than one file it reports 1: the first byte of a log is the
high byte of a record's length, which is zero because no record reaches 16 MiB, and an empty file has it already.
The first record is then checked like every other before it enters its queue. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from cometmq.broker.config import BrokerConfig
from cometmq.broker.ha.master_link import MasterLink
from cometmq.errors import CometMQError
from cometmq.net.addresses import parse_address
from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
RETRY_S_MIN = 0.1
RETRY_S_MAX = 1.0
CHECKS_PER_INTERVAL = 5  # how finely reports and silence are timed
CHECK_S_MIN = 0.01
HA_ADDRESS_LENGTH_MIN = 6  # characters; 4.9 takes anything shorter for "not set"
AFTER_FIRST_BYTE = 1
RECORD_SLACK_SIZE = 128 * 1024  # bytes; properties and the blank end of a file beside the largest body


class LogRange(NamedTuple):
    """What a master has: first and end physical offset."""

    first: int
    end: int


FindRange = Callable[[], Awaitable[LogRange]]


class Follower:
    """``find_range`` asks the master what it has; it is called only while our log is empty."""

    def __init__(self, config: BrokerConfig, store: MessageStore, find_range: FindRange) -> None:
        self._config = config
        self._store = store
        self._find_range = find_range
        self._address = ""
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._behind_reported = False
        self.link: MasterLink | None = None
        self.connections = 0
        self.on_connected: Callable[[], None] = lambda: None

    @property
    def address(self) -> str:
        """Where the master is; empty as long as nobody knows."""
        configured = self._config.ha_master_address
        return configured if len(configured) >= HA_ADDRESS_LENGTH_MIN else self._address

    def follow(self, address: str) -> None:
        """The NameServer says that the master is here."""
        if address == self._address:
            return
        self._address = address
        self._moved.set()
        if self.link is not None and self.address == address:
            self.link.close(f"the master has moved to {address}")

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ha-follower")
        self._check()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.link is not None:
            self.link.close("stopping")

    async def _run(self) -> None:
        retry_s = RETRY_S_MIN
        while True:
            self._moved.clear()
            received = 0
            if self.address:
                received = await self._follow_once(self.address)
            retry_s = RETRY_S_MIN if received else min(retry_s * 2, RETRY_S_MAX)
            try:
                await asyncio.wait_for(self._moved.wait(), retry_s)
                retry_s = RETRY_S_MIN
            except TimeoutError:
                pass

    async def _follow_once(self, address: str) -> int:
        """One connection from begin to end; how many bytes it brought."""
        try:
            link = await self._connect(address)
        except (OSError, CometMQError, TimeoutError) as error:
            log.warning("no connection to the master address=%s: %s", address, error or "timeout")
            return 0
        self.link = link
        self.connections += 1
        log.info("following master=%s from=%d", address, self._store.max_physical_offset)
        self.on_connected()
        try:
            why = await asyncio.shield(link.closed)
        finally:
            self.link = None
            link.close("stopping")
        log.warning("connection to the master ended master=%s: %s", address, why)
        return link.bytes_received

    async def _connect(self, address: str) -> MasterLink:
        host, port = parse_address(address)
        first_report = self._store.max_physical_offset or await self._first_of_all()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, link = await asyncio.get_running_loop().create_connection(
                lambda: MasterLink(self._store, first_report), host, port
            )
        return link

    async def _first_of_all(self) -> int:
        """What an empty log reports so that it is sent everything."""
        found = await self._find_range()
        if found.first > 0:
            return found.first
        one_file = found.end <= self._config.mapped_file_size_commit_log
        return 0 if one_file else AFTER_FIRST_BYTE

    # -- periodic -------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Reports of an idle slave; a silent master is left and tried again."""
        loop = asyncio.get_running_loop()
        heartbeat_s = self._config.ha_send_heartbeat_interval / 1000
        silence_s = self._config.ha_housekeeping_interval / 1000
        link, now_s = self.link, loop.time()
        if link is not None:
            if now_s - link.heard_s > silence_s:
                link.close(f"the master was silent for {now_s - link.heard_s:.1f} s")
            elif now_s - link.reported_s >= heartbeat_s:
                link.report()
        self._check_records()
        pause_s = max(min(heartbeat_s, silence_s) / CHECKS_PER_INTERVAL, CHECK_S_MIN)
        self._timer = loop.call_later(pause_s, self._check)

    def _check_records(self) -> None:
        """Bytes that never become records are copied, as they are the master's, but somebody must know."""
        store = self._store
        behind = store.max_physical_offset - store.dispatched_offset
        bad = behind > self._config.max_message_size + RECORD_SLACK_SIZE
        if bad and not self._behind_reported:
            log.error(
                "the master's log has bytes that are no record at=%d: queues of this slave stop there",
                store.dispatched_offset,
            )
        self._behind_reported = bad
