"""broker.conf: names, types, defaults, and what happens to keys that cannot be used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from golden_frames import frames

from cometmq.broker.config import FIELD_OF_KEY, BrokerConfig
from cometmq.errors import ConfigError
from cometmq.store.config import BrokerRole, FlushDiskType
from cometmq.store.settings import UNLIMITED

# Settings of the recorded broker that differ from the defaults, or depend on its machine (golden/wire README).
NOT_DEFAULT = {
    "storePathRootDir", "storePathCommitLog", "transactionCheckInterval", "transactionTimeOut", "namesrvAddr",
    "brokerName", "haListenPort", "mappedFileSizeConsumeQueue", "mappedFileSizeCommitLog", "deleteWhen",
    "registerNameServerPeriod", "forceRegister", "rocketmqHome", "brokerIP1", "brokerIP2", "brokerClusterName",
    "listenPort", "enablePropertyFilter", "bitMapLengthConsumeQueueExt",
}  # fmt: skip
OF_THE_MACHINE = {
    "queryMessageThreadPoolNums", "endTransactionThreadPoolNums", "sendMessageThreadPoolNums",
    "heartbeatThreadPoolNums", "pullMessageThreadPoolNums", "clientCallbackExecutorThreads",
    "processReplyMessageThreadPoolNums", "putMessageFutureThreadPoolNums",
}  # fmt: skip


def recorded_config() -> dict[str, str]:
    """GET_BROKER_CONFIG of the Java broker."""
    for frame in frames():
        if frame.case == "admin_getBrokerConfig" and frame.request_code == 26 and frame.command.is_response:
            text = bytes(frame.command.body).decode()
            return dict(item.split("=", 1) for item in text.split("\n") if item)
    raise AssertionError("the recording has no answer to GET_BROKER_CONFIG")


def test_every_key_of_the_java_broker_is_known_with_its_default() -> None:
    recorded = recorded_config()
    ours = BrokerConfig().as_properties()
    assert recorded.keys() - FIELD_OF_KEY.keys() == set()
    expected = {key: text for key, text in recorded.items() if key not in NOT_DEFAULT | OF_THE_MACHINE}
    assert {key: ours.get(key, "") for key in expected} == expected


def test_values_are_read_by_type() -> None:
    config = BrokerConfig.from_properties(
        {"brokerName": "b1", "listenPort": " 20911 ", "autoCreateTopicEnable": "FALSE", "traceOn": "yes"}
    )
    assert (config.broker_name, config.listen_port, config.auto_create_topic_enable) == ("b1", 20911, False)
    assert config.trace_on is False  # only "true" is true


def test_unknown_key_warns_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        BrokerConfig.from_properties({"brokerClusterNam": "x"})
    assert "unknown setting 'brokerClusterNam' is ignored; did you mean 'brokerClusterName'?" in caplog.text


def test_unparsable_value_warns_and_the_default_stays(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.from_properties({"listenPort": "many"})
    assert config.listen_port == 10911
    assert "listenPort" in caplog.text


def test_system_properties_in_the_file_are_kept_as_text() -> None:
    config = BrokerConfig.from_properties({"tls.server.mode": "enforcing"})
    assert config.system_properties == {"tls.server.mode": "enforcing"}


def test_masters_have_id_0_and_slaves_need_another() -> None:
    assert BrokerConfig(broker_id=3).resolve().broker_id == 0
    assert BrokerConfig(broker_role="SLAVE", broker_id=1).resolve().broker_id == 1
    with pytest.raises(ConfigError, match="brokerId"):
        BrokerConfig(broker_role="SLAVE").resolve()


def test_register_period_is_kept_between_10_and_60_seconds() -> None:
    assert BrokerConfig(register_name_server_period=1).resolve().register_name_server_period == 10_000
    assert BrokerConfig(register_name_server_period=10**9).resolve().register_name_server_period == 60_000


def test_store_settings_follow(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(
        {
            "storePathRootDir": str(tmp_path),
            "flushDiskType": "SYNC_FLUSH",
            "fileReservedTime": "12",
            "rocketmq.broker.diskSpaceWarningLevelRatio": "0.95",
        }
    ).resolve()
    store = config.store_config()
    assert store.store_path_root_dir == tmp_path
    assert (store.flush_disk_type, store.broker_role) == (FlushDiskType.SYNC_FLUSH, BrokerRole.ASYNC_MASTER)
    assert (store.file_reserved_time, store.disk_space_warning_level_ratio) == (12, 95)


def test_pulls_from_disk_are_limited_only_where_that_is_configured() -> None:
    assert BrokerConfig().max_transfer_count_on_message_in_disk == 8
    assert BrokerConfig().resolve().store_config().max_transfer_count_on_message_in_disk == UNLIMITED
    config = BrokerConfig.from_properties({"maxTransferCountOnMessageInDisk": "8"}).resolve().store_config()
    assert config.max_transfer_count_on_message_in_disk == 8
    assert config.max_transfer_bytes_on_message_in_disk == UNLIMITED


def test_pull_count_is_what_clients_ask_for_unless_configured() -> None:
    assert BrokerConfig().resolve().store_config().max_transfer_count_on_message_in_memory == 1024
    config = BrokerConfig.from_properties({"maxTransferCountOnMessageInMemory": "32"}).resolve()
    assert config.store_config().max_transfer_count_on_message_in_memory == 32


def test_nameserver_list_is_separated_by_semicolons() -> None:
    assert BrokerConfig(namesrv_addr="a:9876; b:9876;").nameservers == ["a:9876", "b:9876"]
