"""Broker settings: every key of a RocketMQ 4.9 ``broker.conf`` with its type and default.

Those that the store reads are in store/settings.py, those that a NameServer has too in net/settings.py. A field is
spelled in snake case; its Java key is the camel-case form, or the name given with ``named``. The object is the live
configuration: UPDATE_BROKER_CONFIG changes it through :meth:`BrokerConfig.set_property`, so code that wants a setting
to be changeable at run time reads it from here each time. Keys marked "no effect" exist so that an existing file works
as it is and shows again in GET_BROKER_CONFIG.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cometmq.errors import CometMQError, ConfigError
from cometmq.net.addresses import parse_address
from cometmq.net.settings import ServerSettings
from cometmq.properties_file import (
    SYSTEM_PROPERTY_PREFIXES,
    check_port,
    format_value,
    named,
    nearest,
    odd_value,
    parse_value,
    settings_of,
)
from cometmq.protocol.names import PERM_READ, PERM_WRITE
from cometmq.store.config import BrokerRole, FlushDiskType, StoreConfig
from cometmq.store.settings import UNLIMITED, StoreSettings

log = logging.getLogger(__name__)

LISTEN_PORT_DEFAULT = 10911
FAST_PORT_DISTANCE = 2
HA_PORT_DISTANCE = 1
PULL_COUNT_MAX = 1024  # messages; our own limit where maxTransferCountOnMessageInMemory was not configured
PULL_BYTES_MAX = 1 << 20  # the same for maxTransferBytesOnMessageInMemory, and for pulls with a maxMsgBytes
# Of a pull of messages that are probably on disk. Not configured, they get no limits but those of all pulls.
DISK_LIMITS = {"max_transfer_bytes_on_message_in_disk", "max_transfer_count_on_message_in_disk"}
REGISTER_PERIOD_MS_MIN = 10_000
REGISTER_PERIOD_MS_MAX = 60_000
DISK_RATIO_PROPERTIES = {
    "disk_space_warning_level_ratio": "rocketmq.broker.diskSpaceWarningLevelRatio",
    "disk_space_clean_forcibly_ratio": "rocketmq.broker.diskSpaceCleanForciblyRatio",
}
ROLES = tuple(role.value for role in BrokerRole)
FLUSH_TYPES = tuple(kind.value for kind in FlushDiskType)
COMMIT_RULES = ("all", "quorum")

_CORES = os.cpu_count() or 1


# Nobody compares or prints 200 settings, and making both methods takes time.
@dataclass(kw_only=True, eq=False, repr=False)
class BrokerConfig(StoreSettings, ServerSettings):
    # Who this broker is
    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = ""  # host name when empty
    broker_id: int = 0
    broker_ip1: str = named("brokerIP1", "")  # advertised to clients, part of message ids
    broker_ip2: str = named("brokerIP2", "")  # advertised to replicas
    bind_address: str = "0.0.0.0"
    listen_port: int = LISTEN_PORT_DEFAULT
    namesrv_addr: str = ""
    rmq_address_server_domain: str = "jmenv.tbsite.net"
    rmq_address_server_sub_group: str = "nsaddr"
    fetch_namesrv_addr_by_address_server: bool = False
    rocketmq_home: str = ""
    broker_permission: int = PERM_READ | PERM_WRITE
    region_id: str = "DefaultRegion"
    trace_on: bool = True

    # Topics and groups
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    notify_consumer_ids_changed_enable: bool = True

    # Registration
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 6_000
    force_register: bool = True
    compressed_register: bool = False

    # Thread pools of the original: sizes have no effect, capacities bound the work in flight
    send_message_thread_pool_nums: int = min(_CORES, 4)
    put_message_future_thread_pool_nums: int = min(_CORES, 4)
    pull_message_thread_pool_nums: int = 16 + 2 * _CORES
    process_reply_message_thread_pool_nums: int = 16 + 2 * _CORES
    query_message_thread_pool_nums: int = 8 + _CORES
    admin_broker_thread_pool_nums: int = 16
    client_manage_thread_pool_nums: int = 32
    consumer_manage_thread_pool_nums: int = 32
    heartbeat_thread_pool_nums: int = min(32, _CORES)
    end_transaction_thread_pool_nums: int = max(8 + 2 * _CORES, 4 * min(_CORES, 4))
    send_thread_pool_queue_capacity: int = 10_000
    put_thread_pool_queue_capacity: int = 10_000
    pull_thread_pool_queue_capacity: int = 100_000
    reply_thread_pool_queue_capacity: int = 10_000
    query_thread_pool_queue_capacity: int = 20_000
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    heartbeat_thread_pool_queue_capacity: int = 50_000
    end_transaction_pool_queue_capacity: int = 100_000
    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5_000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_transaction_queue: int = 3_000
    start_accept_send_request_time_stamp: int = 0

    # Pulling
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    transfer_msg_by_heap: bool = True  # no effect: slices of the map are always sent directly
    slave_read_enable: bool = False
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 17_179_869_184
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    filter_support_retry: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 86_400_000

    # Offsets, transactions, replies, access, statistics
    flush_consumer_offset_interval: int = 5_000
    flush_consumer_offset_history_interval: int = 60_000  # no effect
    reject_transaction_message: bool = False
    transaction_time_out: int = 6_000
    transaction_check_max: int = 15
    transaction_check_interval: int = 60_000
    store_reply_message_enable: bool = True
    acl_enable: bool = False
    enable_detail_stat: bool = True
    auto_delete_unused_stats: bool = False

    # No effect, accepted
    message_store_plug_in: str = ""
    isolate_log_enable: bool = False
    high_speed_mode: bool = False
    commercial_enable: bool = True
    commercial_timer_count: int = 1
    commercial_trans_count: int = 1
    commercial_big_count: int = 1
    commercial_base_count: int = 1
    filter_server_nums: int = 0
    max_delay_time: int = 40

    # Store, beside the keys of StoreSettings
    store_path_root_dir: str = ""  # $HOME/store when empty
    store_path_commit_log: str = ""  # <root>/commitlog when empty
    flush_disk_type: str = "ASYNC_FLUSH"
    bit_map_length_consume_queue_ext: int = 64  # calculated at the start, whatever the file says
    default_query_max_num: int = 32
    flush_delay_offset_interval: int = 10_000

    # Store, no effect: one thread appends, pages are prepared ahead, files are deleted without a second try
    read_only_commit_log_store_paths: str = ""
    store_path_dledger_commit_log: str = named("storePathDLedgerCommitLog", "")
    commit_interval_commit_log: int = 200
    flush_commit_log_timed: bool = True
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_consume_queue_least_pages: int = 2
    use_reentrant_lock_when_put_message: bool = True
    os_page_cache_busy_time_out_mills: int = 1_000
    destroy_maped_file_interval_forcibly: int = 120_000
    redelete_hanged_file_interval: int = 120_000
    enable_schedule_async_deliver: bool = False
    schedule_async_deliver_max_pending_limit: int = 2_000
    schedule_async_deliver_max_resend_num2_blocked: int = named("scheduleAsyncDeliverMaxResendNum2Blocked", 3)
    enable_schedule_message_stats: bool = True
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4_096
    debug_lock_enable: bool = False
    duplication_enable: bool = False
    disk_fall_recorded: bool = True
    put_msg_index_hight_water: int = 600_000

    # Replication
    broker_role: str = "ASYNC_MASTER"
    ha_listen_port: int = 0  # listenPort + 1 unless it is set
    ha_master_address: str = ""
    ha_send_heartbeat_interval: int = 5_000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32_768
    ha_slave_fallbehind_max: int = 268_435_456
    slave_timeout: int = 3_000
    enable_dleger_commit_log: bool = named("enableDLegerCommitLog", False)
    dleger_group: str = named("dLegerGroup", "")
    dleger_peers: str = named("dLegerPeers", "")
    dleger_self_id: str = named("dLegerSelfId", "")
    preferred_leader_id: str = ""
    is_enable_batch_push: bool = False

    # Groups that elect their master (controller mode); the keys of the controllers are read by controller/config
    enable_controller_mode: bool = False
    controller_peers: str = ""  # id-host:port;... of all voters
    controller_self_id: str = ""  # empty: not a voter
    controller_election_timeout_ms: str = ""
    controller_heartbeat_ms: int = 100
    controller_metadata: str = "raft"
    controller_etcd_endpoints: str = ""
    controller_etcd_prefix: str = "/cometmq/"
    controller_store_path: str = ""
    ha_session_heartbeat_ms: int = 200
    ha_lease_ms: int = 1_000
    ha_session_timeout_ms: int = 1_500
    ha_disconnect_grace_ms: int = 200
    ha_heartbeat_ms: int = 100
    min_in_sync_replicas: int = 0  # 0: one in a group of two, else two
    ha_commit_rule: str = "all"
    ha_ack_replicas: int = 0
    ha_max_time_slave_not_catchup: int = 2_000
    ha_drop_delay_ms: int = 500
    ha_meta_interval_ms: int = 100
    ha_forward_ms: int = 35_000
    enable_elect_unclean_master: bool = False
    ha_boot_id: str = ""  # for tests: in place of the kernel's boot id

    # Network, beside the keys of ServerSettings
    client_worker_threads: int = 4
    client_callback_executor_threads: int = _CORES
    client_oneway_semaphore_value: int = 65_535
    client_async_semaphore_value: int = 65_535
    client_socket_snd_buf_size: int = 0
    client_socket_rcv_buf_size: int = 0
    client_pooled_byte_buf_allocator_enable: bool = False
    connect_timeout_millis: int = 3_000
    client_channel_max_idle_time_seconds: int = 120
    client_close_socket_if_timeout: bool = True
    channel_not_active_interval: int = 60_000
    use_tls: bool = named("useTLS", False)

    # What is not a key: system properties found in the file, the file itself, and the keys that were set
    system_properties: dict[str, str] = field(default_factory=dict, metadata={"key": None})
    config_file: str = field(default="", metadata={"key": None})
    configured: set[str] = field(default_factory=set, metadata={"key": None})
    following: bool = field(default=False, metadata={"key": None})  # controller mode: not the master now

    def __init__(self, **values: Any) -> None:
        """Fields by name; the others have their defaults."""
        unknown = values.keys() - FIELDS
        if unknown:
            raise TypeError(f"BrokerConfig has no field {', '.join(sorted(unknown))}")
        self.system_properties, self.configured = {}, set()
        for name, value in values.items():
            setattr(self, name, value)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, config_file: str = "") -> BrokerConfig:
        """Read the keys of a properties file; what cannot be used is logged and left at its default."""
        config = cls(config_file=config_file)
        for key, text in properties.items():
            problem = config.set_property(key, text) or odd_value(_kind_of(key), key, text)
            if problem:
                log.warning("%s", problem)
        return config

    def set_property(self, key: str, text: str) -> str | None:
        """Set one key from its text. Answers a sentence when the key is unknown or the text unusable."""
        if key.startswith(SYSTEM_PROPERTY_PREFIXES):
            self.system_properties[key] = text
            return None
        name = FIELD_OF_KEY.get(key) or ALIASES.get(key)
        if name is None:
            return f"unknown setting {key!r} is ignored{nearest(key, SETTINGS)}"
        kind = KIND_OF_FIELD[name]
        try:
            setattr(self, name, parse_value(kind, text))
        except ValueError:
            return f"setting {key} cannot be {text!r} (want {kind}); {getattr(self, name)!r} stays"
        self.configured.add(name)
        return None

    def as_properties(self) -> dict[str, str]:
        """Every key with its value as text, as GET_BROKER_CONFIG shows them; empty strings are left out."""
        shown = {key: format_value(getattr(self, name)) for key, name in FIELD_OF_KEY.items()}
        return {key: text for key, text in shown.items() if text or key == "messageStorePlugIn"}

    def resolve(self) -> BrokerConfig:
        """Fill in what depends on the machine or on other keys, and refuse what cannot work. Idempotent."""
        self.broker_name = self.broker_name or socket.gethostname()
        self.broker_ip1 = self.broker_ip1 or first_address()
        self.broker_ip2 = self.broker_ip2 or self.broker_ip1
        self.namesrv_addr = self.namesrv_addr or os.environ.get("NAMESRV_ADDR", "")
        self.rocketmq_home = self.rocketmq_home or os.environ.get("ROCKETMQ_HOME", "")
        self.store_path_root_dir = self.store_path_root_dir or os.path.join(os.path.expanduser("~"), "store")
        self.store_path_commit_log = self.store_path_commit_log or os.path.join(
            self.store_path_root_dir, "commitlog"
        )
        self.register_name_server_period = min(
            max(self.register_name_server_period, REGISTER_PERIOD_MS_MIN), REGISTER_PERIOD_MS_MAX
        )
        self._check_role()
        self._check_addresses()
        if self.enable_dleger_commit_log:
            self._use_dledger_keys()
        if self.enable_controller_mode:
            self._resolve_group()
        return self

    def _use_dledger_keys(self) -> None:
        """The keys of a 4.9 DLedger group start a group of ours; its replicas store a plain log."""
        self.enable_controller_mode = True
        self.controller_peers = self.controller_peers or self.dleger_peers
        self.controller_self_id = self.controller_self_id or self.dleger_self_id
        if "ha_commit_rule" not in self.configured:
            self.ha_commit_rule = "quorum"

    def _resolve_group(self) -> None:
        peers = [peer for peer in self.controller_peers.split(";") if peer.strip()]
        if not peers and self.controller_metadata == "raft":
            raise ConfigError(
                "A group that elects its master (enableControllerMode=true, or enableDLegerCommitLog=true) needs "
                "controllerPeers (or dLegerPeers): id-host:port;... of all voters."
            )
        if self.ha_commit_rule not in COMMIT_RULES:
            raise ConfigError(
                f"haCommitRule is {self.ha_commit_rule!r}; it must be one of {', '.join(COMMIT_RULES)}."
            )
        if self.ha_commit_rule == "quorum":
            self.ha_ack_replicas = self.ha_ack_replicas or len(peers) // 2 + 1
        if "broker_role" not in self.configured or self.broker_role == "SLAVE":
            self.broker_role = "SYNC_MASTER"  # the level "insync" unless another is asked for
        self.following = True

    def _check_role(self) -> None:
        if self.broker_role not in ROLES:
            raise ConfigError(f"brokerRole is {self.broker_role!r}; it must be one of {', '.join(ROLES)}.")
        if self.flush_disk_type not in FLUSH_TYPES:
            raise ConfigError(
                f"flushDiskType is {self.flush_disk_type!r}; it must be one of {', '.join(FLUSH_TYPES)}."
            )
        if self.enable_controller_mode or self.enable_dleger_commit_log:
            return
        if self.broker_role != "SLAVE":
            self.broker_id = 0
        elif self.broker_id <= 0:
            raise ConfigError("A broker with brokerRole=SLAVE needs a brokerId greater than 0.")

    def _check_addresses(self) -> None:
        check_port("listenPort", self.listen_port)
        for address in self.nameservers:
            try:
                parse_address(address)
            except CometMQError as error:
                raise ConfigError(f"namesrvAddr: {error}") from error
        try:
            ipaddress.ip_address(self.broker_ip1)
        except ValueError:
            raise ConfigError(
                f"brokerIP1 is {self.broker_ip1!r}; write a numeric address such as 10.0.0.7: message ids hold it."
            ) from None

    @property
    def config_dir(self) -> str:
        return os.path.join(self.store_path_root_dir, "config")

    @property
    def is_slave(self) -> bool:
        """Does its log come from another broker now?"""
        return self.following or self.broker_role == "SLAVE"

    @property
    def readable(self) -> bool:
        return bool(self.broker_permission & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.broker_permission & PERM_WRITE)

    @property
    def pull_count_max(self) -> int:
        """Messages per pull: the configured limit, else what the client asks for up to 1024."""
        if "max_transfer_count_on_message_in_memory" in self.configured:
            return self.max_transfer_count_on_message_in_memory
        return PULL_COUNT_MAX

    def pull_bytes(self, asked: int) -> int:
        """Bytes per pull that names how many it wants: up to the configured limit, else up to 1 MiB."""
        if "max_transfer_bytes_on_message_in_memory" in self.configured:
            return min(asked, self.max_transfer_bytes_on_message_in_memory)
        return min(asked, PULL_BYTES_MAX)

    @property
    def nameservers(self) -> list[str]:
        return [address.strip() for address in self.namesrv_addr.split(";") if address.strip()]

    def store_config(self) -> StoreConfig:
        """The part of the settings that the store knows, under the same names."""
        values = {f.name: getattr(self, f.name) for f in fields(StoreSettings)}
        values["store_path_root_dir"] = Path(self.store_path_root_dir)
        values["store_path_commit_log"] = Path(self.store_path_commit_log)
        values["flush_disk_type"] = FlushDiskType(self.flush_disk_type)
        values["broker_role"] = BrokerRole("SLAVE" if self.is_slave else self.broker_role)
        values["max_transfer_count_on_message_in_memory"] = self.pull_count_max
        for name in DISK_LIMITS - self.configured:
            values[name] = UNLIMITED
        for name, key in DISK_RATIO_PROPERTIES.items():
            if key in self.system_properties:
                values[name] = _percent(key, self.system_properties[key])
        return StoreConfig(**values)


FIELDS = frozenset(f.name for f in fields(BrokerConfig))
SETTINGS = settings_of(BrokerConfig)
FIELD_OF_KEY: dict[str, str] = {key: setting.name for key, setting in SETTINGS.items()}
KIND_OF_FIELD: dict[str, str] = {setting.name: setting.kind for setting in SETTINGS.values()}
ALIASES = {"enableBatchPush": "is_enable_batch_push"}  # the Java setter and the Java field differ


def _kind_of(key: str) -> str:
    setting = SETTINGS.get(key)
    return setting.kind if setting is not None else ""


def _percent(key: str, text: str) -> int:
    try:
        return round(float(text) * 100)
    except (ValueError, OverflowError):
        raise ConfigError(f"{key} is {text!r}; write a share of the disk such as 0.90.") from None


def first_address() -> str:
    """The address this machine would use towards others (no packet is sent), else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
