"""The broker itself: settings, runtime figures, statistics, clean-up. 25, 26, 28, 306, 315, 321, 323, 329.

Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq import properties_file
from cometmq.broker.filter_data import GroupFilter
from cometmq.broker.handlers.admin_topics import NOT_SET
from cometmq.broker.runtime_info import runtime_info
from cometmq.broker.stats import Window
from cometmq.errors import BrokerError, CometMQError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.heartbeat import SubscriptionData
from cometmq.protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    KVTable,
    QueryConsumeQueueResponseBody,
)
from cometmq.protocol.bodies.topic import DataVersion
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.filters.tag import is_tag_type
from cometmq.protocol.headers import (
    GetBrokerConfigResponseHeader,
    QueryConsumeQueueHeader,
    ResumeCheckHalfMessageHeader,
    ViewBrokerStatsHeader,
)
from cometmq.protocol.message_id import parse_offset_message_id
from cometmq.protocol.record_cy import decode_record

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

# Who and where the broker is: these go into the file and take effect at the next start.
AT_START_ONLY = frozenset(
    (
        "bindAddress", "brokerClusterName", "brokerIP1", "brokerIP2", "brokerId", "brokerName", "brokerRole",
        "haListenPort", "listenPort", "storePathCommitLog", "storePathRootDir",
    )
)  # fmt: skip
QUEUE_ENTRIES_MAX = 1_024  # of one QUERY_CONSUME_QUEUE
RESUME_FAILED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
RESUME_EXCEPTION = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


def handlers(broker: Broker) -> dict[int, Handler]:
    settings = Settings(broker)
    return {
        RequestCode.UPDATE_BROKER_CONFIG: settings.update_broker_config,
        RequestCode.GET_BROKER_CONFIG: settings.get_broker_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: partial(get_broker_runtime_info, broker),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: partial(clean_expired_consume_queue, broker),
        RequestCode.VIEW_BROKER_STATS_DATA: partial(view_broker_stats_data, broker),
        RequestCode.QUERY_CONSUME_QUEUE: partial(query_consume_queue, broker),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: partial(resume_check_half_message, broker),
        RequestCode.DELETE_EXPIRED_COMMITLOG: partial(delete_expired_commit_log, broker),
    }


# --- settings ---


class Settings:
    """Live settings and the version of them that administrators see."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._version = DataVersion(timestamp=broker.now_ms(), counter=0)

    async def update_broker_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Set what is known, warn about the rest, and write the file given by -c anew with every setting."""
        broker = self._broker
        try:
            properties = properties_file.parse_bytes(bytes(request.body))
        except ValueError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "string2Properties error") from error
        later = {key: text for key, text in properties.items() if key in AT_START_ONLY}
        if later and not broker.config.config_file:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR,
                f"{', '.join(later)} can change at a start only, and no file was given with -c to write it to.",
            )
        self._apply({key: text for key, text in properties.items() if key not in later}, connection.peer)
        await self._write_file(later)
        if "brokerPermission" in properties:
            broker.topics.bump()
            await broker.registration.register_all()
        return request.response()

    def _apply(self, properties: dict[str, str], peer: str) -> None:
        """All or nothing: values that the store cannot take are found on a copy."""
        config = self._broker.config
        trial = replace(
            config, configured=set(config.configured), system_properties=dict(config.system_properties)
        )
        problems = {key: trial.set_property(key, text) for key, text in properties.items()}
        try:
            store_config = trial.resolve().store_config()
        except (ValueError, CometMQError) as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        for key, text in properties.items():
            config.set_property(key, text)
            log.info("setting key=%s by=%s problem=%s", key, peer, problems[key])
        self._broker.store.reconfigure(store_config)
        self._version = self._version.next(self._broker.now_ms())

    async def _write_file(self, later: dict[str, str]) -> None:
        config = self._broker.config
        if config.config_file:
            settings = {**config.system_properties, **config.as_properties(), **later}
            text = properties_file.format_properties(settings)
            await asyncio.to_thread(replace_file, config.config_file, text)

    def get_broker_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetBrokerConfigResponseHeader(version=self._version.encode().decode())
        settings = self._broker.config.as_properties()
        # Not escaped, as the original does: people read it, and Java's reader copes.
        body = "".join(f"{key}={value}\n" for key, value in settings.items())
        return request.response(header=header, body=body.encode())


def replace_file(path: str, text: str) -> None:
    """Write a file so that it is either the old or the new one whatever happens. For a thread."""
    beside = Path(f"{path}.tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


# --- figures ---


def get_broker_runtime_info(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    return request.response(body=KVTable(table=runtime_info(broker)).encode())


def view_broker_stats_data(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = ViewBrokerStatsHeader.decode(request.ext_fields)
    windows = broker.stats.windows(header.stats_name, header.stats_key)
    if windows is None:
        remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
    minute, hour, day = map(_stats_item, windows)
    body = BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
    return request.response(body=body.encode())


def _stats_item(window: Window) -> BrokerStatsItem:
    return BrokerStatsItem(sum=window.sum, tps=window.tps, avgpt=window.average)


# --- clean-up ---


def clean_expired_consume_queue(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    log.info("expired consume queues deleted count=%d by=%s", broker.store.clean_expired(), connection.peer)
    return request.response()


def delete_expired_commit_log(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    log.info("expired log files deleted count=%d by=%s", broker.store.delete_expired_files(), connection.peer)
    return request.response()


# --- looking into queues ---


def query_consume_queue(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    header = QueryConsumeQueueHeader.decode(request.ext_fields)
    topic, queue_id = header.topic, header.queue_id
    if queue_id not in broker.store.queue_ids(topic):
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    body = QueryConsumeQueueResponseBody(
        max_queue_index=broker.store.max_offset(topic, queue_id),
        min_queue_index=broker.store.min_offset(topic, queue_id),
    )
    if header.consumer_group is not None:
        _describe_filter(broker, header.consumer_group, topic, body)
    count = min(header.count, QUEUE_ENTRIES_MAX)
    entries = broker.store.queue_entries(topic, queue_id, header.index, count)
    if not entries:
        return request.response(remark=f"Index {header.index} of {queue_id}@{topic} is not exist!")
    body.queue_data = [
        ConsumeQueueData(
            physic_offset=entry.physical_offset,
            physic_size=entry.size,
            tags_code=entry.tags_code,
            eval=_lets_through(body.subscription_data, entry.tags_code),
        )
        for entry in entries
    ]
    return request.response(remark=NOT_SET, body=body.encode())


def _describe_filter(broker: Broker, group: str, topic: str, body: QueryConsumeQueueResponseBody) -> None:
    body.subscription_data = broker.consumers.subscription(group, topic)
    if body.subscription_data is None:
        body.filter_data = f"{group}@{topic} is not online!"
        return
    known: GroupFilter | None = broker.filter_data.get(topic, group)
    body.filter_data = "null" if known is None else json_java.dumps_pretty(known.as_json())


def _lets_through(subscription: SubscriptionData | None, tags_code: int) -> bool:
    if subscription is None or not is_tag_type(subscription.expression_type):
        return False
    return not subscription.code_set or tags_code in subscription.code_set


# --- transactions ---


def resume_check_half_message(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    """Append a half message that was given up once more, with its counter of checks at zero."""
    header = ResumeCheckHalfMessageHeader.decode(request.ext_fields)
    try:
        record = broker.store.read_record(parse_offset_message_id(header.msg_id or "").physical_offset)
        message = decode_record(bytes(record or b""))
    except (CometMQError, ValueError) as error:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, RESUME_EXCEPTION) from error
    if not broker.transactions.resume(message):
        raise BrokerError(ResponseCode.SYSTEM_ERROR, RESUME_FAILED)
    return request.response()
