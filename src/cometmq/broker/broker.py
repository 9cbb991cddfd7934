"""The broker: composition root. It builds the parts, joins them, starts and stops them in order.

The parts know each other only through the ``Broker`` they are given, and they are objects of the loop thread.

* A part with ``file_text()`` and ``load_text(data)`` is kept in a JSON file of the store's ``config``
  directory (``FILES``); ``broker.files.changed(name)`` has it written soon, in a thread.
* Handlers live in ``broker/handlers``: one ``handlers(broker)`` per file answers the codes it serves.

Start order: lock and recover the store, load the files, listen, begin periodic work, register.
Stop order: stop listening, stop periodic work, unregister, save the files, close the store.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from cometmq.broker import housekeeping
from cometmq.broker.acl import AccessControl
from cometmq.broker.acl.access import PLAIN_FILE_PROPERTY
from cometmq.broker.clients import Consumers, Producers
from cometmq.broker.config import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, BrokerConfig
from cometmq.broker.counters import BrokerCounters
from cometmq.broker.delay import DELAY_OFFSET_FILE, ScheduledMessages
from cometmq.broker.durability import Durability
from cometmq.broker.fast_path_cy import FastPath
from cometmq.broker.files import ConfigFiles
from cometmq.broker.filter_data import FILTER_FILE, FilterData
from cometmq.broker.flow_control import FlowControl
from cometmq.broker.groups import GROUPS_FILE, SubscriptionGroups
from cometmq.broker.ha.group_replication import GroupReplication
from cometmq.broker.ha.replication import Replication
from cometmq.broker.handlers.pull import Pulls
from cometmq.broker.held_pulls import HeldPulls
from cometmq.broker.locks import QueueLocks, lock_live_ms
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.periodic import Periodic
from cometmq.broker.plain_sends import PlainSendPath
from cometmq.broker.registration import Registration
from cometmq.broker.stats import BrokerStats
from cometmq.broker.timers import TIMER_OFFSET_FILE, TimedMessages
from cometmq.broker.topics import TOPICS_FILE, Topics
from cometmq.broker.transactions import Transactions
from cometmq.clock import Clock, now_ms, steady
from cometmq.errors import ConfigError
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig, frame_size_from
from cometmq.net.metrics import NetMetrics
from cometmq.net.server import Handler, RemotingServer
from cometmq.net.tls import TlsConfig
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.filters.bloom import BloomFilter
from cometmq.protocol.host import encode_host
from cometmq.protocol.names import LMQ_PREFIX
from cometmq.store.model import RecoveryReport
from cometmq.store.store import MessageStore

log = logging.getLogger(__name__)

HANDLER_FILES = (
    "send",
    "pull",
    "query",
    "clients",
    "offsets",
    "locks",
    "admin_topics",
    "admin_groups",
    "admin_consumers",
    "admin_broker",
    "transaction",
    "send_back",
    "reply",
    "acl",
    "ha",
)

NOT_ON_FAST_PORT = (RequestCode.PULL_MESSAGE,)
PORT_ATTEMPTS_MAX = 50  # tries to find three free neighbouring ports when listenPort is 0
COLLECT_MS = 1_000
ACCOUNTS_RELOAD_MS = 5_000
STORE_TICK_MS = 2_000
STOP_GRACE_MS = 500


class Broker:
    """One broker. ``await start()`` answers when it serves; ``await stop()`` when everything is on disk.

    ``store`` and ``files`` are made from the settings unless they are given (see ``testing/local_broker.py``).
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Clock = now_ms,
        store: MessageStore | None = None,
        files: ConfigFiles | None = None,
    ) -> None:
        self.config = config.resolve()
        self.now_ms = now_ms
        self.store = store or MessageStore(config.store_config(), now_ms=now_ms)
        self.files = files or ConfigFiles(Path(config.config_dir))
        self.periodic = Periodic()
        # It cannot go on; who runs this broker ends the process.
        self.on_fail: Callable[[int], None] = lambda exit_code: None
        self._make_counters()
        self._make_tables()
        self._make_network()
        self._make_workers()
        # Known from start() on
        self.acl: AccessControl | None = None
        self.store_host = b""  # brokerIP1:listenPort as records carry it
        self.boot_timestamp_ms = 0
        self.recovery: RecoveryReport | None = None
        self.server: RemotingServer | None = None
        self.fast_server: RemotingServer | None = None
        self.plain_sends: PlainSendPath | None = None
        self._masters_work = False
        self._join()

    def _make_counters(self) -> None:
        config = self.config
        self.counters = BrokerCounters()
        self.net_metrics = NetMetrics()
        self.flow_control = FlowControl(config)
        self.stats = BrokerStats(
            config.broker_cluster_name, queue_stats=config.enable_detail_stat, now_ms=self.now_ms
        )

    def _make_tables(self) -> None:
        """What the broker knows: topics, groups, offsets, filters, clients, locks."""
        config, now_ms = self.config, self.now_ms
        self.topics = Topics(config, now_ms=now_ms)
        self.groups = SubscriptionGroups(
            auto_create=lambda: config.auto_create_subscription_group,
            is_light=lambda group: config.enable_lmq and group.startswith(LMQ_PREFIX),
            now_ms=now_ms,
        )
        self.offsets = ConsumerOffsets(enable_lmq=config.enable_lmq)
        bloom = BloomFilter.of(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        config.bit_map_length_consume_queue_ext = bloom.bit_count  # calculated, whatever the file says
        self.filter_data = FilterData(
            bloom=bloom,
            clean_time_span_ms=lambda: config.filter_data_clean_time_span,
            now_ms=now_ms,
        )
        self.producers = Producers(now_ms=now_ms)
        self.consumers = Consumers(now_ms=now_ms)
        self.locks = QueueLocks(live_ms_max=lock_live_ms(config.system_properties), now_ms=steady(now_ms))

    def _make_network(self) -> None:
        frame_size_max = frame_size_from(self.config.system_properties)
        self.net_config = NetConfig.from_settings(self.config, frame_size_max=frame_size_max)
        self.tls = TlsConfig.load(self.config.system_properties)
        # To NameServers and masters
        self.client = RemotingClient(config=self.net_config, now_ms=self.now_ms, tls=self.tls)

    def _make_workers(self) -> None:
        """What waits or goes on by itself."""
        self.durability = Durability(self)
        self.held_pulls = HeldPulls(self.store)
        self.pulls = Pulls(self)
        self.registration = Registration(self)
        self.delay = ScheduledMessages(self)
        self.timers = TimedMessages(self)
        self.transactions = Transactions(self)
        self.group: GroupReplication | None = None  # controller mode
        self.replication: Replication | GroupReplication
        if self.config.enable_controller_mode:
            self.replication = self.group = GroupReplication(self)
        else:
            self.replication = Replication(self)

    def _join(self) -> None:
        """Who hears of whose changes."""
        self.durability.replication = self.replication
        self.topics.on_change = self._topics_changed
        housekeeping.join(self)
        if self.group is not None:
            self.groups.on_change = self._groups_changed

    def save(self, name: str) -> None:
        """Have a file of the config directory written soon; many calls make one write."""
        self.files.changed(name)

    def _topics_changed(self, names: Iterable[str]) -> None:
        names = list(names)
        self.files.changed(TOPICS_FILE, names)
        if self.plain_sends is not None:
            self.plain_sends.forget(names)
        if self.group is not None:
            self.group.topics_changed(names)
        if self.server is not None:
            self.registration.topics_changed(names)

    def _groups_changed(self) -> None:
        self.save(GROUPS_FILE)
        assert self.group is not None
        self.group.groups_changed()

    @property
    def address(self) -> str:
        return f"{self.config.broker_ip1}:{self.config.listen_port}"

    @property
    def replica_id(self) -> int:
        return self.group.replica_id if self.group is not None else self.config.broker_id

    def fail(self, exit_code: int) -> None:
        """This broker must not go on (its disk, or a log that contradicts the group)."""
        self.on_fail(exit_code)

    def offsets_follow_queues(self) -> None:
        """The log was cut: no offset may lie behind the end of its queue."""
        self.offsets.clamp(self.store.max_offset)  # delay levels look at their queues when they start

    @property
    def ha_address(self) -> str:
        return f"{self.config.broker_ip2}:{self.config.ha_listen_port}"

    def disk_ratios(self) -> tuple[float, float, float]:
        """How full the disks of log, queues and index are, 0 to 1."""
        log_percent, queue_percent = self.store.retention.disk.percents()
        return log_percent / 100, queue_percent / 100, queue_percent / 100

    # -- start -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises StoreError when the store cannot be used, OSError when a port cannot be had."""
        loop = asyncio.get_running_loop()
        self.boot_timestamp_ms = self.now_ms()
        self.recovery = self.store.open(self.group.before_store() if self.group is not None else None)
        self.store.attach(loop)
        try:
            self._load_files()
            if self.group is not None:
                self.group.after_store()
            self._load_accounts()
            await self._listen()
        except BaseException:
            self.store.close()
            raise
        self._begin_periodic_work()
        await self.registration.start()

    def _load_files(self) -> None:
        self.files.keep_with_journal(TOPICS_FILE, self.topics)
        self.files.keep(GROUPS_FILE, self.groups)
        self.files.keep(self.offsets.file_name, self.offsets)
        self.files.keep(FILTER_FILE, self.filter_data)
        self.files.keep(DELAY_OFFSET_FILE, self.delay)
        self.files.keep(TIMER_OFFSET_FILE, self.timers)

    def _load_accounts(self) -> None:
        if not self.config.acl_enable:
            return
        if not self.config.rocketmq_home:
            raise ConfigError(
                "aclEnable=true needs rocketmqHome (or ROCKETMQ_HOME): accounts are in its conf/plain_acl.yml."
            )
        default_file = self.config.system_properties.get(PLAIN_FILE_PROPERTY, "")
        self.acl = AccessControl(self, Path(self.config.rocketmq_home), default_file=default_file.lstrip("/"))

    def handler_table(self) -> dict[int, Handler]:
        """Every request code this broker serves."""
        table: dict[int, Handler] = {}
        for name in HANDLER_FILES:
            module = importlib.import_module(f"cometmq.broker.handlers.{name}")
            for code, handler in module.handlers(self).items():
                assert code not in table, f"two handlers for request code {code}"
                if self.group is not None:
                    handler = self.group.guard.guard(code, handler)
                table[code] = self.acl.guard(handler) if self.acl is not None else handler
        return table

    async def _listen(self) -> None:
        """Main port and fast port (main - 2); with listenPort 0 any pair that is free, the HA port beside it."""
        table = self.handler_table()
        fast_table = {code: handler for code, handler in table.items() if code not in NOT_ON_FAST_PORT}
        wanted, ha_port = self.config.listen_port, self.config.ha_listen_port
        for attempt in range(PORT_ATTEMPTS_MAX):
            server = self._make_server(table)
            fast_server = self._make_server(fast_table)
            port = await server.start(self.config.bind_address, wanted)
            self._use_port(port, ha_port)
            try:
                await fast_server.start(self.config.bind_address, port - FAST_PORT_DISTANCE)
                await self.replication.listen(self.config.bind_address, self.config.ha_listen_port)
            except (OSError, ConfigError):
                await asyncio.gather(server.stop(0), fast_server.stop(0))
                if wanted or attempt == PORT_ATTEMPTS_MAX - 1:
                    raise
                continue
            self.server, self.fast_server = server, fast_server
            self.plain_sends = PlainSendPath(self)
            fast_path = FastPath(self.plain_sends, self.pulls, self.net_metrics.requests)
            server.fast_path, server.batch_path = fast_path.serve, fast_path
            fast_server.fast_path, fast_server.batch_path = self.plain_sends.serve, self.plain_sends
            return

    def _make_server(self, table: dict[int, Handler]) -> RemotingServer:
        return RemotingServer(
            table, config=self.net_config, now_ms=self.now_ms, metrics=self.net_metrics, tls=self.tls
        )

    def _use_port(self, port: int, ha_port: int) -> None:
        self.config.listen_port = port
        self.config.ha_listen_port = ha_port or port + HA_PORT_DISTANCE
        self.store_host = encode_host(self.config.broker_ip1, port)

    # -- periodic work ---------------------------------------------------------------------------------------

    def _begin_periodic_work(self) -> None:
        housekeeping.schedule(self)
        self.periodic.every(lambda: self.config.flush_delay_offset_interval, self._save_masters_delays)
        self.periodic.every(lambda: self.config.transaction_check_interval, self._check_transactions)
        if not self.config.is_slave:
            self.begin_masters_work()
        self.replication.start()
        if self.acl is not None:
            self.periodic.every(ACCOUNTS_RELOAD_MS, self.acl.reload_changed)
        self.periodic.every(COLLECT_MS, self.collect)
        self.periodic.every(STORE_TICK_MS, self.store.tick)

    def begin_masters_work(self) -> None:
        """What writes to the log by itself: a slave's log is its master's."""
        self.delay.start()
        self.timers.start()
        self.transactions.start()
        self.store.retention.rescue = self._rescue
        self._masters_work = True

    def end_masters_work(self) -> None:
        if self._masters_work:
            self._masters_work = False
            self.store.retention.rescue = lambda physical_offset: True
            self.delay.stop()
            self.timers.stop()
            self.transactions.stop()

    def _save_masters_delays(self) -> None:
        if self._masters_work:
            self._save_delays()

    def _check_transactions(self) -> None:
        if self._masters_work:
            self.transactions.begin_round()

    def _rescue(self, physical_offset: int) -> bool:
        """The log will lose what lies below an offset: what waits there is stored anew."""
        return all(part.rescue(physical_offset) for part in (self.delay, self.timers, self.transactions))

    def collect(self) -> None:
        """Take over what the compiled send path counted."""
        if self.plain_sends is not None:
            self.plain_sends.collect()

    def _save_delays(self) -> None:
        self.save(DELAY_OFFSET_FILE)
        self.save(TIMER_OFFSET_FILE)

    def count_put_time(self, elapsed_us: int, times: int = 1) -> None:
        """From the request to its answer, for metrics and runtime info."""
        self.counters.put_times.add(elapsed_us, times)
        self.stats.rates.put_times.add(elapsed_us // 1_000, times)

    # -- stop ------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Idempotent. Held pulls are not answered: their clients see the connection close and go elsewhere."""
        if self.server is None or self.fast_server is None:
            return
        if self.group is not None:
            await self.group.leave()
        server, fast_server = self.server, self.fast_server
        self.server = self.fast_server = None
        self.held_pulls.stop()
        self.pulls.stop()
        await asyncio.gather(server.stop(STOP_GRACE_MS), fast_server.stop(STOP_GRACE_MS))
        self.periodic.stop()
        await self.replication.stop()
        self.end_masters_work()
        self._save_delays()
        await self.registration.stop()
        await self.client.close()
        housekeeping.save_offsets(self)
        housekeeping.save_filters(self)
        self.files.close()
        self.store.close()
        if self.group is not None:
            self.group.closed()
